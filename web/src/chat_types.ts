/** The shapes of OpenAI's chat API, as far as they mean something here. */

/** A message; content may be text, or OpenAI's list of text parts. */
export interface ChatMessage {
  role: "system" | "developer" | "user" | "assistant" | (string & {});
  content: string | { type: "text"; text: string }[];
}

/** A request. Decoding parameters are extensions, in snake_case as `wf-run serve` takes them. */
export interface ChatCompletionParams {
  messages: ChatMessage[];
  /** Ignored: there is one model. Answers name it. */
  model?: string;
  stream?: boolean | null;
  stream_options?: { include_usage?: boolean } | null;
  max_completion_tokens?: number | null;
  max_tokens?: number | null;
  temperature?: number | null;
  top_p?: number | null;
  frequency_penalty?: number | null;
  presence_penalty?: number | null;
  logit_bias?: Record<string, number> | null;
  logprobs?: boolean | null;
  top_logprobs?: number | null;
  seed?: number | null;
  stop?: string | string[] | null;
  n?: 1 | null;
  top_k?: number | null;
  min_p?: number | null;
  repetition_penalty?: number | null;
  decode_mode?: "auto" | "ar" | "greedy" | "iterative" | "adaptive" | "verify" | null;
  threshold?: number | null;
  block_size?: number | null;
  small_block_size?: number | null;
  selector?: string | null;
  factor?: number | null;
  entropy_bound?: number | null;
  slots_per_pass?: number | null;
  draft?: string | null;
  draft_length?: number | null;
  mask_token_id?: number | null;
  commit?: string | null;
  sub_block_cache?: boolean | null;
}

/** A whole answer. */
export interface ChatCompletion extends Envelope<"chat.completion"> {
  choices: [
    {
      index: 0;
      message: { role: "assistant"; content: string; refusal: null };
      logprobs: ChatLogprobs | null;
      finish_reason: ChatFinishReason;
    },
  ];
  usage: ChatUsage;
}

/** A piece of a streamed answer; the one with the usage has no choices. */
export interface ChatCompletionChunk extends Envelope<"chat.completion.chunk"> {
  choices: {
    index: 0;
    delta: { role?: "assistant"; content?: string };
    logprobs: ChatLogprobs | null;
    finish_reason: ChatFinishReason | null;
  }[];
  usage?: ChatUsage | null;
}

interface Envelope<Kind extends string> {
  id: string;
  object: Kind;
  /** Seconds since 1970. */
  created: number;
  model: string;
}

/** The answer is complete, or as long as it was allowed to be. */
export type ChatFinishReason = "stop" | "length";

/** Tokens of a request. */
export interface ChatUsage {
  prompt_tokens: number;
  completion_tokens: number;
  total_tokens: number;
  prompt_tokens_details: { cached_tokens: number };
}

/** Log-probabilities of the answer's tokens. */
export interface ChatLogprobs {
  content: (ChatLogprob & { top_logprobs: ChatLogprob[] })[];
  refusal: null;
}

/** A token's log-probability. */
export interface ChatLogprob {
  token: string;
  logprob: number;
  /** UTF-8; `null` where the token is only a part of a character. */
  bytes: number[] | null;
}
