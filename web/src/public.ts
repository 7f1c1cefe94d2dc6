/** The public types of the package, the same in browsers and in Node. */

export type * from "./chat_types.js";
export type { CachedDownload, CacheSize } from "./cache/model_cache.js";
export type { Chat, Completions } from "./chat.js";
export type { Engine, Load, LoadFunction } from "./engine.js";
export type { ErrorCode } from "./errors.js";
export type { FinishReason, Slot } from "./bindings.js";
export type * from "./types.js";
