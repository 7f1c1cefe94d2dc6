/** What the knobs below the conversation say. */

import type { DecodeMode, EngineInfo, StreamOptions } from "wrinklefree";
import { at } from "./dom.js";

/** What each mode does. */
const MODES: Readonly<Record<string, string>> = {
  ar: "One token per pass, each after the last.",
  verify:
    "Drafts ahead and keeps what AR would have said: the same text, in fewer passes if it pays.",
  iterative: "Fills a block of 32 out of order: what is surer than the threshold becomes final.",
  adaptive:
    "Fills a block with a threshold that rises from pass to pass: fewer passes, bolder guesses.",
  greedy: "Takes a whole block at once: the most tokens per pass, and the roughest text.",
};
/** Modes that the threshold means something to. */
const BY_THRESHOLD = new Set(["iterative", "adaptive"]);

/** The mode selector and its neighbors. */
export class Settings {
  readonly #modes = at("modes");
  readonly #threshold = at<HTMLInputElement>("threshold");

  constructor() {
    this.#modes.onchange = () => this.#say();
    this.#threshold.oninput = () => this.#say();
    this.#say();
  }

  /** Options of any request. */
  shared(): StreamOptions {
    const value = (id: string) => at<HTMLInputElement>(id).valueAsNumber;
    const [temperature, maxTokens] = [value("temperature"), value("max-tokens")];
    return {
      ...(Number.isNaN(temperature) ? {} : { temperature }),
      ...(Number.isNaN(maxTokens) ? {} : { maxTokens }),
    };
  }

  /** Options that go with a mode. */
  for(mode: string): StreamOptions {
    const threshold = BY_THRESHOLD.has(mode) ? { threshold: this.#threshold.valueAsNumber } : {};
    return { ...this.shared(), decodeMode: mode as DecodeMode, ...threshold };
  }

  /** The mode of the chat. */
  get mode(): string {
    return this.#radios().find((radio) => radio.checked)?.value ?? "ar";
  }

  /** Offers what the model can do. */
  fit({ decodeModes, defaultDecodeMode }: EngineInfo): void {
    for (const radio of this.#radios()) {
      radio.disabled = !decodeModes.includes(radio.value);
      if (radio.disabled && radio.checked) this.#choose(defaultDecodeMode);
    }
    for (const option of document.querySelectorAll<HTMLOptionElement>(".lane option")) {
      option.disabled = !decodeModes.includes(option.value);
    }
    this.#say();
  }

  #choose(mode: string): void {
    for (const radio of this.#radios()) radio.checked = radio.value === mode;
  }

  #radios(): HTMLInputElement[] {
    return [...this.#modes.querySelectorAll("input")];
  }

  #say(): void {
    at("mode-says").textContent = MODES[this.mode] ?? "";
    at("threshold-says").textContent = this.#threshold.valueAsNumber.toFixed(2);
    at("threshold-field").classList.toggle("idle", !BY_THRESHOLD.has(this.mode));
  }
}
