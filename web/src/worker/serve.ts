/** The engine's worker: loads, then runs passes as long as there are requests. */

import { WrinkleFreeError, codeOf, toWire } from "../errors.js";
import { type WorkerPlatform, portOf } from "../platform/platform.js";
import type { FromWorker, ToWorker } from "../protocol.js";
import { help } from "./help.js";
import { type Opened, open } from "./open.js";
import { Requests } from "./requests.js";

/** Milliseconds between two looks at what the page says. A pass is never interrupted. */
const SLICE = 4;

/** Serves the page that started this worker, as an engine or as an engine's helper. */
export function serve(platform: WorkerPlatform): void {
  const engine = new Served(platform);
  platform.port.onMessage((message: ToWorker) => {
    if (message.type === "help") help(portOf(message.port));
    else void engine.receive(message);
  });
}

type ToEngine = Exclude<ToWorker, { type: "help" }>;

class Served {
  readonly #loading = new AbortController();
  #opened: Opened | undefined;
  #requests: Requests | undefined;
  #runs = false;

  constructor(readonly platform: WorkerPlatform) {}

  async receive(message: ToEngine): Promise<void> {
    if (message.type === "abort") return this.#loading.abort();
    if (message.type === "cancel") return this.#guard(() => this.#requests?.cancel(message.id));
    try {
      await this.#answer(message);
    } catch (error) {
      if (broken(error)) this.#crash(error);
      else this.#post({ type: "failed", id: message.id, error: toWire(error) });
    }
  }

  async #answer(message: Exclude<ToEngine, { type: "abort" | "cancel" }>): Promise<void> {
    const { id } = message;
    switch (message.type) {
      case "load":
        this.#opened = await this.#load(message);
        this.#requests = new Requests(this.#opened.session);
        return this.#post({ type: "done", id, value: this.#opened.info });
      case "tokenize": {
        const tokens = this.#ready().session.tokenize(message.text, message.special);
        return this.#post({ type: "done", id, value: [...tokens] });
      }
      case "generate":
        this.#ready().submit(id, message.request);
        return this.#run();
      case "dispose":
        this.#free();
        return this.#post({ type: "done", id, value: null });
    }
  }

  #load(message: Extract<ToWorker, { type: "load" }>): Promise<Opened> {
    const tell = (progress: Extract<FromWorker, { type: "progress" }>["progress"]) =>
      this.#post({ type: "progress", progress });
    return open(message, this.platform, this.#loading.signal, tell);
  }

  #ready(): Requests {
    if (!this.#requests) throw new WrinkleFreeError("disposed", "no model is loaded");
    return this.#requests;
  }

  async #run(): Promise<void> {
    if (this.#runs) return;
    this.#runs = true;
    while (this.#requests?.busy) {
      this.#slice(this.#requests);
      await this.platform.breathe();
    }
    this.#runs = false;
  }

  /** Passes until it is time to listen again; what they gave goes out as one message. */
  #slice(requests: Requests): void {
    const end = performance.now() + SLICE;
    this.#guard(() => {
      do requests.step();
      while (requests.busy && performance.now() < end);
      const parts = requests.take();
      if (parts.length > 0) this.#post({ type: "parts", parts });
    });
  }

  /** The helpers leave the session; the page ends them. */
  #free(): void {
    this.#requests = undefined;
    this.#opened?.session.free();
    this.#opened = undefined;
  }

  /** Whatever fails in here leaves the engine in a state that nobody knows. */
  #guard(what: () => void): void {
    try {
      what();
    } catch (error) {
      this.#crash(error);
    }
  }

  /** The session is not touched again, not even to free it: the page ends this worker. */
  #crash(error: unknown): void {
    this.#requests = undefined;
    const { message } = toWire(error);
    this.#post({ type: "crashed", error: { code: "crashed", message } });
  }

  #post(message: FromWorker): void {
    this.platform.port.post(message);
  }
}

/** A trap; what the core refuses, and what fails outside it, has a code or a name of its own. */
function broken(error: unknown): boolean {
  return error instanceof WebAssembly.RuntimeError && codeOf(error) === undefined;
}
