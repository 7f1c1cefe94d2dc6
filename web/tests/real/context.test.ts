/** The embedded model's context. Needs `web/build`. */

import { expect, test } from "vitest";
import { load } from "../../dist/index.node.js";

test("the default context of the embedded model is the length that it was trained for", async () => {
  for (const [options, context] of [
    [{}, 512],
    [{ context: 100 }, 100],
  ] as const) {
    const engine = await load("default", { threads: 1, simd: "simd128", ...options });
    expect(engine.info()).toMatchObject({ contextLength: 512, context });
    engine.dispose();
  }
});
