/** The entry points of OpenAI's chat API. */

import { chatRequest } from "./chat_request.js";
import { ChatResponse } from "./chat_response.js";
import type { ChatCompletion, ChatCompletionChunk, ChatCompletionParams } from "./chat_types.js";
import type { WorkerConnection } from "./connection.js";
import { refuseUnknown } from "./option_names.js";

/** The object that OpenAI's clients call `chat`. */
export class Chat {
  /** Chat completions. */
  readonly completions: Completions;

  /** @internal */
  constructor(connection: WorkerConnection, model: string) {
    this.completions = new Completions(connection, model);
  }
}

interface RequestOptions {
  /** Cancels generation; the call, or the stream, rejects with the signal's reason. */
  signal?: AbortSignal;
}

type StreamingParams = ChatCompletionParams & { stream: true };
type CompleteParams = ChatCompletionParams & { stream?: false | null };

/** The object that OpenAI's clients call `chat.completions`. */
export class Completions {
  readonly #connection: WorkerConnection;
  readonly #model: string;

  /** @internal */
  constructor(connection: WorkerConnection, model: string) {
    this.#connection = connection;
    this.#model = model;
  }

  /**
   * Generates the next message of a conversation, through the model's chat template.
   *
   * @param options - `signal`: cancels the request
   * @returns the answer, or with `stream: true` its chunks
   * @throws {@link WrinkleFreeError} `"unsupported"` for a parameter that this package does not
   * have, `"bad_request"` for an invalid one, `"no_chat_template"` if the model has no template, or
   * the errors of {@link Engine.generate}
   * @example
   * ```ts
   * const messages = [{ role: "user", content: "Tell me a story about a fox." }];
   * for await (const chunk of await engine.chat.completions.create({ messages, stream: true })) {
   *   console.log(chunk.choices[0]?.delta.content ?? "");
   * }
   * ```
   */
  create(
    params: StreamingParams,
    options?: RequestOptions,
  ): Promise<AsyncGenerator<ChatCompletionChunk>>;
  create(params: CompleteParams, options?: RequestOptions): Promise<ChatCompletion>;
  create(
    params: ChatCompletionParams,
    options?: RequestOptions,
  ): Promise<ChatCompletion | AsyncGenerator<ChatCompletionChunk>>;
  async create(params: ChatCompletionParams, options: RequestOptions = {}) {
    refuseUnknown("chat.completions.create", options, ["signal"]);
    const { signal } = options;
    const parts = this.#connection.stream(chatRequest(params), signal);
    const response = new ChatResponse(this.#model, params);
    return params.stream ? response.chunks(parts) : response.complete(parts);
  }
}
