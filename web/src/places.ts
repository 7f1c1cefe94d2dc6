import type { Places } from "./protocol.js";

/**
 * The artifacts' URLs. Each is written out: bundlers only see literals, and give the files names
 * of their own.
 */
export const wasm: Places["wasm"] = {
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

/** Turbopack's URLs have no origin, and workers from a blob have no base to resolve them by. */
export function absolute(
  { worker, model, wasm }: Places,
  resolve: (url: string) => string,
): Places {
  const both = ({ glue, binary }: { glue: string; binary: string }) => ({
    glue: resolve(glue),
    binary: resolve(binary),
  });
  return {
    worker: resolve(worker),
    model: resolve(model),
    wasm: {
      "single-simd128": both(wasm["single-simd128"]),
      "single-relaxed": both(wasm["single-relaxed"]),
      "threads-simd128": both(wasm["threads-simd128"]),
      "threads-relaxed": both(wasm["threads-relaxed"]),
    },
  };
}
