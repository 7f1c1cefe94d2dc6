/** The public types of models, requests and answers. */

import type { FinishReason, Slot } from "./bindings.js";
import type { ChatMessage, ChatTool, ChatToolChoice } from "./chat_types.js";

/**
 * One file of a model: its URL or its bytes. In Node a string without a scheme is a path.
 * `hf:organization/name/file.gguf` is a file on the Hugging Face hub; `name@revision` another branch.
 *
 * An `ArrayBuffer` or `Uint8Array` is copied chunk by chunk and stays usable by its owner.
 */
export type FileSource = string | URL | Blob | ArrayBuffer | Uint8Array;

/**
 * A model to load. It is one of:
 *
 * - `"default"`: the small model in this package,
 * - one file: packed (`wf-run convert`), GGUF or safetensors,
 * - all files of a Hugging Face directory: `config.json`, `tokenizer.json`, `*.safetensors`,
 * - the parts of a split file: `name.part1`, `name.part2`, …, in any order.
 */
export type ModelSource = "default" | FileSource | readonly FileSource[];

/** A prompt: a text, the messages of a conversation, or the token ids of a text that continues. */
export type Prompt = string | readonly ChatMessage[] | readonly number[] | Uint32Array;

/** Progress of a `load` call. */
export interface Progress {
  /** Bytes in wasm memory so far, over all files. */
  loaded: number;
  /** Bytes of all files, or `null` if a server did not report a length. */
  total: number | null;
  /** Name of the file that is being read. */
  file: string;
  /** True if the file comes from the browser's cache. */
  cached: boolean;
}

/** Element type of the key-value cache. */
export type KvType = "f32" | "f16" | "bf16" | "fp8-e4m3" | "fp8-e5m2" | "int8";

/** Options of `load`. */
export interface LoadOptions {
  /**
   * Number of threads, including the engine's own, from 1 to 64. `"auto"` (default): one per core,
   * at most 8, if shared memory is available (a cross-origin isolated page, or Node); otherwise 1.
   */
  threads?: number | "auto";
  /**
   * SIMD instructions. `"auto"` (default): relaxed SIMD if it passes a self-test, else simd128.
   */
  simd?: "auto" | "simd128" | "relaxed";
  /**
   * Cancels loading: `load` rejects with the signal's reason. Bytes that were cached are kept, so
   * that the next call resumes the download.
   */
  signal?: AbortSignal;
  /** Called at most every 50 ms while files are read, and once at the end of each file. */
  onProgress?: (progress: Progress) => void;
  /**
   * Keeps downloads in OPFS, or in Cache Storage where OPFS is missing (default `true`). Node has
   * neither.
   */
  cache?: boolean;
  /**
   * Headers of all requests for the model's files, such as `{ authorization: "Bearer …" }`. Across
   * origins the server must allow them. The model in this package is fetched without.
   */
  headers?: Readonly<Record<string, string>>;
  /**
   * Maximum number of tokens of a sequence, prompt and answer together (default 2048). It is never
   * more than the length the model was trained for.
   */
  context?: number;
  /**
   * Element type of the key-value cache (default `"bf16"`), for both or for each. The 8-bit types
   * need half of the default's memory, `"f32"` twice as much.
   */
  kvType?: KvType | { keys?: KvType; values?: KvType };
  /**
   * Attention sparsity, in pages of 32 positions: `"dense"` (default), `"window:W,sinks:S"`,
   * `"topk:K"`, `"threshold:T"` or `"dynamic:MIN,MAX"`.
   */
  attention?: string;
  /**
   * Lets control tokens that stand in messages (`<|im_end|>`) act as such. By default they are text
   * there, so that a message cannot forge turns (default `false`).
   */
  allowControlTokens?: boolean;
  /**
   * Loads the model's block for multi-token prediction, if its file has one, and drafts with it: the
   * same text in fewer passes, for more memory (default `false`).
   */
  mtp?: boolean;
  /**
   * Drafter for the model (DFlash, DSpark): a GGUF file, or the files of a Hugging Face directory. It
   * drafts by default then: the same text in fewer passes.
   */
  draftModel?: FileSource | readonly FileSource[];
  /**
   * What a row of the drafter's blocks predicts: the token at its own position (`"dflash"`), or the one
   * after it (`"dspark"`). The default is what its files state, or let conclude.
   */
  draftLayout?: "dflash" | "dspark";
  /**
   * Tokens that end a text, by exact name or id, in addition to those of the model's files and those that are
   * known by name.
   */
  stopTokens?: readonly string[];
  /**
   * Chat template instead of that of the model's files: `"bitnet"`, `"chatml"`, `"gemma"`, `"hunyuan"`,
   * `"llama3"`, `"phi3"`, `"zephyr"`, or Jinja.
   */
  chatTemplate?: string;
  /** Replaces chat templates that are known to be wrong (default `true`); `notes` says so. */
  templateFixes?: boolean;
  /**
   * Expected SHA-256 in hexadecimal: of the only file, or by file name. A file with another hash is
   * refused with `"hash_mismatch"`.
   */
  sha256?: string | Readonly<Record<string, string>>;
  /**
   * Name of the model in answers. The default is the file's name without its extension; for the files
   * of a directory it is the directory's name.
   */
  name?: string;
}

