/** What the cells show after each pass. */

import type { Part, Slot } from "wrinklefree";

/** From a part of a stream to the cells of its block. */
export type Board = (part: Part) => Slot[];

const EMPTY: Slot = { state: "masked", text: "" };

/** Modes that find tokens in order, not block by block. */
export function inOrder(mode: string): boolean {
  return mode === "ar" || mode === "verify";
}

/** The board of a decode mode. */
export function board(mode: string, size: number): Board {
  return inOrder(mode) ? sequence(size) : block(size);
}

/** The block as the engine has it. */
function block(size: number): Board {
  let last = filled([], size);
  return ({ provisional }) => (last = provisional.length ? filled(provisional, size) : last);
}

/** The last tokens, and what a draft says comes next; cut into blocks like the others. */
function sequence(size: number): Board {
  const known: Slot[] = [];
  return ({ provisional, tokens }) => {
    const final = provisional.filter((slot) => slot.state === "final");
    if (tokens.length > 0) known.push(...final.slice(-tokens.length));
    const draft = provisional.filter((slot) => slot.state !== "final");
    const begin = Math.floor(Math.max(known.length - 1, 0) / size) * size;
    return filled([...known.slice(begin), ...draft], size);
  };
}

function filled(slots: readonly Slot[], size: number): Slot[] {
  return Array.from({ length: size }, (_, index) => slots[index] ?? EMPTY);
}
