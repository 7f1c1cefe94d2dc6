/**
 * Types of the wasm-bindgen modules in `dist/wasm`. There are four of them, called artifacts: with
 * and without threads, with simd128 and with relaxed SIMD.
 */

import type { EndToken, KvType, Snapshot } from "./types.js";

/** The exports of an artifact's JavaScript module. */
export interface WasmBindings {
  /** Instantiates the WebAssembly module. */
  default(options: { module_or_path: WebAssembly.Module; memory?: WebAssembly.Memory }): Promise<{
    memory: WebAssembly.Memory;
  }>;
  Upload: new (name: string, size: number) => Upload;
  Session: { open(files: Upload[], drafter: Upload[], options: string): Session };
  /** Runs a worker of the thread pool until the session is freed. Exported with threads only. */
  runPoolWorker?(): void;
}

/** A file that is being written into wasm memory. */
export interface Upload {
  /** Appends a chunk. */
  write(chunk: Uint8Array): void;
  /** Returns the SHA-256 of all bytes written, in hexadecimal. */
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
  /** Returns the token ids of a request's prompt. */
  encode(request: string): Uint32Array;
  detokenize(ids: Uint32Array): string;
  free(): void;
}

/** Parsed result of `Session.info`. */
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
  subnormal_weights: number;
  end_tokens: EndToken[];
  notes: string[];
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
  drafter: string | null;
}

/** Parsed result of `Session.step`: one forward pass. */
export interface StepResult {
  ran: boolean;
  prefill_rows: number;
  decode_rows: number;
  events: EngineEvent[];
}

/** An event of one request. */
export type EngineEvent = TokenEvent | SlotsEvent | EndEvent;

/** Output that became complete with an event: text of the answer, of the reasoning before it, and calls. */
export interface NewOutput {
  text: string;
  reasoning?: string;
  calls?: CallEvent[];
}

/** A part of a call of a tool. The first part has the name. */
export interface CallEvent {
  index: number;
  name?: string;
  arguments: string;
}

/** A token became final. */
export interface TokenEvent extends NewOutput {
  type: "token";
  id: number;
  token: number;
  logprob?: number;
  top?: [token: number, logprob: number][];
}

/** State of the block or draft after a pass. */
export interface SlotsEvent {
  type: "slots";
  id: number;
  slots: Slot[];
  snapshot?: Snapshot;
}

/** A request ended. Its output is the rest, which had been held back. */
export interface EndEvent extends NewOutput {
  type: "end";
  id: number;
  /** `"model_error"` if the model computed a number that is NaN or infinite. */
  reason: FinishReason | "model_error";
  prompt_tokens: number;
  generated_tokens: number;
  passes: number;
  cached_tokens: number;
  drafted_tokens: number;
  accepted_tokens: number;
  snapshot?: Snapshot;
}

/**
 * Reason for the end of a generation: the model or a stop string, the token limit, a cancellation, or
 * a grammar that allows no further token.
 */
export type FinishReason = "stop" | "length" | "cancelled" | "constraint";

/** One position of the diffusion block, or draft, in progress. */
export interface Slot {
  /** `"final"`, `"provisional"` (the token may still change) or `"masked"` (it has no token yet). */
  state: "final" | "provisional" | "masked";
  /** Token id; missing if masked. */
  token?: number;
  /** Text of the token alone; empty if masked. */
  text: string;
  /** Certainty of the token, from 0 to 1, if the decode mode computes it. */
  certainty?: number;
}
