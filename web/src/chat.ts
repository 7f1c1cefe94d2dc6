import { chatRequest } from "./chat_request.js";
import { Answer } from "./chat_answer.js";
import type { ChatCompletion, ChatCompletionChunk, ChatCompletionParams } from "./chat_types.js";
import type { Connection } from "./connection.js";

/** What OpenAI's clients call `chat`. */
export class Chat {
  readonly completions: Completions;

  /** @internal */
  constructor(connection: Connection, model: string) {
    this.completions = new Completions(connection, model);
  }
}

interface RequestOptions {
  /** Ends generation; the call, or the stream, rejects with the signal's reason. */
  signal?: AbortSignal;
}

type Streamed = ChatCompletionParams & { stream: true };
type Whole = ChatCompletionParams & { stream?: false | null };

/** What OpenAI's clients call `chat.completions`. */
export class Completions {
  readonly #connection: Connection;
  readonly #model: string;

  /** @internal */
  constructor(connection: Connection, model: string) {
    this.#connection = connection;
    this.#model = model;
  }

  /**
   * Answers a conversation, through the model's chat template.
   *
   * Rejects with a {@link WrinkleFreeError}: `"unsupported"` for parameters that mean nothing
   * here; or with the signal's reason.
   */
  create(params: Streamed, options?: RequestOptions): Promise<AsyncGenerator<ChatCompletionChunk>>;
  create(params: Whole, options?: RequestOptions): Promise<ChatCompletion>;
  create(
    params: ChatCompletionParams,
    options?: RequestOptions,
  ): Promise<ChatCompletion | AsyncGenerator<ChatCompletionChunk>>;
  async create(params: ChatCompletionParams, { signal }: RequestOptions = {}) {
    const parts = this.#connection.stream(chatRequest(params), signal);
    const answer = new Answer(this.#model, params);
    return params.stream ? answer.chunks(parts) : answer.whole(parts);
  }
}
