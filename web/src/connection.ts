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
    const answer = new Promise<Answer>((resolve, reject) => {
      this.#calls.set(id, { resolve, reject });
      this.#thread.post({ ...call, id } satisfies ToWorker, transfer);
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
    const abort = () => queue.fail(signal?.reason);
    signal?.addEventListener("abort", abort);
    this.#streams.set(id, queue);
    this.#hold();
    let ended = false;
    try {
      this.#thread.post({ type: "generate", id, request } satisfies ToWorker);
      while (!ended) {
        const part = await queue.next();
        ended = part.finishReason !== null;
        yield part;
      }
    } finally {
      signal?.removeEventListener("abort", abort);
      // `false` after an error of the worker's: it knows of no such request then.
      const known = this.#streams.delete(id);
      if (known && !ended) this.#thread.post({ type: "cancel", id } satisfies ToWorker);
      this.#hold();
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
        return this.#onProgress(message.progress);
      case "parts":
        return message.parts.forEach((part) => this.#streams.get(part.id)?.push(part));
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
