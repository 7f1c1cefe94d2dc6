/** The types of OpenAI's chat API, as far as this package supports it. */

import type { GenerateOptions } from "./types.js";

/** A message of a conversation. */
export interface ChatMessage {
  /** Author of the message. `"developer"` is passed to the chat template as `"system"`. */
  role: "system" | "developer" | "user" | "assistant" | "tool" | (string & {});
  /** Reasoning before an assistant's answer, for templates that keep it. */
  reasoning_content?: string;
  /**
   * The text, or OpenAI's list of text parts, which are joined with newlines. `null` or missing in a
   * message of the assistant that only calls tools.
   */
  content?: string | { type: "text"; text: string }[] | null;
  /** Calls of the assistant. */
  tool_calls?: ChatMessageCall[] | null;
  /** Call of the assistant, in OpenAI's older form. */
  function_call?: ChatCalledFunction | null;
  /** Id of the call whose result a message of the role `"tool"` is. */
  tool_call_id?: string | null;
  /** Name of the author or of the called function, for templates that use it. */
  name?: string | null;
}

/** A call in an earlier message. {@link ChatToolCall} has this form. */
export interface ChatMessageCall {
  /** Id of the call. */
  id?: string;
  type?: "function";
  /** The function that was called. */
  function: ChatCalledFunction;
}

/** A called function. */
export interface ChatCalledFunction {
  /** Name of the function. */
  name: string;
  /** Arguments: an object, or a text, which is JSON unless a token limit has cut it. */
  arguments?: string | Record<string, unknown>;
}

/** A function that the model may call. */
export interface ChatTool {
  type: "function";
  function: {
    /** Name of the function: up to 64 letters, digits, `_` and `-`. */
    name: string;
    /** Description for the model. */
    description?: string;
    /** JSON schema of the arguments. Without it the model may write any object. */
    parameters?: Record<string, unknown>;
    /** Only `false` is supported: arguments that match the schema need a grammar. */
    strict?: false | null;
  };
}

/** `"auto"` or `"none"`: a call that must happen needs a grammar, which this package does not have. */
export type ChatToolChoice = "auto" | "none";

/**
 * A chat request. Besides OpenAI's fields it takes the decoding options of {@link GenerateOptions}
 * in snake_case, as `wf-run serve` does. A field set to `null` counts as missing.
 */
export interface ChatCompletionParams {
  /** The conversation, at least one message. */
  messages: ChatMessage[];
  /** Ignored: an engine has one model. Answers contain its name. */
  model?: string;
  /** Streams the answer as chunks. */
  stream?: boolean | null;
  /** `include_usage`: adds a last chunk with the token counts. */
  stream_options?: { include_usage?: boolean } | null;
  /** Maximum number of new tokens (default 512). */
  max_completion_tokens?: number | null;
  /** Former name of `max_completion_tokens`, which takes precedence. */
  max_tokens?: number | null;
  /** See {@link GenerateOptions.temperature}. */
  temperature?: number | null;
  /** See {@link GenerateOptions.topP}. */
  top_p?: number | null;
  /** See {@link GenerateOptions.frequencyPenalty}. */
  frequency_penalty?: number | null;
  /** See {@link GenerateOptions.presencePenalty}. */
  presence_penalty?: number | null;
  /** Values added to the logits of tokens, by token id. */
  logit_bias?: Record<string, number> | null;
  /** Reports the log-probability of each token. */
  logprobs?: boolean | null;
  /** Number of most likely tokens to report next to each token, with `logprobs`. */
  top_logprobs?: number | null;
  /** See {@link GenerateOptions.seed}. */
  seed?: number | null;
  /** String, or strings, that end the answer. */
  stop?: string | string[] | null;
  /** Form of the answer; only `{ type: "text" }` is supported. */
  response_format?: { type: "text" } | null;
  /** Number of answers; only 1 is supported. */
  n?: 1 | null;
  /** See {@link GenerateOptions.topK}. */
  top_k?: number | null;
  /** See {@link GenerateOptions.minP}. */
  min_p?: number | null;
  /** See {@link GenerateOptions.repetitionPenalty}. */
  repetition_penalty?: number | null;
  /** See {@link GenerateOptions.decodeMode}. */
  decode_mode?: "auto" | "ar" | "greedy" | "iterative" | "adaptive" | "verify" | null;
  /** See {@link GenerateOptions.threshold}. */
  threshold?: number | null;
  /** See {@link GenerateOptions.blockSize}. */
  block_size?: number | null;
  /** See {@link GenerateOptions.smallBlockSize}. */
  small_block_size?: number | null;
  /** See {@link GenerateOptions.selector}. */
  selector?: string | null;
  /** See {@link GenerateOptions.factor}. */
  factor?: number | null;
  /** See {@link GenerateOptions.entropyBound}. */
  entropy_bound?: number | null;
  /** See {@link GenerateOptions.slotsPerPass}. */
  slots_per_pass?: number | null;
  /**
   * Each chunk of a stream has the whole answer so far, which replaces the one before. `"░"` stands for
   * a token that block diffusion has not decided.
   */
  diffusing?: boolean | null;
  /** See {@link GenerateOptions.enableThinking}. */
  enable_thinking?: boolean | null;
  /** See {@link GenerateOptions.reasoningEffort}. */
  reasoning_effort?: GenerateOptions["reasoningEffort"] | null;
  /** See {@link GenerateOptions.thinkingBudget}. */
  thinking_budget?: number | null;
  /** See {@link GenerateOptions.preserveThinking}. */
  preserve_thinking?: boolean | null;
  /** See {@link GenerateOptions.chatTemplateKwargs}. */
  chat_template_kwargs?: Record<string, unknown> | null;
  /** See {@link GenerateOptions.tools}. */
  tools?: readonly ChatTool[] | null;
  /** See {@link GenerateOptions.toolChoice}. */
  tool_choice?: ChatToolChoice | null;
  /** See {@link GenerateOptions.parallelToolCalls}. */
  parallel_tool_calls?: true | null;
  /** See {@link GenerateOptions.documents}. */
  documents?: readonly Readonly<Record<string, unknown>>[] | null;
  /** See {@link GenerateOptions.draft}. */
  draft?: string | null;
  /** See {@link GenerateOptions.draftLength}. */
  draft_length?: number | null;
  /** See {@link GenerateOptions.maskTokenId}. */
  mask_token_id?: number | null;
  /** See {@link GenerateOptions.commit}. */
  commit?: string | null;
  /** See {@link GenerateOptions.subBlockCache}. */
  sub_block_cache?: boolean | null;
}

