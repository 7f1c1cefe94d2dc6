import type { Places } from "../../../src/protocol.js";

const artifact = {
  glue: new URL("./glue.js", import.meta.url).href,
  binary: new URL("./empty.wasm", import.meta.url).href,
};

/** The worker as it is bundled, with a stand-in for the artifacts. */
export const places: Places = {
  worker: new URL("../../../dist/worker.node.js", import.meta.url).href,
  model: new URL("./empty.wasm", import.meta.url).href,
  wasm: {
    "single-simd128": artifact,
    "single-relaxed": artifact,
    "threads-simd128": artifact,
    "threads-relaxed": artifact,
  },
};
