/** The card with the current block: cells, which pass it is, and whether this is slow motion. */

import { Cells } from "./cells.js";
import { part } from "./dom.js";
import { duration, number } from "./numbers.js";
import type { Pace } from "./pace.js";
import type { Run } from "./run.js";

/** Slots before the first answer. */
const SIZE = 32;

/** A block card, and the text that it belongs to. */
export class Block {
  readonly #cells: Cells;

  constructor(readonly card: HTMLElement) {
    this.#cells = new Cells(part(card, ".cells"), part(card, ".summary"), SIZE);
  }

  show(run: Run, index: number): void {
    const frame = run.frames[index];
    if (!frame) return;
    this.#cells.show(frame.slots);
    const of = run.ended ? ` of ${number(run.frames.length)}` : "";
    part(this.card, ".pass").textContent = `pass ${number(index + 1)}${of}`;
  }
}

/** Says that what is seen is slower than what was computed. */
export function slowly(run: Run, pace: Pace): string {
  if (!Number.isFinite(pace.value)) return "";
  return `Replay at ${pace.value} passes/s; really took ${duration(run.took)}.`;
}
