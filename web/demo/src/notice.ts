/** The page's error line. */

import { byId } from "./dom.js";
import { errorText } from "./error_text.js";

/** Shows an error. A cancelled call is not an error. */
export function showError(error: unknown): void {
  if (error instanceof DOMException && error.name === "AbortError") return;
  byId("notice").textContent = errorText(error);
  byId("notice").hidden = false;
}

/** Hides the error. */
export function hideError(): void {
  byId("notice").hidden = true;
}
