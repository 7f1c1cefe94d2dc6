/** The terminal of a conversation. */

import { createInterface } from "node:readline";
import type { Engine } from "../engine.js";
import type { GenerateOptions } from "../types.js";
import { following } from "../abort.js";
import { Conversation } from "./conversation.js";

/** Answers lines of standard input until it ends. Ctrl-C ends an answer, and else the conversation. */
export async function chat(engine: Engine, options: GenerateOptions, signal: AbortSignal) {
  const conversation = new Conversation(engine, options);
  const terminal = Boolean(process.stdin.isTTY && process.stdout.isTTY);
  const output = terminal ? { output: process.stdout } : {};
  const lines = createInterface({ input: process.stdin, terminal, prompt: "> ", ...output });
  let answer: AbortController | undefined;
  lines.on("SIGINT", () => (answer ? answer.abort() : lines.close()));
  signal.addEventListener("abort", () => lines.close(), { once: true });
  if (terminal) lines.prompt();
  for await (const line of lines) {
    answer = following(signal);
    const stays = await conversation.take(line, answer.signal);
    answer.abort();
    answer = undefined;
    if (!stays) break;
    if (terminal) lines.prompt();
  }
  signal.throwIfAborted();
}
