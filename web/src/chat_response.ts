/** Conversion of the engine's parts to OpenAI's chat responses. */

import type {
  ChatAnswer,
  ChatCompletion,
  ChatCompletionChunk,
  ChatCompletionParams,
  ChatFinishReason,
  ChatLogprob,
  ChatLogprobs,
  ChatTimings,
  ChatToolCall,
  ChatToolCallDelta,
  ChatUsage,
} from "./chat_types.js";
import type { FinishReason } from "./bindings.js";
import type { WirePart } from "./protocol.js";
import { randomId } from "./random_id.js";
import type { Stats, Token, ToolCallPart } from "./types.js";

/** Builds the response to one chat request. */
export class ChatResponse {
  readonly #envelope;
  readonly #withLogprobs: boolean;
  readonly #withUsage: boolean;
  readonly #replaces: boolean;

  constructor(model: string, params: ChatCompletionParams) {
    const created = Math.floor(Date.now() / 1000);
    this.#envelope = { id: `chatcmpl-${randomId()}`, created, model };
    this.#withLogprobs = params.logprobs ?? false;
    this.#withUsage = params.stream_options?.include_usage ?? false;
    this.#replaces = params.diffusing ?? false;
  }

  /** Collects all parts into one answer. */
  async complete(parts: AsyncIterable<WirePart>): Promise<ChatCompletion> {
    const tokens: Token[] = [];
    const calls: ChatToolCall[] = [];
    let text = "";
    let reasoning = "";
    let last: WirePart | undefined;
    for await (const part of parts) {
      tokens.push(...part.tokens);
      for (const call of part.toolCalls) addCall(calls, call);
      text += part.text;
      reasoning += part.reasoning;
      last = part;
    }
    const { stats, finishReason } = last as WirePart;
    const message: ChatAnswer = {
      role: "assistant",
      content: calls.length ? text || null : text,
      ...(reasoning ? { reasoning_content: reasoning } : {}),
      ...(calls.length ? { tool_calls: calls } : {}),
      refusal: null,
    };
    const choice = { index: 0, message, logprobs: this.#logprobsContent(tokens) } as const;
    const finish_reason = chatFinishReason(finishReason, calls.length > 0) ?? "stop";
    return {
      ...this.#envelope,
      object: "chat.completion",
      choices: [{ ...choice, finish_reason }],
      usage: chatUsage(stats),
      timings: chatTimings(stats),
    };
  }

  /** Converts each part to a chunk. The first chunk has the role, the last one the usage, if any. */
  async *chunks(
    parts: AsyncIterable<WirePart>,
  ): AsyncGenerator<ChatCompletionChunk, void, undefined> {
    yield this.#chunk({ role: "assistant", content: "" }, [], null);
    let calls = false;
    for await (const part of parts) {
      const { text, reasoning, toolCalls, tokens, finishReason, stats } = this.#shown(part);
      calls ||= toolCalls.length > 0;
      const replaced = this.#replaces && part.snapshot !== null;
      const news = replaced || Boolean(text || reasoning || toolCalls.length);
      const delta = {
        ...(reasoning ? { reasoning_content: reasoning } : {}),
        ...(text || replaced || !news ? { content: text } : {}),
        ...(toolCalls.length ? { tool_calls: toolCalls.map(callDelta) } : {}),
      };
      if (news || (this.#withLogprobs && tokens.length)) yield this.#chunk(delta, tokens, null);
      if (!finishReason) continue;
      yield this.#chunk({}, [], chatFinishReason(finishReason, calls));
      const [usage, timings] = [chatUsage(stats), chatTimings(stats)];
      if (this.#withUsage) yield { ...this.#chunkEnvelope(), choices: [], usage, timings };
    }
  }

  /** Returns a part as its chunk shows it: with the whole output instead of what is new, if asked for. */
  #shown(part: WirePart): WirePart {
    if (!this.#replaces) return part;
    return { ...part, text: "", reasoning: "", ...part.snapshot };
  }

  #chunkEnvelope() {
    const object = "chat.completion.chunk" as const;
    return { ...this.#envelope, object, ...(this.#withUsage ? { usage: null } : {}) };
  }

  #chunk(
    delta: ChatCompletionChunk["choices"][number]["delta"],
    tokens: Token[],
    finish_reason: ChatFinishReason | null,
  ): ChatCompletionChunk {
    const logprobs = tokens.length ? this.#logprobsContent(tokens) : null;
    return { ...this.#chunkEnvelope(), choices: [{ index: 0, delta, logprobs, finish_reason }] };
  }

  #logprobsContent(tokens: Token[]): ChatLogprobs | null {
    if (!this.#withLogprobs) return null;
    const content = tokens.map((token) => ({
      ...chatLogprob({ text: token.text ?? "", logprob: token.logprob ?? 0 }),
      top_logprobs: (token.top ?? []).map(chatLogprob),
    }));
    return { content, refusal: null };
  }
}

/** Adds a part of a call to the calls so far. */
function addCall(calls: ChatToolCall[], { index, id, name, arguments: more }: ToolCallPart): void {
  const begun = calls[index];
  if (begun) begun.function.arguments += more;
  else {
    const called = { name: name ?? "", arguments: more };
    calls[index] = { id: id ?? "", type: "function", function: called };
  }
}

function callDelta({ index, id, name, arguments: more }: ToolCallPart): ChatToolCallDelta {
  if (id === undefined || name === undefined) return { index, function: { arguments: more } };
  return { index, id, type: "function", function: { name, arguments: more } };
}

/** Returns OpenAI's name of a reason, of an answer with or without calls. */
function chatFinishReason(reason: FinishReason | null, calls: boolean): ChatFinishReason | null {
  if (reason === null || reason === "length") return reason;
  return calls && reason === "stop" ? "tool_calls" : "stop";
}

function chatUsage({ tokens, promptTokens, cachedTokens, ...drafts }: Stats): ChatUsage {
  const prompt_tokens = promptTokens ?? 0;
  const [drafted, accepted] = [drafts.draftedTokens ?? 0, drafts.acceptedTokens ?? 0];
  const completion_tokens_details = {
    accepted_prediction_tokens: accepted,
    rejected_prediction_tokens: drafted - accepted,
  };
  return {
    prompt_tokens,
    completion_tokens: tokens,
    total_tokens: prompt_tokens + tokens,
    prompt_tokens_details: { cached_tokens: cachedTokens ?? 0 },
    ...(drafted ? { completion_tokens_details } : {}),
  };
}

/** Returns the statistics under the names of `wf-run serve`. */
function chatTimings(stats: Stats): ChatTimings {
  const drafts = { draft_n: stats.draftedTokens, draft_n_accepted: stats.acceptedTokens };
  return {
    first_token_seconds: (stats.timeToFirstToken ?? 0) / 1000,
    prefill_tokens_per_second: stats.prefillTokensPerSecond ?? 0,
    decode_tokens_per_second: stats.tokensPerSecond ?? 0,
    forward_passes: stats.passes ?? 0,
    tokens_per_pass: stats.tokensPerPass ?? 0,
    cached_tokens: stats.cachedTokens ?? 0,
    ...(stats.draftedTokens ? (drafts as { draft_n: number; draft_n_accepted: number }) : {}),
  };
}

/** Converts a log-probability. JSON has no −∞; OpenAI writes −9999. */
function chatLogprob({ text, logprob }: { text: string; logprob: number }): ChatLogprob {
  const bytes = text.includes("\uFFFD") ? null : [...new TextEncoder().encode(text)];
  return { token: text, logprob: Math.max(logprob, -9999), bytes };
}
