/// <reference lib="esnext.disposable" preserve="true" />
/** The engine as the package's users see it. */

import { Chat } from "./chat.js";
import type { WorkerConnection } from "./connection.js";
import { WrinkleFreeError } from "./errors.js";
import type { WirePart } from "./protocol.js";
import { refuseUnknown, withOptionNames } from "./option_names.js";
import { GENERATE_OPTIONS, promptRequest, tokenIds } from "./request.js";
import type {
  EngineInfo,
  GenerateOptions,
  LoadOptions,
  ModelSource,
  Part,
  Prompt,
  StreamOptions,
} from "./types.js";

/** Type of the function `load`. */
export type LoadFunction = (source?: ModelSource, options?: LoadOptions) => Promise<Engine>;

/**
 * Former name of {@link LoadFunction}.
 *
 * @deprecated Use {@link LoadFunction}. The next release removes this name.
 */
export type Load = LoadFunction;

/**
 * A loaded model. Requests that run at the same time share the engine's forward passes.
 *
 * All methods that reject do so with a {@link WrinkleFreeError}, or with the `reason` of the signal
 * that cancelled the call.
 */
export class Engine {
  /**
   * OpenAI's chat API: `chat.completions.create`.
   *
   * @example
   * ```ts
   * const messages = [{ role: "user", content: "What is the opposite of hot?" }];
   * const answer = await engine.chat.completions.create({ messages, temperature: 0 });
   * console.log(answer.choices[0].message.content);
   * ```
   */
  readonly chat: Chat;
  readonly #connection: WorkerConnection;
  readonly #info: EngineInfo;

  /** @internal */
  constructor(connection: WorkerConnection, info: EngineInfo) {
    this.#connection = connection;
    this.#info = info;
    this.chat = new Chat(connection, info.name);
  }

  /**
   * Generates an answer to a prompt or a conversation. A text goes through the model's chat template,
   * if it has one and `raw` is not set.
   *
   * @returns the text of the answer. The reasoning before it and calls of tools are in the parts of
   * {@link Engine.stream} and the messages of {@link Engine.chat}
   * @throws {@link WrinkleFreeError} such as `"context_length_exceeded"`,
   * `"bad_decoding_parameter"`, `"bad_request"`, `"crashed"` or `"disposed"`
   * @example
   * ```ts
   * const story = await engine.generate("Tell me a story about a fox.", { maxTokens: 200 });
   * ```
   */
  async generate(prompt: Prompt, options: GenerateOptions = {}): Promise<string> {
    if ("diffusing" in options) {
      const message = "diffusing: only `stream` has snapshots: leave it out";
      throw new WrinkleFreeError("bad_request", message);
    }
    let text = "";
    for await (const part of this.stream(prompt, { watch: false, ...options })) text += part.text;
    return text;
  }

  /**
   * Generates an answer to a prompt or a conversation and yields it as it is computed. Leaving the
   * loop early cancels the request.
   *
   * @throws the errors of {@link Engine.generate}
   * @example
   * ```ts
   * for await (const part of engine.stream("Tell me a story about a fox.")) {
   *   console.log(part.text, part.stats.tokensPerSecond);
   * }
   * ```
   */
  async *stream(
    prompt: Prompt,
    options: StreamOptions = {},
  ): AsyncGenerator<Part, void, undefined> {
    const request = promptRequest(prompt, { watch: true, ...options });
    try {
      for await (const part of this.#connection.stream(request, options.signal)) yield toPart(part);
    } catch (error) {
      throw withOptionNames(error, GENERATE_OPTIONS);
    }
  }

  /**
   * Returns the token ids of a text.
   *
   * @param options - `special`: adds the tokens that frame a text for this model, such as the one
   * that begins it (default `false`)
   * @throws {@link WrinkleFreeError} `"no_tokenizer"` if the model's files contain none
   * @example
   * ```ts
   * const ids = await engine.tokenize("a small fox");
   * ```
   */
  async tokenize(text: string, options: { special?: boolean } = {}): Promise<number[]> {
    if (typeof text !== "string") {
      throw new WrinkleFreeError("bad_request", "tokenize: the text must be a string");
    }
    refuseUnknown("tokenize", options, ["special"]);
    const special = options.special ?? false;
    return this.#connection.call({ type: "tokenize", text, special });
  }

  /**
   * Returns the text of token ids. Control tokens have none; parts of characters become U+FFFD.
   *
   * @throws {@link WrinkleFreeError} `"bad_request"` for something that is not a list of ids
   * @example
   * ```ts
   * const text = await engine.detokenize(await engine.tokenize("a small fox"));
   * ```
   */
  async detokenize(tokens: readonly number[] | Uint32Array): Promise<string> {
    const ids = tokenIds("tokens", [...tokens]);
    return this.#connection.call({ type: "detokenize", tokens: ids });
  }

  /**
   * Returns the number of tokens of a prompt, with the chat template and the tokens that frame it, as
   * {@link Engine.generate} would read it with these options.
   *
   * @throws the errors of {@link Engine.generate} that concern the prompt
   * @example
   * ```ts
   * const left = engine.info().context - (await engine.countTokens(messages));
   * ```
   */
  async countTokens(prompt: Prompt, options: GenerateOptions = {}): Promise<number> {
    const request = promptRequest(prompt, options);
    const tokens = await this.#connection.call<number[]>({ type: "encode", request });
    return tokens.length;
  }

  /** Returns a description of the model and of the configuration it runs in. */
  info(): EngineInfo {
    return structuredClone(this.#info);
  }

  /**
   * Ends the engine's threads and frees its memory. Calls in progress, and all later ones, reject
   * with `"disposed"`. Disposing twice is allowed.
   */
  async dispose(): Promise<void> {
    const disposed = new WrinkleFreeError("disposed", "the engine was disposed");
    // A crashed engine has nothing left to free.
    await this.#connection.call({ type: "dispose" }).catch(() => {});
    this.#connection.close(disposed);
  }

  /** Disposes the engine at the end of a block: `await using engine = await load();`. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.dispose();
  }
}

/** Converts a part to its public form. A cancelled stream throws, so its reason never occurs. */
function toPart({ id: _, finishReason, ...part }: WirePart): Part {
  return { ...part, finishReason: finishReason as Part["finishReason"] };
}
