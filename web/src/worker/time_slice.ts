/** Length of the engine's time slices, between which it handles messages. */

/** Milliseconds of a slice where pauses are short. */
const SHORT_MS = 4;
/** Maximum milliseconds of a slice, so that an abort takes effect soon. */
const LONG_MS = 40;
/** Number of times that a slice is longer than the pause after it. */
const SHARE = 8;

/** Chooses slices so long that pauses take little of the time. */
export class TimeSlice {
  #pause = 0;

  /** Milliseconds of the next slice. */
  get length(): number {
    return Math.min(Math.max(this.#pause * SHARE, SHORT_MS), LONG_MS);
  }

  /** Counts a pause in milliseconds. One that is long by chance has a fourth of the weight. */
  paused(milliseconds: number): void {
    this.#pause += (milliseconds - this.#pause) / 4;
  }
}
