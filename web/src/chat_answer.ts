import type {
  ChatCompletion,
  ChatCompletionChunk,
  ChatCompletionParams,
  ChatFinishReason,
  ChatLogprob,
  ChatLogprobs,
  ChatUsage,
} from "./chat_types.js";
import type { FinishReason } from "./glue.js";
import type { WirePart } from "./protocol.js";
import type { Stats, Token } from "./types.js";

/** Puts parts into OpenAI's shapes. */
export class Answer {
  readonly #envelope;
  readonly #logprobs: boolean;
  readonly #usage: boolean;

  constructor(model: string, params: ChatCompletionParams) {
    const created = Math.floor(Date.now() / 1000);
    this.#envelope = { id: `chatcmpl-${random()}`, created, model };
    this.#logprobs = params.logprobs ?? false;
    this.#usage = params.stream_options?.include_usage ?? false;
  }

  /** All parts as one answer. */
  async whole(parts: AsyncIterable<WirePart>): Promise<ChatCompletion> {
    const tokens: Token[] = [];
    let content = "";
    let last: WirePart | undefined;
    for await (const part of parts) {
      tokens.push(...part.tokens);
      content += part.text;
      last = part;
    }
    const { stats, finishReason } = last as WirePart;
    const message = { role: "assistant", content, refusal: null } as const;
    const choice = { index: 0, message, logprobs: this.#logprob(tokens) } as const;
    return {
      ...this.#envelope,
      object: "chat.completion",
      choices: [{ ...choice, finish_reason: reason(finishReason) ?? "stop" }],
      usage: usage(stats),
    };
  }

  /** Each part as a chunk; first the role, last the usage if it was asked for. */
  async *chunks(
    parts: AsyncIterable<WirePart>,
  ): AsyncGenerator<ChatCompletionChunk, void, undefined> {
    yield this.#chunk({ role: "assistant", content: "" }, [], null);
    for await (const { text, tokens, finishReason, stats } of parts) {
      if (text || (this.#logprobs && tokens.length))
        yield this.#chunk({ content: text }, tokens, null);
      if (!finishReason) continue;
      yield this.#chunk({}, [], reason(finishReason));
      if (this.#usage) yield { ...this.#around(), choices: [], usage: usage(stats) };
    }
  }

  #around() {
    const object = "chat.completion.chunk" as const;
    return { ...this.#envelope, object, ...(this.#usage ? { usage: null } : {}) };
  }

  #chunk(
    delta: ChatCompletionChunk["choices"][number]["delta"],
    tokens: Token[],
    finish_reason: ChatFinishReason | null,
  ): ChatCompletionChunk {
    const logprobs = tokens.length ? this.#logprob(tokens) : null;
    return { ...this.#around(), choices: [{ index: 0, delta, logprobs, finish_reason }] };
  }

  #logprob(tokens: Token[]): ChatLogprobs | null {
    if (!this.#logprobs) return null;
    const content = tokens.map((token) => ({
      ...logprob({ text: token.text ?? "", logprob: token.logprob ?? 0 }),
      top_logprobs: (token.top ?? []).map(logprob),
    }));
    return { content, refusal: null };
  }
}

/** `crypto.randomUUID` is missing in pages without TLS. */
function random(): string {
  const numbers = crypto.getRandomValues(new Uint32Array(4));
  return [...numbers].map((number) => number.toString(36)).join("");
}

/** OpenAI's name for a reason. */
function reason(reason: FinishReason | null): ChatFinishReason | null {
  return reason === null ? null : reason === "length" ? "length" : "stop";
}

function usage({ tokens, promptTokens, cachedTokens }: Stats): ChatUsage {
  const prompt_tokens = promptTokens ?? 0;
  return {
    prompt_tokens,
    completion_tokens: tokens,
    total_tokens: prompt_tokens + tokens,
    prompt_tokens_details: { cached_tokens: cachedTokens ?? 0 },
  };
}

/** JSON has no −∞, and OpenAI says −9999. */
function logprob({ text, logprob }: { text: string; logprob: number }): ChatLogprob {
  const bytes = text.includes("\uFFFD") ? null : [...new TextEncoder().encode(text)];
  return { token: text, logprob: Math.max(logprob, -9999), bytes };
}
