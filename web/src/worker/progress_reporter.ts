/** Progress reports during loading. */

import type { Progress } from "../types.js";

/** Minimum milliseconds between two reports within a file. */
const INTERVAL = 50;

/** Counts the loaded bytes and reports them at intervals. */
export class ProgressReporter {
  #loaded = 0;
  #loadedBefore = 0;
  #file = "";
  #cached = false;
  #reportedAt = 0;

  constructor(
    readonly total: number | null,
    readonly onProgress: (progress: Progress) => void,
  ) {}

  /** Begins a file. */
  begin(file: string, cached: boolean): void {
    this.#file = file;
    this.#cached = cached;
    this.#loadedBefore = this.#loaded;
  }

  /** Adds bytes of the current file. */
  add(bytes: number): void {
    this.#loaded += bytes;
    if (performance.now() - this.#reportedAt >= INTERVAL) this.report();
  }

  /** Subtracts the bytes of the current file, which is read again. */
  undo(): void {
    this.#loaded = this.#loadedBefore;
  }

  /** Reports the current state. */
  report(): void {
    this.#reportedAt = performance.now();
    const [loaded, total, file, cached] = [this.#loaded, this.total, this.#file, this.#cached];
    this.onProgress({ loaded, total, file, cached });
  }
}
