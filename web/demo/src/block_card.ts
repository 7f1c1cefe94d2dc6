/** The card of the current block: its cells and the number of the pass. */

import { Cells } from "./cells.js";
import { child } from "./dom.js";
import { formatDuration, formatNumber } from "./format.js";
import type { PlaybackSpeed } from "./playback_speed.js";
import type { Run } from "./run.js";

/** Number of slots before the first answer. */
const DEFAULT_SIZE = 32;

/** The card of a block. */
export class BlockCard {
  readonly #cells: Cells;

  constructor(readonly card: HTMLElement) {
    this.#cells = new Cells(child(card, ".cells"), child(card, ".summary"), DEFAULT_SIZE);
  }

  /** Shows the block after a pass. */
  show(run: Run, index: number): void {
    const frame = run.frames[index];
    if (!frame) return;
    this.#cells.show(frame.slots);
    const of = run.ended ? ` of ${formatNumber(run.frames.length)}` : "";
    child(this.card, ".pass").textContent = `pass ${formatNumber(index + 1)}${of}`;
  }
}

/** Returns the notice that the replay is slower than the computation was. */
export function replayText(run: Run, speed: PlaybackSpeed): string {
  if (!Number.isFinite(speed.value)) return "";
  return `Replay at ${speed.value} passes/s; computed in ${formatDuration(run.duration)}.`;
}
