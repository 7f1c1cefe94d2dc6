/** What each of the four artifacts in `dist/wasm` exports (written by wasm-bindgen). */

import type { KvType } from "./types.js";

/** The module of one artifact. */
export interface Glue {
  default(options: { module_or_path: WebAssembly.Module; memory?: WebAssembly.Memory }): Promise<{
    memory: WebAssembly.Memory;
  }>;
  Upload: new (name: string, size: number) => Upload;
  Session: { open(files: Upload[], options: string): Session };
  /** Artifacts with threads only: works for the session until it is freed. */
  helper?(): void;
}

/** A file on its way into wasm memory. */
export interface Upload {
  /** The chunk that comes next. */
  write(chunk: Uint8Array): void;
  /** Hex, of all bytes written. */
  sha256(): string;
  free(): void;
}

/** A loaded model and its engine. */
export interface Session {
  info(): string;
  submit(request: string): number;
  cancel(id: number): void;
  step(): string;
  tokenize(text: string, special: boolean): Uint32Array;
  detokenize(ids: Uint32Array): string;
  free(): void;
}

/** `Session.info`, parsed. */
export interface SessionInfo {
  name: string;
  architecture: string;
  parameters: number;
  layers: number;
  hidden_size: number;
  vocab_size: number;
  context_length: number;
  context: number;
  weights_bytes: number;
  kv_bytes: number;
  kv_types: { keys: KvType; values: KvType };
  attention: string;
  memory_bytes: number;
  simd: "simd128" | "relaxed-simd" | "scalar";
  threads: number;
  decode_modes: string[];
  default_decode_mode: string;
  chat: boolean;
  block_size: number | null;
  mask_token_id: number | null;
}

/** `Session.step`, parsed. */
export interface Step {
  ran: boolean;
  prefill_rows: number;
  decode_rows: number;
  events: Event[];
}

export type Event = TokenEvent | SlotsEvent | EndEvent;

/** A token is final; `text` is what can be shown now. */
export interface TokenEvent {
  type: "token";
  id: number;
  token: number;
  text: string;
  logprob?: number;
  top?: [token: number, logprob: number][];
}

/** The block after a pass. */
export interface SlotsEvent {
  type: "slots";
  id: number;
  slots: Slot[];
}

/** The end; `text` is what was still held back. */
export interface EndEvent {
  type: "end";
  id: number;
  reason: FinishReason;
  text: string;
  prompt_tokens: number;
  generated_tokens: number;
  passes: number;
  cached_tokens: number;
}

/** Why generation ended: the model or a stop string, the token limit, a cancel, a constraint. */
export type FinishReason = "stop" | "length" | "cancelled" | "constraint";

/** One position of the diffusion block (or draft) that is being worked on. */
export interface Slot {
  /** `"provisional"` may still change, `"masked"` has no token yet. */
  state: "final" | "provisional" | "masked";
  token?: number;
  text: string;
  /** From 0 to 1. */
  certainty?: number;
}
