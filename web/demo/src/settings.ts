/** The settings below the conversation. */

import type { DecodeMode, EngineInfo, StreamOptions } from "wrinklefree";
import { byId } from "./dom.js";

/** Description of each mode. */
const MODE_DESCRIPTIONS: Readonly<Record<string, string>> = {
  ar: "Autoregressive: one token per pass, in order.",
  verify:
    "Speculative decoding: the text of AR in fewer passes. It drafts only where that is faster.",
  iterative: "Fills a block in any order: tokens above the threshold become final.",
  adaptive: "Fills a block with a threshold that rises from pass to pass: fewer passes, more risk.",
  greedy: "Fills a whole block in one pass: the most tokens per pass, the roughest text.",
};
/** Modes that use the threshold. */
const MODES_WITH_THRESHOLD = new Set(["iterative", "adaptive"]);

/** The mode selector and the sampling settings. */
export class Settings {
  readonly #modes = byId("modes");
  readonly #threshold = byId<HTMLInputElement>("threshold");

  constructor() {
    this.#modes.onchange = () => this.#showValues();
    this.#threshold.oninput = () => this.#showValues();
    this.#showValues();
  }

  /** Returns the options of every mode. */
  shared(): StreamOptions {
    const value = (id: string) => byId<HTMLInputElement>(id).valueAsNumber;
    const [temperature, maxTokens] = [value("temperature"), value("max-tokens")];
    return {
      ...(Number.isNaN(temperature) ? {} : { temperature }),
      ...(Number.isNaN(maxTokens) ? {} : { maxTokens }),
    };
  }

  /** Returns the options of a mode. */
  forMode(mode: string): StreamOptions {
    const threshold = MODES_WITH_THRESHOLD.has(mode)
      ? { threshold: this.#threshold.valueAsNumber }
      : {};
    return { ...this.shared(), decodeMode: mode as DecodeMode, ...threshold };
  }

  /** The chat's decode mode. */
  get mode(): string {
    return this.#radios().find((radio) => radio.checked)?.value ?? "ar";
  }

  /** Disables the modes that the model does not support. */
  applyModel({ decodeModes, defaultDecodeMode }: EngineInfo): void {
    for (const radio of this.#radios()) {
      radio.disabled = !decodeModes.includes(radio.value);
      if (radio.disabled && radio.checked) this.selectMode(defaultDecodeMode);
    }
    for (const option of document.querySelectorAll<HTMLOptionElement>(".lane option")) {
      option.disabled = !decodeModes.includes(option.value);
    }
    this.#showValues();
  }

  /** Selects a mode, unless the page or the model does not have it. */
  selectMode(mode: string): void {
    const radios = this.#radios();
    if (!radios.some((radio) => radio.value === mode && !radio.disabled)) return;
    for (const radio of radios) radio.checked = radio.value === mode;
    this.#showValues();
  }

  #radios(): HTMLInputElement[] {
    return [...this.#modes.querySelectorAll("input")];
  }

  #showValues(): void {
    byId("mode-description").textContent = MODE_DESCRIPTIONS[this.mode] ?? "";
    byId("threshold-value").textContent = this.#threshold.valueAsNumber.toFixed(2);
    byId("threshold-field").classList.toggle("idle", !MODES_WITH_THRESHOLD.has(this.mode));
  }
}
