/**
 * WrinkleFree Runtime for browsers: ternary language models on the CPU.
 *
 * @packageDocumentation
 */

import { modelUrl, wasmUrls } from "./assets.js";
import type { LoadFunction } from "./engine.js";
import { createLoad } from "./load.js";
import { platform } from "./platform/page.browser.js";

/**
 * Loads a model and starts an engine in a worker of its own.
 *
 * @param source - the model; by default the small one in this package
 * @param options - threads, SIMD, cache, key-value cache type and others
 * @returns the engine; call `dispose` to free its threads and memory
 * @throws {@link WrinkleFreeError} such as `"not_a_model"`, `"too_large"`, `"download_failed"` or
 * `"unsupported_environment"`; after an abort it rejects with the signal's reason
 * @example
 * ```ts
 * const engine = await load("https://models.example/model.gguf", {
 *   onProgress: ({ loaded, total }) => console.log(loaded, total),
 * });
 * ```
 */
export const load: LoadFunction = createLoad(platform, {
  worker: new URL("./worker.js", import.meta.url).href,
  model: modelUrl,
  wasm: wasmUrls,
});

export { cache } from "./cache/model_cache.js";
export type * from "./public.js";
export { WrinkleFreeError } from "./errors.js";
