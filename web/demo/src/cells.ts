/** The slots of the current block as cells. */

import type { Slot } from "wrinklefree";
import { createElement } from "./dom.js";
import { formatNumber } from "./format.js";

/** A list of cells, one per slot. */
export class Cells {
  #cells: Cell[] = [];

  constructor(
    readonly list: HTMLElement,
    readonly summary: HTMLElement,
    size: number,
  ) {
    this.show(Array.from({ length: size }, () => ({ state: "masked", text: "" })));
  }

  /** Shows the slots and their summary. */
  show(slots: readonly Slot[]): void {
    if (slots.length !== this.#cells.length) {
      this.#cells = slots.map(() => new Cell());
      this.list.replaceChildren(...this.#cells.map((cell) => cell.item));
    }
    slots.forEach((slot, index) => this.#cells[index]?.show(slot));
    const count = (state: Slot["state"]) => slots.filter((slot) => slot.state === state).length;
    const [final, guessed, empty] = [count("final"), count("provisional"), count("masked")];
    this.summary.textContent = `${final} final, ${guessed} guessed, ${empty} empty`;
  }
}

/** One cell. The DOM is changed only if the slot changed. */
class Cell {
  readonly item = createElement("li");
  #key = "";

  show({ state, text, certainty }: Slot): void {
    const sure = certainty === undefined ? "" : `${formatNumber(100 * certainty)} % sure`;
    const key = `${state} ${sure} ${text}`;
    if (key === this.#key) return;
    this.#key = key;
    this.item.className = state;
    this.item.textContent = state === "masked" ? "" : cellText(text);
    this.item.style.setProperty("--certainty", `${100 * (certainty ?? 0.5)}%`);
    const says =
      state === "masked" ? "empty" : [cellLabel(text), state, sure].filter(Boolean).join(", ");
    this.item.title = says;
    this.item.ariaLabel = says;
  }
}

/** Returns a token's text for a cell, with a symbol for invisible characters. */
function cellText(text: string): string {
  if (isSpecial(text)) return "■";
  return text.replaceAll("\n", "↵").trim() || "␣";
}

/** Returns a token's text for screen readers. */
function cellLabel(text: string): string {
  if (isSpecial(text)) return "end of text";
  return text.replaceAll("\n", "new line").trim() || "space";
}

/** Returns true for special tokens such as `<|im_end|>`. */
function isSpecial(text: string): boolean {
  return /^<\|?[\w|/ -]+\|?>$/.test(text);
}
