"use client";

import { useEffect, useState } from "react";
import { load } from "wrinklefree";

export default function Page() {
  const [text, setText] = useState("");

  useEffect(() => {
    const abort = new AbortController();
    tell(abort.signal, (more) => setText((text) => text + more)).catch((error) => {
      if (!abort.signal.aborted) setText(error.message);
    });
    return () => abort.abort();
  }, []);

  return <p>{text}</p>;
}

async function tell(signal, show) {
  const engine = await load("default", { signal });
  try {
    for await (const part of engine.stream("Tell me a story about a fox.", { signal })) {
      show(part.text);
    }
  } finally {
    await engine.dispose();
  }
}
