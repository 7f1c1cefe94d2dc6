/** Playback of runs, live or slower. */

import type { Run } from "./run.js";

/** A view that shows the frames of a run. */
export interface FrameView {
  /** Shows the state after a pass. */
  show(run: Run, index: number): void;
}

/** A run with its view. */
export interface Playback {
  run: Run;
  view: FrameView;
  /** Returns frames per second; `Infinity` shows them live. It is called for every picture. */
  speed(): number;
}

/** Shows all frames of all playbacks. Resolves after the last one, or soon after `skip`. */
export async function play(playbacks: readonly Playback[], skip: AbortSignal): Promise<void> {
  const players = playbacks.map((playback) => new Player(playback));
  let before = performance.now();
  for (let playing = true; playing;) {
    const now = await nextFrame();
    const moves = players.map((player) => player.advance((now - before) / 1000, skip.aborted));
    playing = moves.includes(true);
    before = now;
  }
}

class Player {
  /** Index of the frame that is due, with a fraction. */
  #due = 0;
  #shown = -1;

  constructor(readonly playback: Playback) {}

  /** Advances by some seconds. Returns true if there are more frames to come. */
  advance(seconds: number, skip: boolean): boolean {
    const { run, view, speed } = this.playback;
    const last = run.frames.length - 1;
    if (last < 0) return !run.ended;
    // Playback waits for frames that are not computed yet and does not catch up afterwards.
    const live = skip || !Number.isFinite(speed());
    this.#due = live ? last : Math.min(this.#due + speed() * seconds, last);
    const index = Math.floor(this.#due);
    if (index !== this.#shown) view.show(run, index);
    this.#shown = index;
    return !run.ended || index < last;
  }
}

/** Returns the time of the next picture. Hidden pages have none and use a timer. */
function nextFrame(): Promise<number> {
  return new Promise((resolve) => {
    if (document.hidden) setTimeout(() => resolve(performance.now()), 100);
    else requestAnimationFrame(() => resolve(performance.now()));
  });
}
