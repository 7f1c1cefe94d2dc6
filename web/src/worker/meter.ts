import type { Progress } from "../types.js";

/** Milliseconds between two reports. */
const INTERVAL = 50;

/** Tells how far loading is, not too often. */
export class Meter {
  #loaded = 0;
  #before = 0;
  #file = "";
  #cached = false;
  #told = 0;

  constructor(
    readonly total: number | null,
    readonly tell: (progress: Progress) => void,
  ) {}

  begin(file: string, cached: boolean): void {
    this.#file = file;
    this.#cached = cached;
    this.#before = this.#loaded;
  }

  add(bytes: number): void {
    this.#loaded += bytes;
    if (performance.now() - this.#told >= INTERVAL) this.end();
  }

  /** The file's bytes did not count. */
  undo(): void {
    this.#loaded = this.#before;
  }

  end(): void {
    this.#told = performance.now();
    const [loaded, total, file, cached] = [this.#loaded, this.total, this.#file, this.#cached];
    this.tell({ loaded, total, file, cached });
  }
}
