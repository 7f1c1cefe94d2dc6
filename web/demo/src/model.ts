/** The model of this page: which one is loaded, and how. */

import { type Engine, type EngineInfo, type ModelSource, type Progress, load } from "wrinklefree";

/** What the page shows of it. `kept`: what ran before still runs. */
export type State =
  | { is: "loading"; progress: Progress | null }
  | { is: "ready"; info: EngineInfo }
  | { is: "failed"; error: unknown; kept: EngineInfo | null }
  | { is: "freed" };

/** A model that can be exchanged for another one. */
export class Model {
  /** For the next load. */
  threads: number | "auto" = "auto";
  #source: ModelSource = "default";
  #engine: Engine | null = null;
  #loading: { abort: AbortController; done: Promise<void> } | null = null;
  readonly #listeners: ((state: State) => void)[] = [];

  /** `prepared`: nothing is loaded before. */
  constructor(readonly prepared: Promise<void>) {}

  watch(listener: (state: State) => void): void {
    this.#listeners.push(listener);
  }

  /** Loads a model, by default the last one. The old one is there until the new one is. */
  open(source: ModelSource = this.#source): Promise<void> {
    this.#loading?.abort.abort();
    const abort = new AbortController();
    const done = this.#open(source, abort.signal);
    this.#loading = { abort, done };
    return done;
  }

  /** The engine, as soon as there is one. */
  async engine(): Promise<Engine> {
    // Another model may be chosen while this one is awaited.
    for (let awaited = null; this.#loading !== awaited;) {
      awaited = this.#loading;
      await awaited?.done;
    }
    if (!this.#engine) await this.open();
    if (!this.#engine) throw new DOMException("no model", "AbortError");
    return this.#engine;
  }

  /** The engine broke, and only a new one helps. */
  lost(error: unknown): void {
    this.#engine = null;
    this.#tell({ is: "failed", error, kept: null });
  }

  /** Gives the memory back. */
  async free(): Promise<void> {
    const engine = this.#engine;
    this.#engine = null;
    await engine?.dispose();
    this.#tell({ is: "freed" });
  }

  async #open(source: ModelSource, signal: AbortSignal): Promise<void> {
    this.#tell({ is: "loading", progress: null });
    await this.prepared;
    const onProgress = (progress: Progress) => this.#tell({ is: "loading", progress });
    try {
      const engine = await load(source, { threads: this.threads, signal, onProgress });
      const old = this.#engine;
      [this.#engine, this.#source] = [engine, source];
      this.#tell({ is: "ready", info: engine.info() });
      await old?.dispose();
    } catch (error) {
      if (!signal.aborted) this.#tell({ is: "failed", error, kept: this.#engine?.info() ?? null });
    }
  }

  #tell(state: State): void {
    for (const listener of this.#listeners) listener(state);
  }
}
