/** The line that says what went wrong. */

import { at } from "./dom.js";
import { words } from "./words.js";

/** Says it; what somebody ended is no fault. */
export function complain(error: unknown): void {
  if (error instanceof DOMException && error.name === "AbortError") return;
  at("notice").textContent = words(error);
  at("notice").hidden = false;
}

export function quiet(): void {
  at("notice").hidden = true;
}
