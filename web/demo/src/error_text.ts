/** Texts of errors for the user. */

import { WrinkleFreeError } from "wrinklefree";

const FORMATS =
  "This page runs packed models (.wf.safetensors), GGUF files with ternary weights, and " +
  "BitNet safetensors together with their config.json and tokenizer.json.";

/** Advice by error code. */
const ADVICE: Readonly<Record<string, string>> = {
  not_a_model: FORMATS,
  unsupported: FORMATS,
  bad_source: FORMATS,
  malformed: FORMATS,
  context_length_exceeded: "Start a new chat: it has an empty context.",
  out_of_memory: "Close other tabs or choose a smaller model.",
  too_large: "Choose a smaller model.",
  download_failed: "Check the network and reload the page.",
  crashed: "Press “Load again” in the panel to restart the engine.",
};

/** Returns one or two sentences about an error. */
export function errorText(error: unknown): string {
  if (!(error instanceof WrinkleFreeError)) return `A bug in this page: ${error}`;
  const { message, code } = error;
  const sentence = `${message.charAt(0).toUpperCase()}${message.slice(1)}`;
  return [/[.!?]$/.test(sentence) ? sentence : `${sentence}.`, ADVICE[code]]
    .filter(Boolean)
    .join(" ");
}
