/** The public types of requests and answers. */

import type { FinishReason, Slot } from "./glue.js";

/** One file of a model: where it is, or its bytes. */
export type FileSource = string | URL | Blob | ArrayBuffer | Uint8Array;

/**
 * A model: `"default"` (the small one in this package), one file (packed, GGUF, safetensors), or
 * all files of it: a Hugging Face directory (`config.json`, `tokenizer.json`, `*.safetensors`), or
 * the pieces `name.part1`, `name.part2`, … of a split file. In Node a string without a scheme is a
 * path.
 */
export type ModelSource = "default" | FileSource | readonly FileSource[];

/** How far loading is. */
export interface Progress {
  /** Bytes in wasm memory. */
  loaded: number;
  /** Bytes of all files; `null` while a server has not said. */
  total: number | null;
  /** The file that is being read. */
  file: string;
  /** The file comes from the cache. */
  cached: boolean;
}

/** Types of cached keys and values. */
export type KvType = "f32" | "f16" | "bf16" | "fp8-e4m3" | "fp8-e5m2" | "int8";

/** How to load a model. */
export interface LoadOptions {
  /**
   * Threads, the engine's own included, 64 at most. `"auto"` (default): one per core, at most 8, if the page
   * is cross-origin isolated; otherwise 1.
   */
  threads?: number | "auto";
  /** Which SIMD to use. `"auto"` (default): relaxed if it computes right here, else simd128. */
  simd?: "auto" | "simd128" | "relaxed";
  /** Ends loading; `load` rejects with the signal's reason. A resumed download keeps what came. */
  signal?: AbortSignal;
  /** Called while files are read, at most every 50 ms, and at the end of each file. */
  onProgress?: (progress: Progress) => void;
  /** Keep downloads in OPFS, or Cache Storage (default `true`; Node has neither). */
  cache?: boolean;
  /**
   * Positions that a sequence may have (default 2048); never more than the model was trained for.
   */
  context?: number;
  /**
   * Type of the cached keys and values (default `"bf16"`): types of 8 bits take half of its memory,
   * f32 twice as much.
   */
  kvType?: KvType | { keys?: KvType; values?: KvType };
  /**
   * What a token attends to, in pages of 32 positions: `"dense"` (default), `"window:W,sinks:S"`,
   * `"topk:K"`, `"threshold:T"`, `"dynamic:MIN,MAX"`.
   */
  attention?: string;
  /** The expected SHA-256 in hex: of the only file, or by the files' names. */
  sha256?: string | Readonly<Record<string, string>>;
  /** The model's name in answers; by default its file's. */
  name?: string;
}

/** How to generate. What is left out is the model's or the decode mode's default. */
export interface GenerateOptions {
  /** Take the prompt as it is, without the model's chat template. */
  raw?: boolean;
  /** At most so many new tokens (default 512). */
  maxTokens?: number;
  /** 0: always the likeliest token. */
  temperature?: number;
  topK?: number;
  topP?: number;
  minP?: number;
  repetitionPenalty?: number;
  frequencyPenalty?: number;
  presencePenalty?: number;
  /** Added to the logits of tokens, by id. */
  logitBias?: Readonly<Record<number, number>>;
  /** The same seed, the same text; by default another one each time. */
  seed?: number;
  /** So many likeliest tokens, with log-probabilities, beside each token. */
  logprobs?: number;
  /** Texts that end the answer; they are not part of it. */
  stop?: readonly string[];
  decodeMode?: DecodeMode;
  /** How sure a slot must be to become final, from 0 to 1. */
  threshold?: number;
  blockSize?: number;
  smallBlockSize?: number;
  selector?: string;
  factor?: number;
  entropyBound?: number;
  slotsPerPass?: number;
  draft?: string;
  draftLength?: number;
  maskTokenId?: number;
  commit?: string;
  subBlockCache?: boolean;
  /** Ends generation within one forward pass; the call rejects with the signal's reason. */
  signal?: AbortSignal;
}

/** `GenerateOptions`, and what concerns streams only. */
export interface StreamOptions extends GenerateOptions {
  /** Fill `part.provisional` after each pass (default `true`). */
  watch?: boolean;
}

/** How tokens are found; `"auto"` lets the model decide. */
export type DecodeMode = "auto" | "ar" | "greedy" | "iterative" | "adaptive" | "verify";

/** A final token. */
export interface Token {
  id: number;
  /** What it says on its own, where `logprobs` are asked for; so are the next two. */
  text?: string;
  /** Natural logarithm. */
  logprob?: number;
  /** The likeliest tokens in its place. */
  top?: TopToken[];
}

/** A token that might have stood in a place. */
export interface TopToken {
  id: number;
  text: string;
  logprob: number;
}

/** Measured in the worker, around the engine's passes; `null`: not known yet. */
export interface Stats {
  /** Final tokens so far. */
  tokens: number;
  /** Tokens of the prompt; known at the end. */
  promptTokens: number | null;
  /** Of these, how many were in the prefix cache; known at the end. */
  cachedTokens: number | null;
  /** Forward passes; known at the end. */
  passes: number | null;
  /** Known at the end. */
  tokensPerPass: number | null;
  /** Since the first token, which does not count. */
  tokensPerSecond: number | null;
  /** Milliseconds since the worker got the request. */
  timeToFirstToken: number | null;
  /** Prompt tokens computed, by the time that passes took before the first token; at the end. */
  prefillTokensPerSecond: number | null;
}

/** What is new in a stream. */
export interface Part {
  /** New final text; whole characters only. */
  text: string;
  /** The tokens that it comes from. */
  tokens: Token[];
  /** The block or draft that is being worked on, where the decode mode has one. */
  provisional: Slot[];
  stats: Stats;
  /** Set in the last part. */
  finishReason: Exclude<FinishReason, "cancelled"> | null;
}

/** What runs, and why. */
export interface EngineInfo {
  name: string;
  architecture: string;
  /** Weights, as a count. */
  parameters: number;
  layers: number;
  hiddenSize: number;
  vocabSize: number;
  /** Positions that the model was made for. */
  contextLength: number;
  /** Positions that a sequence may have here. */
  context: number;
  /** Bytes. */
  weightsBytes: number;
  /** Bytes of keys and values that all sequences share. */
  kvBytes: number;
  /** Types of the cached keys and values. */
  kvTypes: { keys: KvType; values: KvType };
  /** Which positions are read. */
  attention: string;
  /** Bytes of wasm memory. */
  memoryBytes: number;
  simd: "simd128" | "relaxed-simd" | "scalar";
  threads: number;
  decodeModes: string[];
  defaultDecodeMode: string;
  /** The model has a chat template. */
  chat: boolean;
  blockSize: number | null;
  maskTokenId: number | null;
  /** WebAssembly module in use, such as `"threads-relaxed"` or `"single-simd128"`. */
  artifact: string;
  /**
   * The same value as `artifact`, under its former spelling.
   *
   * @deprecated Read `artifact`. The next release removes this field.
   */
  artefact: string;
  /** Why it runs like this. */
  why: { threads: string; simd: string; cache: string };
  /** What else is worth knowing, such as a damaged cache entry. */
  notes: string[];
  files: LoadedFile[];
}

/** A file that was loaded. */
export interface LoadedFile {
  name: string;
  bytes: number;
  /** It came from the cache. */
  cached: boolean;
  /** Hex; `null` where nothing needed it. */
  sha256: string | null;
}
