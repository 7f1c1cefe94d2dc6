/** A conversation in the terminal. */

import { createInterface } from "node:readline";
import type { ChatMessage } from "../chat_types.js";
import type { Engine } from "../engine.js";
import type { GenerateOptions } from "../types.js";
import { following } from "./abort.js";

/** Answers lines of standard input until it ends. Ctrl-C ends an answer, and else the conversation. */
export async function chat(engine: Engine, options: GenerateOptions, signal: AbortSignal) {
  const terminal = Boolean(process.stdin.isTTY && process.stdout.isTTY);
  const output = terminal ? { output: process.stdout } : {};
  const lines = createInterface({ input: process.stdin, terminal, prompt: "> ", ...output });
  let answer: AbortController | undefined;
  lines.on("SIGINT", () => (answer ? answer.abort() : lines.close()));
  signal.addEventListener("abort", () => lines.close(), { once: true });
  const messages: ChatMessage[] = [];
  if (terminal) lines.prompt();
  for await (const line of lines) {
    if (line.trim()) {
      answer = following(signal);
      messages.push({ role: "user", content: line });
      const content = await shown(engine, messages, { ...options, signal: answer.signal });
      messages.push({ role: "assistant", content });
      answer.abort();
      answer = undefined;
    }
    if (terminal) lines.prompt();
  }
  signal.throwIfAborted();
}

/** Prints an answer while it is computed, and returns what there is of it. */
async function shown(engine: Engine, messages: ChatMessage[], options: GenerateOptions) {
  let text = "";
  try {
    for await (const part of engine.stream(messages, { ...options, watch: false })) {
      text += part.text;
      process.stdout.write(part.text);
    }
  } catch (error) {
    if (!options.signal?.aborted) throw error;
  }
  process.stdout.write("\n");
  return text;
}
