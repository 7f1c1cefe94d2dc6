/** Progress reports during loading. */

import type { Progress } from "../types.js";

/** Minimum milliseconds between two reports within a file. */
const INTERVAL = 50;

/** Counts the loaded bytes of all files and reports them at intervals. */
export class ProgressReporter {
  #loaded = 0;
  #reportedAt = 0;

  constructor(
    readonly total: number | null,
    readonly onProgress: (progress: Progress) => void,
  ) {}

  /** Begins a file. Several may be in progress. */
  begin(file: string, cached: boolean): FileProgress {
    let bytes = 0;
    const report = () => this.#report(file, cached);
    const add = (more: number) => {
      bytes += more;
      this.#loaded += more;
      if (performance.now() - this.#reportedAt >= INTERVAL) report();
    };
    return { add, report, undo: () => void (this.#loaded -= bytes) };
  }

  #report(file: string, cached: boolean): void {
    this.#reportedAt = performance.now();
    this.onProgress({ loaded: this.#loaded, total: this.total, file, cached });
  }
}

/** Progress of one file. */
export interface FileProgress {
  /** Adds bytes of the file. */
  add(bytes: number): void;
  /** Subtracts the bytes of the file, which is read again. */
  undo(): void;
  /** Reports the current state. */
  report(): void;
}
