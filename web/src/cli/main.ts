/** The commands, and what they have in common: options, the model, exit codes. */

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { WrinkleFreeError } from "../errors.js";
import type { Engine, LoadFunction } from "../engine.js";
import { AnswerView } from "./answer.js";
import { HELP, type Command, UsageError, parse } from "./arguments.js";
import { chat } from "./chat.js";
import { openModel } from "./model.js";
import { serve } from "./serve.js";

/** Exit codes, as those of `wf-run`. */
const [DONE, FAILED, WRONG_USAGE, INTERRUPTED] = [0, 1, 2, 130];

/** Runs a command and returns the exit code. */
export async function main(load: LoadFunction, args: readonly string[]): Promise<number> {
  const interrupt = new AbortController();
  let engine: Engine | undefined;
  try {
    const command = parse(args);
    if (command.name === "help" || command.name === "version") {
      console.log(command.name === "help" ? HELP : version());
      return DONE;
    }
    // A second Ctrl-C ends the process at once.
    process.once("SIGINT", () => interrupt.abort(new Interrupted()));
    process.once("SIGTERM", () => interrupt.abort(new Interrupted()));
    engine = await openModel(load, command, interrupt.signal);
    await run(engine, command, interrupt.signal);
    return DONE;
  } catch (error) {
    if (error instanceof Interrupted) return INTERRUPTED;
    if (!(error instanceof WrinkleFreeError || error instanceof UsageError || isSystem(error))) {
      throw error;
    }
    console.error(`error: ${error.message}`);
    return error instanceof UsageError ? WRONG_USAGE : FAILED;
  } finally {
    await engine?.dispose();
  }
}

/** The reason with which Ctrl-C aborts. */
class Interrupted extends Error {}

async function run(engine: Engine, command: Command, signal: AbortSignal): Promise<void> {
  if (command.name === "serve") return serve(engine, command.serve, signal);
  if (command.name === "chat") return chat(engine, command.generate, signal);
  const prompt = command.prompt ?? readFileSync(0, "utf8").trim();
  if (!prompt) throw new UsageError("generate: the prompt is empty");
  const view = new AnswerView("shown");
  const options = { ...command.generate, watch: false, signal };
  for await (const part of engine.stream(prompt, options)) view.show(part);
  view.end();
}

/** Returns true for errors of the system, such as a port in use. */
function isSystem(error: unknown): error is NodeJS.ErrnoException {
  return error instanceof Error && "syscall" in error;
}

function version(): string {
  return createRequire(import.meta.url)("../package.json").version;
}
