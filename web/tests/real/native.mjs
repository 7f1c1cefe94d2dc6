// What the native program answers. `WF_RUN` names it (by default target/debug/wf-run).

import { execFileSync } from "node:child_process";
import { fileURLToPath } from "node:url";

/**
 * Answers that no last bit decides: their most likely tokens are the same with every set of kernels and
 * every type of cache, in every mode. (In guesses at whole blocks of stories about animals some words
 * are nearly as likely as others.)
 */
export const PROMPTS = ["Tell me a story about a boy.", "What is the opposite of hot?"];
export const MODES = ["ar", "verify", "greedy", "iterative", "adaptive"];

const program =
  process.env.WF_RUN ?? fileURLToPath(new URL("../../../target/debug/wf-run", import.meta.url));

/**
 * How an answer is sampled that has bytes which are no UTF-8. Not the native one to its end: where
 * all tokens are as likely, the last bit of a logit decides.
 */
export const WILD = { temperature: 8, seed: 2 };

/** The tokens and the text of an answer of 80 tokens at most, with more options. */
export function native(prompt, mode, more = []) {
  const args = ["generate", "--json", "-n", "80", "--decode-mode", mode, "--temperature", "0"];
  const output = execFileSync(program, [...args, ...more, prompt]).toString();
  const { tokens, text } = JSON.parse(output);
  return { tokens, text };
}
