/** What goes between the page and the engine's worker, and from there to helper workers. */

import type { WireError } from "./errors.js";
import type { FinishReason, Slot } from "./glue.js";
import type { EngineInfo, Progress, Stats, Token } from "./types.js";

/** The artifacts of `dist/wasm`. */
export type Artifact = `${"single" | "threads"}-${"simd128" | "relaxed"}`;

/** Where the files of this package are: only the page's module knows, bundlers rename them. */
export interface Places {
  worker: string;
  model: string;
  wasm: Record<Artifact, { glue: string; binary: string }>;
}

/** Where the bytes of a file, or of a part of it, come from. */
export type Piece =
  | { from: "url"; url: string }
  | { from: "blob"; blob: Blob }
  /** The page's own buffer, lent chunk by chunk. */
  | { from: "page"; port: MessagePort; size: number };

/** A file of the model; its pieces follow each other. */
export interface ModelFile {
  name: string;
  pieces: Piece[];
}

/** `LoadOptions` as far as they concern the worker. */
export interface Settings {
  name: string;
  threads: number | "auto";
  simd: "auto" | "simd128" | "relaxed";
  cache: boolean;
  context?: number;
  /** As the core calls them. */
  kv: { keys?: string; values?: string; attention?: string };
  sha256: Record<string, string>;
}

/** A request in the core's terms: snake_case. */
export type WireRequest = Record<string, unknown>;

export type ToWorker =
  | { type: "load"; id: number; files: ModelFile[]; settings: Settings; places: Places }
  /** Ends a `load` that is under way. */
  | { type: "abort" }
  | { type: "tokenize"; id: number; text: string; special: boolean }
  | { type: "generate"; id: number; request: WireRequest }
  | { type: "cancel"; id: number }
  | { type: "dispose"; id: number }
  /** Makes the worker a helper of the engine at the other end of the port. */
  | { type: "help"; port: MessagePort };

export type FromWorker =
  | { type: "progress"; progress: Progress }
  | { type: "done"; id: number; value: EngineInfo | number[] | null }
  | { type: "failed"; id: number; error: WireError }
  | { type: "parts"; parts: WirePart[] }
  | { type: "crashed"; error: WireError }
  /** Asks for a helper worker at the other end of the port. */
  | { type: "spawn"; port: MessagePort };

/** What happened to one request since the last part. */
export interface WirePart {
  id: number;
  text: string;
  tokens: Token[];
  provisional: Slot[];
  stats: Stats;
  finishReason: FinishReason | null;
}

/** To a helper, from its engine. */
export type ToHelper =
  | { type: "start"; glue: string; module: WebAssembly.Module; memory: WebAssembly.Memory }
  /** The session is open: work for it until it is freed. */
  | { type: "go" };

/** From a helper, once it has the module. */
export type FromHelper = { type: "ready" } | { type: "failed"; error: WireError };
