// Answers of the native program, which `WF_RUN` names (default target/debug/wf-run).

import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { setTimeout } from "node:timers/promises";
import { fileURLToPath } from "node:url";

/**
 * Prompts without close decisions: their most likely tokens are the same with all kernels, cache types
 * and modes. (In stories about animals some words of a block are almost equally likely.)
 */
export const PROMPTS = ["Tell me a story about a boy.", "What is the opposite of hot?"];
export const MODES = ["ar", "verify", "greedy", "iterative", "adaptive"];

const program =
  process.env.WF_RUN ?? fileURLToPath(new URL("../../../target/debug/wf-run", import.meta.url));

/**
 * Sampling options whose answer contains invalid UTF-8. It is not compared with the native one: at this
 * temperature the last bit of a logit decides.
 */
export const WILD = { temperature: 8, seed: 2 };

/** Returns tokens and text of an answer of at most so many tokens. `more` are further options. */
export function native(prompt, mode, more = [], tokens = 80) {
  const args = ["generate", "--json", "-n", tokens, "--decode-mode", mode, "--temperature", "0"];
  const output = execFileSync(program, [...args, ...more, prompt]).toString();
  const answer = JSON.parse(output);
  return { tokens: answer.tokens, text: answer.text };
}

/** Starts `wf-run serve` with a model. Returns a function that posts a chat request, and one that ends the server. */
export async function serve(model) {
  const options = ["--model", model, "--port", "0", "--threads", "1"];
  const server = spawn(program, ["serve", ...options], { stdio: ["ignore", "pipe", "ignore"] });
  const [line] = await once(createInterface({ input: server.stdout }), "line");
  const url = line.match(/http:\S+/)[0];
  while ((await fetch(`${url}/health`)).status !== 200) await setTimeout(20);
  const post = (body) =>
    fetch(`${url}/v1/chat/completions`, { method: "POST", body: JSON.stringify(body) });
  return { post, end: () => server.kill() };
}
