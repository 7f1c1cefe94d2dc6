import { Chat } from "./chat.js";
import type { ChatMessage } from "./chat_types.js";
import type { Connection } from "./connection.js";
import { WrinkleFreeError } from "./errors.js";
import { promptRequest } from "./request.js";
import { part } from "./part.js";
import type {
  EngineInfo,
  GenerateOptions,
  LoadOptions,
  ModelSource,
  Part,
  StreamOptions,
} from "./types.js";

/** Loads a model; without a source the small one in this package. */
export type Load = (source?: ModelSource, options?: LoadOptions) => Promise<Engine>;

/** A loaded model. Requests that run at once share the engine's forward passes. */
export class Engine {
  /** OpenAI's chat API: `chat.completions.create`. */
  readonly chat: Chat;
  readonly #connection: Connection;
  readonly #info: EngineInfo;

  /** @internal */
  constructor(connection: Connection, info: EngineInfo) {
    this.#connection = connection;
    this.#info = info;
    this.chat = new Chat(connection, info.name);
  }

  /**
   * Answers a prompt; through the model's chat template if it has one, unless `raw` is set.
   *
   * Rejects with a {@link WrinkleFreeError}, or with the signal's reason.
   */
  async generate(prompt: string, options: GenerateOptions = {}): Promise<string> {
    let text = "";
    for await (const part of this.stream(prompt, { watch: false, ...options })) text += part.text;
    return text;
  }

  /**
   * Answers a prompt, or a conversation, piece by piece. Leaving the loop early ends the request.
   *
   * Throws what `generate` rejects with.
   */
  async *stream(
    prompt: string | readonly ChatMessage[],
    options: StreamOptions = {},
  ): AsyncGenerator<Part, void, undefined> {
    const request = promptRequest(prompt, { watch: true, ...options });
    for await (const wire of this.#connection.stream(request, options.signal)) yield part(wire);
  }

  /**
   * The ids of a text's tokens.
   *
   * @param options - `special`: with the tokens that frame a text for this model, such as the one
   * that begins it
   */
  async tokenize(text: string, options: { special?: boolean } = {}): Promise<number[]> {
    if (typeof text !== "string") {
      throw new WrinkleFreeError("bad_request", "tokenize: a text is wanted");
    }
    const special = options.special ?? false;
    return this.#connection.call({ type: "tokenize", text, special });
  }

  /** What runs, and why. */
  info(): EngineInfo {
    return structuredClone(this.#info);
  }

  /** Ends the engine's threads and frees its memory. What still runs rejects with `"disposed"`. */
  async dispose(): Promise<void> {
    const disposed = new WrinkleFreeError("disposed", "the engine was disposed");
    // A broken engine has nothing left to free.
    await this.#connection.call({ type: "dispose" }).catch(() => {});
    this.#connection.close(disposed);
  }
}
