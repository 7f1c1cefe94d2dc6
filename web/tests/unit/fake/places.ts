import type { Places } from "../../../src/protocol.js";

const artefact = {
  glue: new URL("./glue.js", import.meta.url).href,
  binary: new URL("./empty.wasm", import.meta.url).href,
};

/** The worker as it is bundled, with a stand-in for the artefacts. */
export const places: Places = {
  worker: new URL("../../../dist/worker.node.js", import.meta.url).href,
  model: new URL("./empty.wasm", import.meta.url).href,
  wasm: {
    "single-simd128": artefact,
    "single-relaxed": artefact,
    "threads-simd128": artefact,
    "threads-relaxed": artefact,
  },
};
