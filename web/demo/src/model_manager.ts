/** Loading and replacing of the page's model. */

import { type Engine, type EngineInfo, type ModelSource, type Progress, load } from "wrinklefree";

/** State of the model. `previous` is the model that still runs after a failed load. */
export type ModelState =
  | { status: "loading"; progress: Progress | null }
  | { status: "ready"; info: EngineInfo }
  | { status: "failed"; error: unknown; previous: EngineInfo | null }
  | { status: "freed" };

/** Owner of the page's engine. */
export class ModelManager {
  /** Number of threads of the next load. */
  threads: number | "auto" = "auto";
  #source: ModelSource = "default";
  #engine: Engine | null = null;
  #loading: { abort: AbortController; done: Promise<void> } | null = null;
  readonly #listeners: ((state: ModelState) => void)[] = [];

  /** Loading waits for `prepared`. */
  constructor(readonly prepared: Promise<void>) {}

  /** Calls a function on each change of the state. */
  watch(listener: (state: ModelState) => void): void {
    this.#listeners.push(listener);
  }

  /** Loads a model, by default the last one. The old engine runs until the new one is ready. */
  open(source: ModelSource = this.#source): Promise<void> {
    this.#loading?.abort.abort();
    const abort = new AbortController();
    const done = this.#open(source, abort.signal);
    this.#loading = { abort, done };
    return done;
  }

  /** Returns the engine, after loading if necessary. */
  async engine(): Promise<Engine> {
    // The user may choose another model during the load.
    for (let awaited = null; this.#loading !== awaited;) {
      awaited = this.#loading;
      await awaited?.done;
    }
    if (!this.#engine) await this.open();
    if (!this.#engine) throw new DOMException("no model is loaded", "AbortError");
    return this.#engine;
  }

  /** Drops an engine that has crashed. */
  engineCrashed(error: unknown): void {
    this.#engine = null;
    this.#notify({ status: "failed", error, previous: null });
  }

  /** Frees the engine's memory. */
  async free(): Promise<void> {
    const engine = this.#engine;
    this.#engine = null;
    await engine?.dispose();
    this.#notify({ status: "freed" });
  }

  async #open(source: ModelSource, signal: AbortSignal): Promise<void> {
    this.#notify({ status: "loading", progress: null });
    await this.prepared;
    const onProgress = (progress: Progress) => this.#notify({ status: "loading", progress });
    try {
      const engine = await load(source, { threads: this.threads, signal, onProgress });
      const old = this.#engine;
      [this.#engine, this.#source] = [engine, source];
      this.#notify({ status: "ready", info: engine.info() });
      await old?.dispose();
    } catch (error) {
      if (!signal.aborted)
        this.#notify({ status: "failed", error, previous: this.#engine?.info() ?? null });
    }
  }

  #notify(state: ModelState): void {
    for (const listener of this.#listeners) listener(state);
  }
}
