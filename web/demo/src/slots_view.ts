/** Conversion of a stream's parts to the slots that the cells show. */

import type { Part, Slot } from "wrinklefree";

/** Returns the slots to show after a part. */
export type SlotsView = (part: Part) => Slot[];

const EMPTY_SLOT: Slot = { state: "masked", text: "" };

/** Returns true for modes that generate tokens in order, not block by block. */
export function isSequential(mode: string): boolean {
  return mode === "ar" || mode === "verify";
}

/** Returns the view of a decode mode for blocks of `size` slots. */
export function slotsView(mode: string, size: number): SlotsView {
  return isSequential(mode) ? sequenceView(size) : blockView(size);
}

/** Shows the block that the engine reports. */
function blockView(size: number): SlotsView {
  let last = padded([], size);
  return ({ provisional }) => (last = provisional.length ? padded(provisional, size) : last);
}

/** Shows the last tokens and the draft after them, cut into blocks of the same size. */
function sequenceView(size: number): SlotsView {
  const known: Slot[] = [];
  return ({ provisional, tokens }) => {
    const final = provisional.filter((slot) => slot.state === "final");
    if (tokens.length > 0) known.push(...final.slice(-tokens.length));
    const draft = provisional.filter((slot) => slot.state !== "final");
    const begin = Math.floor(Math.max(known.length - 1, 0) / size) * size;
    return padded([...known.slice(begin), ...draft], size);
  };
}

function padded(slots: readonly Slot[], size: number): Slot[] {
  return Array.from({ length: size }, (_, index) => slots[index] ?? EMPTY_SLOT);
}
