/** How fast passes are shown. */

import { at } from "./dom.js";

/** Passes per second, by the slider's place. */
const PACES = [2, 4, 8, 12, 20, 40, 80, Infinity];
const USUAL = 3;

/** The slider for the pace. */
export class Pace {
  readonly #slider = at<HTMLInputElement>("pace");

  constructor() {
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    this.#slider.max = String(PACES.length - 1);
    this.#slider.value = String(still ? PACES.length - 1 : USUAL);
    this.#slider.oninput = () => this.#say();
    this.#say();
  }

  /** Passes per second; infinite: as they come. */
  get value(): number {
    return PACES[this.#slider.valueAsNumber] ?? Infinity;
  }

  #say(): void {
    const slow = Number.isFinite(this.value);
    at("pace-says").textContent = slow ? `${this.value} passes/s` : "full speed";
    this.#slider.ariaValueText = slow ? `${this.value} passes per second` : "full speed";
  }
}
