/** The block that is being worked on, as cells. */

import type { Slot } from "wrinklefree";
import { make } from "./dom.js";
import { number } from "./numbers.js";

/** A list of cells, one for each slot. */
export class Cells {
  #cells: Cell[] = [];

  constructor(
    readonly list: HTMLElement,
    readonly summary: HTMLElement,
    size: number,
  ) {
    this.show(Array.from({ length: size }, () => ({ state: "masked", text: "" })));
  }

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

/** One cell. Most slots stay as they are in a pass, and then nothing is touched. */
class Cell {
  readonly item = make("li");
  #key = "";

  show({ state, text, certainty }: Slot): void {
    const sure = certainty === undefined ? "" : `${number(100 * certainty)} % sure`;
    const key = `${state} ${sure} ${text}`;
    if (key === this.#key) return;
    this.#key = key;
    this.item.className = state;
    this.item.textContent = state === "masked" ? "" : visible(text);
    this.item.style.setProperty("--certainty", `${100 * (certainty ?? 0.5)}%`);
    const says =
      state === "masked" ? "empty" : [spoken(text), state, sure].filter(Boolean).join(", ");
    this.item.title = says;
    this.item.ariaLabel = says;
  }
}

/** A token's text in a cell: what cannot be seen gets a sign. */
function visible(text: string): string {
  if (special(text)) return "■";
  return text.replaceAll("\n", "↵").trim() || "␣";
}

function spoken(text: string): string {
  if (special(text)) return "end of the text";
  return text.replaceAll("\n", "new line").trim() || "space";
}

/** Tokens such as `<|im_end|>`. */
function special(text: string): boolean {
  return /^<\|?[\w|/ -]+\|?>$/.test(text);
}