/** A complete answer. */
export interface ChatCompletion extends Envelope<"chat.completion"> {
  /** The answer; always one choice. */
  choices: [
    {
      index: 0;
      message: ChatAnswer;
      logprobs: ChatLogprobs | null;
      finish_reason: ChatFinishReason;
    },
  ];
  /** Token counts. */
  usage: ChatUsage;
  /** Times of the answer, which OpenAI's API lacks. */
  timings: ChatTimings;
}

/** Message of the model. It can be the next message of the conversation as it is. */
export interface ChatAnswer {
  role: "assistant";
  /** Text of the answer; `null` if it only calls tools. */
  content: string | null;
  /** Reasoning before the answer, if there is any. */
  reasoning_content?: string;
  /** Calls of tools, if there are any. */
  tool_calls?: ChatToolCall[];
  refusal: null;
}

/** A call of a tool. */
export interface ChatToolCall {
  /** Random id, by which the message with the result names the call. */
  id: string;
  type: "function";
  /** The function's name, and its arguments: JSON, unless the token limit has cut it. */
  function: { name: string; arguments: string };
}

/** A part of a call of a tool. The first part of a call has its id, type and name. */
export interface ChatToolCallDelta {
  /** Number of the call in the answer, from 0. */
  index: number;
  id?: string;
  type?: "function";
  function: { name?: string; arguments: string };
}

/** A chunk of a streamed answer. */
export interface ChatCompletionChunk extends Envelope<"chat.completion.chunk"> {
  /** The new text; empty in the chunk that carries the usage. */
  choices: {
    index: 0;
    delta: {
      role?: "assistant";
      content?: string;
      reasoning_content?: string;
      tool_calls?: ChatToolCallDelta[];
    };
    logprobs: ChatLogprobs | null;
    finish_reason: ChatFinishReason | null;
  }[];
  /** Token counts in the last chunk, if `stream_options.include_usage` is set. */
  usage?: ChatUsage | null;
  /** Times of the answer, next to `usage`. */
  timings?: ChatTimings;
}

interface Envelope<Kind extends string> {
  /** Random id, the same in all chunks of an answer. */
  id: string;
  object: Kind;
  /** Unix time in seconds. */
  created: number;
  /** Name of the model. */
  model: string;
}

/**
 * `"stop"`: the answer is complete. `"tool_calls"`: so it is, and it calls tools. `"length"`: it reached
 * the token limit.
 */
export type ChatFinishReason = "stop" | "tool_calls" | "length";

/** Token counts of a request. */
export interface ChatUsage {
  /** Number of prompt tokens. */
  prompt_tokens: number;
  /** Number of generated tokens. */
  completion_tokens: number;
  /** Sum of both. */
  total_tokens: number;
  /** `cached_tokens`: number of prompt tokens found in the prefix cache. */
  prompt_tokens_details: { cached_tokens: number };
  /** Drafted tokens that were right and wrong, if there were drafts. */
  completion_tokens_details?: {
    accepted_prediction_tokens: number;
    rejected_prediction_tokens: number;
  };
}

/** Times of an answer, named as in the answers of `wf-run serve`. */
export interface ChatTimings {
  /** Seconds from the request's arrival to its first token. */
  first_token_seconds: number;
  /** Computed prompt tokens per second of the passes before the first token. */
  prefill_tokens_per_second: number;
  /** Tokens per second after the first token. */
  decode_tokens_per_second: number;
  /** Number of forward passes. */
  forward_passes: number;
  /** Generated tokens per forward pass. */
  tokens_per_pass: number;
  /** Number of prompt tokens found in the prefix cache. */
  cached_tokens: number;
  /** Number of drafted tokens, if there were any. */
  draft_n?: number;
  /** Number of those that were right. */
  draft_n_accepted?: number;
}

/** Log-probabilities of the answer's tokens. */
export interface ChatLogprobs {
  /** One entry per token, with the most likely tokens at its position. */
  content: (ChatLogprob & { top_logprobs: ChatLogprob[] })[];
  refusal: null;
}

/** Log-probability of one token. */
export interface ChatLogprob {
  /** Text of the token. */
  token: string;
  /** Natural logarithm of the probability, at least −9999. */
  logprob: number;
  /** UTF-8 bytes; `null` if the token is only a part of a character. */
  bytes: number[] | null;
}
