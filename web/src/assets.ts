/** URLs of the files in this package. */

import type { ArtifactUrls, AssetUrls } from "./protocol.js";

/** URLs of the artifacts. Each one is a literal, so that bundlers find the file and can rename it. */
export const wasmUrls: AssetUrls["wasm"] = {
  "single-simd128": {
    bindings: new URL("./wasm/single-simd128.js", import.meta.url).href,
    binary: new URL("./wasm/single-simd128_bg.wasm", import.meta.url).href,
  },
  "single-relaxed": {
    bindings: new URL("./wasm/single-relaxed.js", import.meta.url).href,
    binary: new URL("./wasm/single-relaxed_bg.wasm", import.meta.url).href,
  },
  "threads-simd128": {
    bindings: new URL("./wasm/threads-simd128.js", import.meta.url).href,
    binary: new URL("./wasm/threads-simd128_bg.wasm", import.meta.url).href,
  },
  "threads-relaxed": {
    bindings: new URL("./wasm/threads-relaxed.js", import.meta.url).href,
    binary: new URL("./wasm/threads-relaxed_bg.wasm", import.meta.url).href,
  },
};

/** URL of the model in this package. */
export const modelUrl: AssetUrls["model"] = new URL("./default.wf.safetensors", import.meta.url)
  .href;

/**
 * Makes all URLs absolute: Turbopack's URLs have no origin, and a worker that was started from a blob
 * has no base URL to resolve them.
 */
export function resolveAssets(
  { worker, model, wasm }: AssetUrls,
  resolve: (url: string) => string,
): AssetUrls {
  const resolveBoth = ({ bindings, binary }: ArtifactUrls) => ({
    bindings: resolve(bindings),
    binary: resolve(binary),
  });
  return {
    worker: resolve(worker),
    model: resolve(model),
    wasm: {
      "single-simd128": resolveBoth(wasm["single-simd128"]),
      "single-relaxed": resolveBoth(wasm["single-relaxed"]),
      "threads-simd128": resolveBoth(wasm["threads-simd128"]),
      "threads-relaxed": resolveBoth(wasm["threads-relaxed"]),
    },
  };
}
