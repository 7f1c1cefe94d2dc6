import type { Thread } from "./platform.js";

/** Starts a worker in a browser. */
export function spawn(url: string): Thread {
  const own = sameOrigin(url);
  const worker = new Worker(own ?? url, { type: "module", name: "wrinklefree" });
  return {
    post: (message, transfer = []) => worker.postMessage(message, transfer),
    onMessage: (handler) => {
      worker.onmessage = ({ data }) => handler(data);
    },
    onBroken: (handler) => {
      worker.onerror = (event) => handler(event.message || `${url} did not load`);
    },
    hold: () => {},
    terminate: () => {
      worker.terminate();
      if (own) URL.revokeObjectURL(own);
    },
  };
}

/** Browsers refuse workers from another origin, but not a module of ours that imports one. */
function sameOrigin(url: string): string | undefined {
  if (new URL(url).origin === location.origin) return undefined;
  const source = `import ${JSON.stringify(url)};`;
  return URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
}
