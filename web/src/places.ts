import type { Artefact, Places } from "./protocol.js";

type Urls = Record<Artefact, { glue: string; binary: string }>;

/**
 * The artefacts' URLs. Each is written out: bundlers only see literals, and give the files names
 * of their own.
 */
export const wasm: Urls = {
  "single-simd128": {
    glue: new URL("./wasm/single-simd128.js", import.meta.url).href,
    binary: new URL("./wasm/single-simd128_bg.wasm", import.meta.url).href,
  },
  "single-relaxed": {
    glue: new URL("./wasm/single-relaxed.js", import.meta.url).href,
    binary: new URL("./wasm/single-relaxed_bg.wasm", import.meta.url).href,
  },
  "threads-simd128": {
    glue: new URL("./wasm/threads-simd128.js", import.meta.url).href,
    binary: new URL("./wasm/threads-simd128_bg.wasm", import.meta.url).href,
  },
  "threads-relaxed": {
    glue: new URL("./wasm/threads-relaxed.js", import.meta.url).href,
    binary: new URL("./wasm/threads-relaxed_bg.wasm", import.meta.url).href,
  },
};

/** The model in this package. */
export const model: Places["model"] = new URL("./default.wf.safetensors", import.meta.url).href;