/**
 * Options of `generate`. A missing sampling option takes the model's recommended value, or else is
 * off; a missing decoding option takes its default.
 */
export interface GenerateOptions {
  /** Skips the model's chat template and continues the prompt as it is (default `false`). */
  raw?: boolean;
  /**
   * Text after the output: the output fills the hole between the prompt and it, without a chat
   * template. A model can that has tokens for holes (fill in the middle), or that denoises blocks.
   */
  suffix?: string;
  /** Maximum number of new tokens (default 512). */
  maxTokens?: number;
  /** Softmax temperature; 0 always takes the most likely token. */
  temperature?: number;
  /** Keeps the K most likely tokens; 0 keeps all. */
  topK?: number;
  /** Nucleus sampling: keeps the smallest set of tokens with at least this probability, 0 to 1. */
  topP?: number;
  /** Drops tokens less likely than this share of the most likely token's probability, 0 to 1. */
  minP?: number;
  /** Divides the logits of tokens that occur in prompt or answer; 1 is off. */
  repetitionPenalty?: number;
  /** Subtracted from a token's logit for each occurrence in the answer; 0 is off. */
  frequencyPenalty?: number;
  /** Subtracted once from the logits of tokens that occur in the answer; 0 is off. */
  presencePenalty?: number;
  /** Values added to the logits of tokens, by token id. */
  logitBias?: Readonly<Record<number, number>>;
  /** Random seed. The same seed gives the same text; the default differs on every call. */
  seed?: number;
  /** Number of most likely tokens to report with log-probabilities next to each token. */
  logprobs?: number;
  /** Strings, or a string, that end the answer; they are not part of it. */
  stop?: string | readonly string[];
  /** Lets the model think before it answers. The default is the chat template's. */
  enableThinking?: boolean;
  /** Amount of thinking. A template that knows no effort gets a budget instead. */
  reasoningEffort?: "none" | "minimal" | "low" | "medium" | "high" | "xhigh" | "max";
  /** Maximum number of tokens of thinking; then it is closed, and the model answers. */
  thinkingBudget?: number;
  /** Keeps the thinking of earlier turns in the prompt. The default is the chat template's. */
  preserveThinking?: boolean;
  /** Variables of the chat template. */
  chatTemplateKwargs?: Readonly<Record<string, unknown>>;
  /**
   * Functions that the model may call, at most 128, in the form of OpenAI's API. The calls are
   * `toolCalls` of a part. Without a grammar their arguments may differ from the schema: check them.
   */
  tools?: readonly ChatTool[];
  /** `"auto"` (default): the model decides. `"none"`: it reads of the tools, and a call is text. */
  toolChoice?: ChatToolChoice;
  /** Several calls in one answer. Only `true` (default) is supported: `false` needs a grammar. */
  parallelToolCalls?: true;
  /** Documents to answer from, at most 128, for chat templates that take them: mostly `title` and `text`. */
  documents?: readonly Readonly<Record<string, unknown>>[];
  /** Decoding algorithm (default `"auto"`). */
  decodeMode?: DecodeMode;
  /**
   * Certainty above which a slot of a diffusion block becomes final, above 0 and at most 1
   * (default 0.9). Modes `"iterative"` and `"adaptive"` use it.
   */
  threshold?: number;
  /** Number of positions of a diffusion block. The default is the model's. */
  blockSize?: number;
  /** Number of positions of a sub-block; it must divide the block (default 8, or the block). */
  smallBlockSize?: number;
  /**
   * Rule by which `"iterative"` accepts tokens: `"threshold"` (default), `"factor"`, `"entropy"`,
   * `"margin"`, `"topk"`, `"threshold-factor"`, `"threshold-or-factor"` or `"product"`.
   */
  selector?: string;
  /**
   * Bound of the selectors with a factor; a smaller value is slower and better (default 1, or 2 next
   * to a threshold).
   */
  factor?: number;
  /** Bound of the selector `"entropy"`, in nats; smaller is slower and better (default 0.1). */
  entropyBound?: number;
  /** Number of tokens that the selector `"topk"` accepts in each pass (default 2). */
  slotsPerPass?: number;
  /**
   * Source of drafts in mode `"verify"`: `"denoise"` (one block-diffusion pass; default where the
   * model can), `"mtp"` (the block for multi-token prediction of a model that was loaded with `mtp`),
   * `"model"` (the drafter that was loaded as `draftModel`; default then) or `"ngram"` (the continuation
   * of an earlier occurrence of the same tokens).
   */
  draft?: string;
  /** Confidence below which a drafter's drafts end, 0 to 1, for drafters with a confidence head. */
  draftThreshold?: number;
  /**
   * Cost of one more row in a pass, as a share of a pass of one row, at least 0. Drafts end where they
   * cost more than they save; 0 always drafts. The default is measured when the model is loaded.
   */
  rowCost?: number;
  /** Maximum number of tokens of a draft (default 8). */
  draftLength?: number;
  /** Id of the MASK token. The default is the model's. */
  maskTokenId?: number;
  /**
   * Time at which the keys and values of a finished block are computed: `"clean"` (default, in a
   * pass of their own) or `"fused"` (in the first pass of the next block).
   */
  commit?: string;
  /**
   * Repeats passes over a sub-block alone, with the rest of the block as it was. This is faster and
   * approximate (default `false`).
   */
  subBlockCache?: boolean;
  /** Cancels generation within one forward pass; the call rejects with the signal's reason. */
  signal?: AbortSignal;
}

