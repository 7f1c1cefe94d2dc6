import { WrinkleFreeError, fromWire } from "./errors.js";
import type { Thread } from "./platform/platform.js";
import type { FromWorker, ToWorker, WirePart, WireRequest } from "./protocol.js";
import { Queue } from "./queue.js";
import type { Progress } from "./types.js";

type Answer = Extract<FromWorker, { type: "done" }>["value"];
type Unnumbered<T> = T extends { id: number } ? Omit<T, "id"> : never;
type Call = Exclude<Unnumbered<ToWorker>, { type: "generate" | "cancel" | "help" }>;

interface Pending {
  resolve(value: Answer): void;
  reject(error: unknown): void;
}

/** The page's end of the line to an engine's worker, and the keeper of its helpers. */
export class Connection {
  readonly #spawn: () => Thread;
  readonly #thread: Thread;
  readonly #helpers: Thread[] = [];
  readonly #onProgress: (progress: Progress) => void;
  readonly #calls = new Map<number, Pending>();
  readonly #streams = new Map<number, Queue<WirePart>>();
  #ids = 0;
  #closed: WrinkleFreeError | undefined;

  /** `spawn`: starts a worker. */
  constructor(spawn: () => Thread, onProgress: (progress: Progress) => void = () => {}) {
    this.#spawn = spawn;
    this.#onProgress = onProgress;
    this.#thread = this.#start();
    this.#thread.onMessage((message: FromWorker) => this.#receive(message));
  }

  /** Asks for something that has one answer. */
  async call<T extends Answer>(call: Call, transfer?: Transferable[]): Promise<T> {
    const id = this.#number();
    this.#post({ ...call, id }, transfer);
    const answer = new Promise<Answer>((resolve, reject) => {
      this.#calls.set(id, { resolve, reject });
    });
    this.#hold();
    return answer as Promise<T>;
  }

  /** Ends a `load` that is under way. */
  abort(): void {
    this.#thread.post({ type: "abort" } satisfies ToWorker);
  }

  /** Generates; ending the iteration early, or the signal, cancels the request. */
  async *stream(
    request: WireRequest,
    signal?: AbortSignal,
  ): AsyncGenerator<WirePart, void, undefined> {
    signal?.throwIfAborted();
    const id = this.#number();
    const queue = new Queue<WirePart>();
    this.#post({ type: "generate", id, request });
    this.#streams.set(id, queue);
    this.#hold();
    // At once: whoever aborts may never ask for another part.
    const abort = () => {
      queue.fail(signal?.reason);
      this.#cancel(id);
    };
    signal?.addEventListener("abort", abort);
    try {
      for (let ended = false; !ended;) {
        const part = await queue.next();
        ended = part.finishReason !== null;
        yield part;
      }
    } finally {
      signal?.removeEventListener("abort", abort);
      this.#cancel(id);
    }
  }

  /** Ends a request that the worker still knows. */
  #cancel(id: number): void {
    if (this.#streams.delete(id)) this.#post({ type: "cancel", id });
    this.#hold();
  }

  /** What cannot be sent is the caller's mistake. */
  #post(message: ToWorker, transfer?: Transferable[]): void {
    try {
      this.#thread.post(message, transfer);
    } catch (error) {
      const why = error instanceof Error ? error.message : String(error);
      throw new WrinkleFreeError("bad_request", why, { cause: error });
    }
  }

  /** Ends the workers; everything pending, and all that comes later, rejects with this error. */
  close(error: WrinkleFreeError): void {
    if (this.#closed) return;
    this.#closed = error;
    for (const { reject } of this.#calls.values()) reject(error);
    for (const queue of this.#streams.values()) queue.fail(error);
    this.#calls.clear();
    this.#streams.clear();
    for (const thread of [this.#thread, ...this.#helpers]) thread.terminate();
  }

  /** A worker without which there is no going on. */
  #start(): Thread {
    const thread = this.#spawn();
    thread.onBroken((message) => this.close(new WrinkleFreeError("crashed", message)));
    return thread;
  }

  #help(port: MessagePort): void {
    if (this.#closed) return;
    const helper = this.#start();
    helper.hold(false);
    helper.post({ type: "help", port } satisfies ToWorker, [port]);
    this.#helpers.push(helper);
  }

  #number(): number {
    if (this.#closed) throw this.#closed;
    return ++this.#ids;
  }

  /** In Node, an engine without work does not keep the process alive. */
  #hold(): void {
    this.#thread.hold(this.#calls.size + this.#streams.size > 0);
  }

  #receive(message: FromWorker): void {
    switch (message.type) {
      case "progress":
        return this.#tell(message.progress);
      case "parts":
        return message.parts.forEach((part) => this.#push(part));
      case "done":
        return this.#settle(message.id, (pending) => pending.resolve(message.value));
      case "failed":
        return this.#fail(message.id, fromWire(message.error));
      case "crashed":
        return this.close(fromWire(message.error));
      case "spawn":
        return this.#help(message.port);
    }
  }

  /** An error of the page's own listener ends the load. */
  #tell(progress: Progress): void {
    try {
      this.#onProgress(progress);
    } catch (error) {
      const why = error instanceof Error ? error.message : String(error);
      this.close(new WrinkleFreeError("bad_request", `onProgress: ${why}`, { cause: error }));
    }
  }

  #push(part: WirePart): void {
    this.#streams.get(part.id)?.push(part);
    // The worker is done with it, whether or not the page takes what is there.
    if (part.finishReason !== null && this.#streams.delete(part.id)) this.#hold();
  }

  #fail(id: number, error: WrinkleFreeError): void {
    const queue = this.#streams.get(id);
    this.#streams.delete(id);
    queue?.fail(error);
    this.#settle(id, (pending) => pending.reject(error));
  }

  #settle(id: number, how: (pending: Pending) => void): void {
    const pending = this.#calls.get(id);
    this.#calls.delete(id);
    this.#hold();
    if (pending) how(pending);
  }
}
