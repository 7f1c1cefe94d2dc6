/** The slider for the playback speed. */

import { byId } from "./dom.js";

/** Passes per second at each position of the slider. */
const SPEEDS = [2, 4, 8, 12, 20, 40, 80, Infinity];
const DEFAULT_INDEX = 3;

/** Speed at which passes are shown. */
export class PlaybackSpeed {
  readonly #slider = byId<HTMLInputElement>("pace");

  constructor() {
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    this.#slider.max = String(SPEEDS.length - 1);
    this.#slider.value = String(still ? SPEEDS.length - 1 : DEFAULT_INDEX);
    this.#slider.oninput = () => this.#showValue();
    this.#showValue();
  }

  /** Passes per second; `Infinity` shows them as they are computed. */
  get value(): number {
    return SPEEDS[this.#slider.valueAsNumber] ?? Infinity;
  }

  #showValue(): void {
    const slow = Number.isFinite(this.value);
    byId("pace-value").textContent = slow ? `${this.value} passes/s` : "full speed";
    this.#slider.ariaValueText = slow ? `${this.value} passes per second` : "full speed";
  }
}
