export type {
  ChatCompletion,
  ChatCompletionChunk,
  ChatCompletionParams,
  ChatMessage,
  ChatUsage,
} from "./chat_types.js";
export type { Engine, Load } from "./engine.js";
export type { ErrorCode } from "./errors.js";
export type { FinishReason, Slot } from "./glue.js";
export type * from "./types.js";
