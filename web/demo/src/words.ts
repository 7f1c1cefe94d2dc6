/** What goes wrong, in words for people. */

import { WrinkleFreeError } from "wrinklefree";

const FORMATS =
  "This page runs packed models (.wf.safetensors), GGUF files with ternary weights, and " +
  "BitNet safetensors together with their config.json and tokenizer.json.";

/** What to do about an error, by its code. */
const HELP: Readonly<Record<string, string>> = {
  not_a_model: FORMATS,
  unsupported: FORMATS,
  bad_source: FORMATS,
  malformed: FORMATS,
  context_length_exceeded: "A new chat begins with an empty context.",
  out_of_memory: "Closing other tabs, or a smaller model, may help.",
  too_large: "A smaller model may fit.",
  download_failed: "Is the network there? Reloading the page tries again.",
  crashed: "“Load again”, in the panel, starts the engine anew.",
};

/** A sentence or two about an error. */
export function words(error: unknown): string {
  if (!(error instanceof WrinkleFreeError)) return `A bug in this page: ${error}`;
  const { message, code } = error;
  const sentence = `${message.charAt(0).toUpperCase()}${message.slice(1)}`;
  return [/[.!?]$/.test(sentence) ? sentence : `${sentence}.`, HELP[code]]
    .filter(Boolean)
    .join(" ");
}