/** Options of `stream`. */
export interface StreamOptions extends GenerateOptions {
  /** Reports the block or draft in progress after each pass, in `provisional` (default `true`). */
  watch?: boolean;
  /**
   * Reports the whole answer so far after each pass, in `snapshot` (default `false`). `"░"` stands for
   * a token that block diffusion has not decided.
   */
  diffusing?: boolean;
}

/**
 * Decoding algorithm.
 *
 * - `"auto"`: `"verify"` for a model that can do both, `"iterative"` for one that only denoises,
 *   otherwise `"ar"`
 * - `"ar"`: autoregressive, one token per pass
 * - `"verify"`: lossless speculative decoding: the text of `"ar"`, in fewer passes
 * - `"iterative"`: block diffusion; each pass accepts the tokens that are certain enough
 * - `"adaptive"`: as `"iterative"`, with a threshold that rises from pass to pass
 * - `"greedy"`: block diffusion, a whole block in one pass
 */
export type DecodeMode = "auto" | "ar" | "greedy" | "iterative" | "adaptive" | "verify";

/** A final token. */
export interface Token {
  /** Token id, from 0 to `vocabSize - 1`. */
  id: number;
  /** Text of the token alone. Set if `logprobs` was requested, as are the next two fields. */
  text?: string;
  /** Natural logarithm of the token's probability. */
  logprob?: number;
  /** The most likely tokens at this position, most likely first. */
  top?: TopToken[];
}

/** One of the most likely tokens at a position. */
export interface TopToken {
  /** Token id. */
  id: number;
  /** Text of the token alone. */
  text: string;
  /** Natural logarithm of the token's probability. */
  logprob: number;
}

/**
 * Statistics of one request, measured in the worker around the engine's forward passes. A value is
 * `null` until it is known.
 */
export interface Stats {
  /** Number of final tokens so far. */
  tokens: number;
  /** Number of prompt tokens; known at the end. */
  promptTokens: number | null;
  /** Number of prompt tokens found in the prefix cache; known at the end. */
  cachedTokens: number | null;
  /** Number of forward passes; known at the end. */
  passes: number | null;
  /** Number of drafted tokens that were checked; known at the end. */
  draftedTokens: number | null;
  /** Number of those that were right; known at the end. */
  acceptedTokens: number | null;
  /** Generated tokens per forward pass; known at the end. */
  tokensPerPass: number | null;
  /** Tokens per second after the first token, which is not counted. */
  tokensPerSecond: number | null;
  /** Milliseconds from the request's arrival in the worker to its first token. */
  timeToFirstToken: number | null;
  /** Computed prompt tokens per second of the passes before the first token; known at the end. */
  prefillTokensPerSecond: number | null;
}

