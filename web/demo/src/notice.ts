/** The page's error line. */

import { byId } from "./dom.js";
import { errorText } from "./error_text.js";

/** Shows an error. A cancelled call is not an error. */
export function showError(error: unknown): void {
  if (error instanceof DOMException && error.name === "AbortError") return;
  showNotice(errorText(error));
}

/** Shows a text in the error line. */
export function showNotice(text: string): void {
  byId("notice").textContent = text;
  byId("notice").hidden = false;
}

/** Hides the error. */
export function hideError(): void {
  byId("notice").hidden = true;
}
