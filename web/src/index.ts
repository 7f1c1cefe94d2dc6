/** WrinkleFree Runtime for browsers (and, as `index.node.ts`, for Node). */

import type { Load } from "./engine.js";
import { loader } from "./load.js";
import { model, wasm } from "./places.js";
import { platform } from "./platform/page.browser.js";

/**
 * Loads a model into a worker of its own.
 *
 * Rejects with the signal's reason after an abort, otherwise with a {@link WrinkleFreeError}.
 */
export const load: Load = loader(platform, {
  worker: new URL("./worker.js", import.meta.url).href,
  model,
  wasm,
});

export type * from "./public.js";
export { WrinkleFreeError } from "./errors.js";