/** One item of a stream: everything that is new since the item before. */
export interface Part {
  /** New final text of the answer; it never ends within a character. */
  text: string;
  /** New final text of the reasoning before the answer, of models that think first. */
  reasoning: string;
  /** New parts of the calls of tools. */
  toolCalls: ToolCallPart[];
  /** The tokens of that text. */
  tokens: Token[];
  /** The block or draft in progress, if the decode mode has one and `watch` is on. */
  provisional: Slot[];
  /**
   * The whole answer so far, if `diffusing` is on and it has changed; it replaces the snapshot before
   * it. That of the last part equals the answer.
   */
  snapshot: Snapshot | null;
  /** Statistics so far. */
  stats: Stats;
  /** Reason for the end, in the last part; `null` before it. */
  finishReason: Exclude<FinishReason, "cancelled"> | null;
}

/** The whole output so far. */
export interface Snapshot {
  /** The answer. */
  text: string;
  /** The reasoning before it. */
  reasoning: string;
}

/** A part of a call of a tool. The texts of all parts with one `index` are the call's arguments. */
export interface ToolCallPart {
  /** Number of the call in the answer, from 0. */
  index: number;
  /** Random id, by which a message with the result names the call. In a call's first part. */
  id?: string;
  /** Name of the function. In a call's first part. */
  name?: string;
  /** More of the arguments, which are JSON. */
  arguments: string;
}

/** Description of a loaded model and of the configuration it runs in. */
export interface EngineInfo {
  /** Name of the model. */
  name: string;
  /** Architecture as the model's file names it. */
  architecture: string;
  /** Number of weights. */
  parameters: number;
  /** Number of transformer layers. */
  layers: number;
  /** Size of a hidden state. */
  hiddenSize: number;
  /** Number of token ids. */
  vocabSize: number;
  /** Number of positions that the model was trained for. */
  contextLength: number;
  /** Maximum number of tokens of a sequence in this engine. */
  context: number;
  /** Bytes of the model's files. */
  weightsBytes: number;
  /** Number of subnormal weights that loading has set to zero: products with them are slow. */
  subnormalWeights: number;
  /** Tokens that end a text, with the reasons. */
  endTokens: EndToken[];
  /** Bytes of the key-value cache, which all sequences share. */
  kvBytes: number;
  /** Element types of the key-value cache. */
  kvTypes: { keys: KvType; values: KvType };
  /** Attention sparsity in use, as in `LoadOptions.attention`. */
  attention: string;
  /** Bytes of wasm memory after loading. */
  memoryBytes: number;
  /** Instruction set of the kernels. */
  simd: "simd128" | "relaxed-simd" | "scalar";
  /** Number of threads, including the engine's own. */
  threads: number;
  /** Decode modes that the model supports. */
  decodeModes: string[];
  /** Decode mode that `"auto"` selects. */
  defaultDecodeMode: string;
  /** True if the model has a chat template. */
  chat: boolean;
  /** Number of positions of the model's diffusion blocks; `null` if it has none. */
  blockSize: number | null;
  /** Id of the MASK token; `null` if the model has none. */
  maskTokenId: number | null;
  /** How the drafter was read; `null` if there is none. */
  drafter: string | null;
  /** WebAssembly module in use, such as `"threads-relaxed"` or `"single-simd128"`. */
  artifact: string;
  /**
   * The same value as `artifact`, under its former spelling.
   *
   * @deprecated Read `artifact`. The next release removes this field.
   */
  artefact: string;
  /** Reasons for the number of threads, the SIMD instructions and the cache in use. */
  why: { threads: string; simd: string; cache: string };
  /** Warnings from loading, such as a damaged cache entry. */
  notes: string[];
  /** The files that were loaded. */
  files: LoadedFile[];
}

/** A token that ends a text. */
export interface EndToken {
  /** Its id. */
  id: number;
  /** Its name; `null` if the model has no tokenizer. */
  token: string | null;
  /** Why: the model's files state it, its name is known, or `stopTokens` has it. */
  reason: "stated" | "named" | "asked";
}

/** A file that was loaded. */
export interface LoadedFile {
  /** Name of the file. */
  name: string;
  /** Size in bytes. */
  bytes: number;
  /** True if the file came from the browser's cache. */
  cached: boolean;
  /** SHA-256 in hexadecimal; `null` if neither the cache nor the caller needed it. */
  sha256: string | null;
}
