import type { AssetUrls } from "../../../src/protocol.js";

const artifact = {
  bindings: new URL("./bindings.js", import.meta.url).href,
  binary: new URL("./empty.wasm", import.meta.url).href,
};

/** The bundled worker, with a fake artifact in place of all four. */
export const places: AssetUrls = {
  worker: new URL("../../../dist/worker.node.js", import.meta.url).href,
  model: new URL("./empty.wasm", import.meta.url).href,
  wasm: {
    "single-simd128": artifact,
    "single-relaxed": artifact,
    "threads-simd128": artifact,
    "threads-relaxed": artifact,
  },
};
