/** Connection of the page to an engine's worker. */

import { WrinkleFreeError, fromWire, messageOf } from "./errors.js";
import type { WorkerHandle } from "./platform/platform.js";
import type { FromWorker, ToWorker, WirePart, WireRequest } from "./protocol.js";
import { AsyncQueue } from "./async_queue.js";
import type { Progress } from "./types.js";

type CallResult = Extract<FromWorker, { type: "done" }>["value"];
type WithoutId<T> = T extends { id: number } ? Omit<T, "id"> : never;
type Call = Exclude<WithoutId<ToWorker>, { type: "generate" | "cancel" | "joinPool" }>;

interface PendingCall {
  resolve(value: CallResult): void;
  reject(error: unknown): void;
}

/** The page's connection to an engine's worker. It also owns the workers of the thread pool. */
export class WorkerConnection {
  readonly #spawn: () => WorkerHandle;
  readonly #worker: WorkerHandle;
  readonly #poolWorkers: WorkerHandle[] = [];
  readonly #onProgress: (progress: Progress) => void;
  readonly #calls = new Map<number, PendingCall>();
  readonly #streams = new Map<number, AsyncQueue<WirePart>>();
  #lastId = 0;
  #closed: WrinkleFreeError | undefined;

  /** `spawn` starts a worker. */
  constructor(spawn: () => WorkerHandle, onProgress: (progress: Progress) => void = () => {}) {
    this.#spawn = spawn;
    this.#onProgress = onProgress;
    this.#worker = this.#start();
    this.#worker.onMessage((message: FromWorker) => this.#receive(message));
  }

  /** Sends a message that has one answer. */
  async call<T extends CallResult>(call: Call, transfer?: Transferable[]): Promise<T> {
    const id = this.#nextId();
    this.#post({ ...call, id }, transfer);
    const answer = new Promise<CallResult>((resolve, reject) => {
      this.#calls.set(id, { resolve, reject });
    });
    this.#updateKeepAlive();
    return answer as Promise<T>;
  }

  /** Cancels the `load` in progress. */
  abort(): void {
    this.#worker.post({ type: "abort" } satisfies ToWorker);
  }

  /** Sends a request and yields its parts. Leaving the loop early, or the signal, cancels it. */
  async *stream(
    request: WireRequest,
    signal?: AbortSignal,
  ): AsyncGenerator<WirePart, void, undefined> {
    signal?.throwIfAborted();
    const id = this.#nextId();
    const queue = new AsyncQueue<WirePart>();
    this.#post({ type: "generate", id, request });
    this.#streams.set(id, queue);
    this.#updateKeepAlive();
    // The caller may never ask for another part, so the request is cancelled at once.
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

  /** Cancels a request that has not ended. */
  #cancel(id: number): void {
    if (this.#streams.delete(id)) this.#post({ type: "cancel", id });
    this.#updateKeepAlive();
  }

  /** Posts a message. A value that cannot be cloned is the caller's mistake. */
  #post(message: ToWorker, transfer?: Transferable[]): void {
    try {
      this.#worker.post(message, transfer);
    } catch (error) {
      throw new WrinkleFreeError("bad_request", messageOf(error), { cause: error });
    }
  }

  /** Ends the workers. Calls in progress and all later ones reject with this error. */
  close(error: WrinkleFreeError): void {
    if (this.#closed) return;
    this.#closed = error;
    for (const { reject } of this.#calls.values()) reject(error);
    for (const queue of this.#streams.values()) queue.fail(error);
    this.#calls.clear();
    this.#streams.clear();
    for (const worker of [this.#worker, ...this.#poolWorkers]) worker.terminate();
  }

  /** Starts a worker whose failure closes the connection. */
  #start(): WorkerHandle {
    const worker = this.#spawn();
    worker.onFailure((message) => this.close(new WrinkleFreeError("crashed", message)));
    return worker;
  }

  #addPoolWorker(port: MessagePort): void {
    if (this.#closed) return;
    const worker = this.#start();
    worker.keepAlive(false);
    worker.post({ type: "joinPool", port } satisfies ToWorker, [port]);
    this.#poolWorkers.push(worker);
  }

  #nextId(): number {
    if (this.#closed) throw this.#closed;
    return ++this.#lastId;
  }

  /** Lets a Node process end when the engine has no work. */
  #updateKeepAlive(): void {
    this.#worker.keepAlive(this.#calls.size + this.#streams.size > 0);
  }

  #receive(message: FromWorker): void {
    switch (message.type) {
      case "progress":
        return this.#reportProgress(message.progress);
      case "parts":
        return message.parts.forEach((part) => this.#deliver(part));
      case "done":
        return this.#settle(message.id, (pending) => pending.resolve(message.value));
      case "failed":
        return this.#fail(message.id, fromWire(message.error));
      case "crashed":
        return this.close(fromWire(message.error));
      case "spawnPoolWorker":
        return this.#addPoolWorker(message.port);
    }
  }

  /** Calls the page's listener. An error in it ends the load. */
  #reportProgress(progress: Progress): void {
    try {
      this.#onProgress(progress);
    } catch (error) {
      const message = `onProgress: ${messageOf(error)}`;
      this.close(new WrinkleFreeError("bad_request", message, { cause: error }));
    }
  }

  #deliver(part: WirePart): void {
    this.#streams.get(part.id)?.push(part);
    // The worker is done with the request, even if the page has not read all parts.
    if (part.finishReason !== null && this.#streams.delete(part.id)) this.#updateKeepAlive();
  }

  #fail(id: number, error: WrinkleFreeError): void {
    const queue = this.#streams.get(id);
    this.#streams.delete(id);
    queue?.fail(error);
    this.#settle(id, (pending) => pending.reject(error));
  }

  #settle(id: number, action: (pending: PendingCall) => void): void {
    const pending = this.#calls.get(id);
    this.#calls.delete(id);
    this.#updateKeepAlive();
    if (pending) action(pending);
  }
}
