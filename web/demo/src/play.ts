/** Shows the frames of runs, as they come or slower. */

import type { Run } from "./run.js";

/** What shows a run. */
export interface Screen {
  /** Shows what there was after a pass. */
  show(run: Run, index: number): void;
}

/** A run and what shows it. */
export interface Scene {
  run: Run;
  screen: Screen;
  /** Frames per second; infinite: as they come. Asked for again and again. */
  pace(): number;
}

/** Shows all frames of all scenes; resolves after the last one, or when told to skip the rest. */
export async function play(scenes: readonly Scene[], skip: AbortSignal): Promise<void> {
  const players = scenes.map((scene) => new Player(scene));
  let before = performance.now();
  for (let playing = true; playing;) {
    const now = await nextFrame();
    const moves = players.map((player) => player.move((now - before) / 1000, skip.aborted));
    playing = moves.includes(true);
    before = now;
  }
}

class Player {
  /** The frame that is due, with a fraction. */
  #due = 0;
  #shown = -1;

  constructor(readonly scene: Scene) {}

  /** Goes on by so many seconds; whether there is more to come. */
  move(seconds: number, skip: boolean): boolean {
    const { run, screen, pace } = this.scene;
    const last = run.frames.length - 1;
    if (last < 0) return !run.ended;
    // Where frames come more slowly than they are shown, the next one does not catch up.
    const live = skip || !Number.isFinite(pace());
    this.#due = live ? last : Math.min(this.#due + pace() * seconds, last);
    const index = Math.floor(this.#due);
    if (index !== this.#shown) screen.show(run, index);
    this.#shown = index;
    return !run.ended || index < last;
  }
}

/** The time of the next picture. Hidden pages have no pictures, but time passes. */
function nextFrame(): Promise<number> {
  return new Promise((resolve) => {
    if (document.hidden) setTimeout(() => resolve(performance.now()), 100);
    else requestAnimationFrame(() => resolve(performance.now()));
  });
}
