/** Messages between the page, the engine's worker and the workers of its thread pool. */

import type { WireError } from "./errors.js";
import type { FinishReason, Slot } from "./bindings.js";
import type { EngineInfo, Progress, Snapshot, Stats, Token, ToolCallPart } from "./types.js";

/** Name of a WebAssembly module in `dist/wasm`. */
export type Artifact = `${"single" | "threads"}-${"simd128" | "relaxed"}`;

/** URLs of the package's files. Only the page's module knows them, because bundlers rename files. */
export interface AssetUrls {
  worker: string;
  model: string;
  wasm: Record<Artifact, ArtifactUrls>;
}

/** URLs of an artifact: its JavaScript bindings and its WebAssembly binary. */
export interface ArtifactUrls {
  bindings: string;
  binary: string;
}

/** Source of a file's bytes, or of one segment of a split file. */
export type FileSegment =
  | { from: "url"; url: string }
  | { from: "blob"; blob: Blob }
  /** A buffer of the page, which sends its chunks through the port. */
  | { from: "page"; port: MessagePort; size: number };

/** A file of the model: the concatenation of its segments. */
export interface ModelFile {
  name: string;
  segments: FileSegment[];
}

/** The part of `LoadOptions` that the worker needs. */
export interface LoadSettings {
  name: string;
  threads: number | "auto";
  simd: "auto" | "simd128" | "relaxed";
  cache: boolean;
  /** Headers of requests for the model's files. */
  headers: Record<string, string>;
  context?: number;
  /** Key-value cache options, under the core's names. */
  kv: { keys?: string; values?: string; attention?: string };
  /** Loads the block for multi-token prediction. Under the core's name. */
  mtp?: boolean;
  /** Layout of the drafter's blocks. */
  draftLayout?: "dflash" | "dspark";
  /** Options of tokens and templates, under the core's names. */
  text: {
    allow_control_tokens?: boolean | undefined;
    stop_tokens?: readonly string[] | undefined;
    chat_template?: string | undefined;
    template_fixes?: boolean | undefined;
  };
  /** Expected hashes by file name. */
  sha256: Record<string, string>;
}

/** A request under the core's field names, in snake_case. */
export type WireRequest = Record<string, unknown>;

/** Messages from the page to a worker. */
export type ToWorker =
  | {
      type: "load";
      id: number;
      files: ModelFile[];
      /** Files of the drafter; empty if there is none. */
      drafter: ModelFile[];
      settings: LoadSettings;
      assets: AssetUrls;
    }
  /** Cancels the `load` in progress. */
  | { type: "abort" }
  | { type: "tokenize"; id: number; text: string; special: boolean }
  | { type: "detokenize"; id: number; tokens: readonly number[] }
  /** Asks for the token ids of a request's prompt. */
  | { type: "encode"; id: number; request: WireRequest }
  | { type: "generate"; id: number; request: WireRequest }
  | { type: "cancel"; id: number }
  | { type: "dispose"; id: number }
  /** Makes the worker join the thread pool of the engine at the other end of the port. */
  | { type: "joinPool"; port: MessagePort };

/** Messages from an engine's worker to the page. */
export type FromWorker =
  | { type: "progress"; progress: Progress }
  | { type: "done"; id: number; value: EngineInfo | number[] | string | null }
  | { type: "failed"; id: number; error: WireError }
  | { type: "parts"; parts: WirePart[] }
  | { type: "crashed"; error: WireError }
  /** Asks the page to start a pool worker and to connect it to the port. */
  | { type: "spawnPoolWorker"; port: MessagePort };

/** Everything new about one request since its last part. */
export interface WirePart {
  id: number;
  text: string;
  reasoning: string;
  toolCalls: ToolCallPart[];
  tokens: Token[];
  provisional: Slot[];
  snapshot: Snapshot | null;
  stats: Stats;
  finishReason: FinishReason | null;
}

/** Messages from an engine to a pool worker. */
export type ToPoolWorker =
  | { type: "init"; bindings: string; module: WebAssembly.Module; memory: WebAssembly.Memory }
  /** The session is open: run the pool worker until the session is freed. */
  | { type: "run" };

/** Answers of a pool worker to `init`. */
export type FromPoolWorker = { type: "ready" } | { type: "failed"; error: WireError };
