/** The engine's worker: it loads a model, then runs forward passes while there are requests. */

import { type WireError, WrinkleFreeError, codeOf, toWire } from "../errors.js";
import { type WorkerPlatform, endpointOf } from "../platform/platform.js";
import type { FromWorker, ToWorker } from "../protocol.js";
import type { Progress } from "../types.js";
import { servePool } from "./pool_worker.js";
import { type OpenModel, openModel } from "./open_model.js";
import { ActiveRequests, requestJson } from "./active_requests.js";
import { TimeSlice } from "./time_slice.js";

/** Serves the page that started this worker, as an engine or as a worker of its thread pool. */
export function serveEngine(platform: WorkerPlatform): void {
  const engine = new EngineWorker(platform);
  platform.endpoint.onMessage((message: ToWorker) => {
    if (message.type === "joinPool") servePool(endpointOf(message.port));
    else void engine.receive(message);
  });
}

type ToEngine = Exclude<ToWorker, { type: "joinPool" }>;

/** The error of a request that the model cannot compute. */
const NOT_FINITE: WireError = {
  code: "model_error",
  message:
    "the model computed a number that is not finite (NaN or infinity): its weights are damaged, or " +
    "too large for this text",
};

class EngineWorker {
  readonly #loadAbort = new AbortController();
  #model: OpenModel | undefined;
  #requests: ActiveRequests | undefined;
  #stepping = false;
  readonly #slice = new TimeSlice();

  constructor(readonly platform: WorkerPlatform) {}

  async receive(message: ToEngine): Promise<void> {
    if (message.type === "abort") return this.#loadAbort.abort();
    if (message.type === "cancel")
      return this.#crashOnError(() => this.#requests?.cancel(message.id));
    try {
      await this.#respond(message);
    } catch (error) {
      if (isTrap(error)) this.#crash(error);
      else this.#post({ type: "failed", id: message.id, error: toWire(error) });
    }
  }

  async #respond(message: Exclude<ToEngine, { type: "abort" | "cancel" }>): Promise<void> {
    const { id } = message;
    switch (message.type) {
      case "load":
        this.#model = await this.#load(message);
        this.#requests = new ActiveRequests(this.#model.session);
        return this.#post({ type: "done", id, value: this.#model.info });
      case "tokenize": {
        const tokens = this.#requireRequests().session.tokenize(message.text, message.special);
        return this.#post({ type: "done", id, value: [...tokens] });
      }
      case "encode": {
        const tokens = this.#requireRequests().session.encode(requestJson(message.request));
        return this.#post({ type: "done", id, value: [...tokens] });
      }
      case "detokenize": {
        const ids = Uint32Array.from(message.tokens);
        const value = this.#requireRequests().session.detokenize(ids);
        return this.#post({ type: "done", id, value });
      }
      case "generate":
        this.#requireRequests().submit(id, message.request);
        return this.#stepUntilIdle();
      case "dispose":
        this.#free();
        return this.#post({ type: "done", id, value: null });
    }
  }

  #load(message: Extract<ToWorker, { type: "load" }>): Promise<OpenModel> {
    const onProgress = (progress: Progress) => this.#post({ type: "progress", progress });
    return openModel(message, this.platform, this.#loadAbort.signal, onProgress);
  }

  #requireRequests(): ActiveRequests {
    if (!this.#requests) throw new WrinkleFreeError("disposed", "the engine has no model");
    return this.#requests;
  }

  async #stepUntilIdle(): Promise<void> {
    if (this.#stepping) return;
    this.#stepping = true;
    while (this.#requests?.busy) {
      this.#runSlice(this.#requests);
      const began = performance.now();
      await this.platform.yieldToMessages();
      this.#slice.paused(performance.now() - began);
    }
    this.#stepping = false;
  }

  /**
   * Runs passes for one time slice and posts their results as one message. A forward pass is never
   * interrupted.
   */
  #runSlice(requests: ActiveRequests): void {
    const end = performance.now() + this.#slice.length;
    this.#crashOnError(() => {
      do requests.step();
      while (requests.busy && performance.now() < end);
      const parts = requests.drainParts();
      if (parts.length > 0) this.#post({ type: "parts", parts });
      for (const id of requests.drainFailed())
        this.#post({ type: "failed", id, error: NOT_FINITE });
    });
  }

  /** Frees the session. Its pool workers return, and the page ends them. */
  #free(): void {
    this.#requests = undefined;
    this.#model?.session.free();
    this.#model = undefined;
  }

  /** Runs an action of the engine. After an error its state is unknown, so the engine is closed. */
  #crashOnError(action: () => void): void {
    try {
      action();
    } catch (error) {
      this.#crash(error);
    }
  }

  /** Reports a crash. The session is not even freed: the page ends this worker. */
  #crash(error: unknown): void {
    this.#requests = undefined;
    const { message } = toWire(error);
    this.#post({ type: "crashed", error: { code: "crashed", message } });
  }

  #post(message: FromWorker): void {
    this.platform.endpoint.post(message);
  }
}

/** Returns true for a WebAssembly trap. Errors of the core have a code. */
function isTrap(error: unknown): boolean {
  return error instanceof WebAssembly.RuntimeError && codeOf(error) === undefined;
}
