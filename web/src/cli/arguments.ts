/** Command line to command. */

import { parseArgs } from "node:util";
import type { GenerateOptions, LoadOptions } from "../types.js";

export const HELP = `Ternary language models on the CPU, in Node.

Usage: wrinklefree <COMMAND> [OPTIONS]

Commands:
  generate [PROMPT]    answer a prompt; without one, that of standard input
  chat                 hold a conversation in the terminal
  serve                serve a chat page and OpenAI's chat API

Model:
  --model FILE         path, URL or directory; repeatable [default: the model in this package]
  --threads N          threads that compute [default: one per core, at most 8]
  --context N          most tokens of a sequence [default: 2048]
  --kv-type TYPE       f32, f16, bf16, fp8-e4m3, fp8-e5m2 or int8 [default: bf16]

Output (generate and chat):
  --max-tokens N       most tokens of an answer [default: 512]
  --temperature T      0 takes the most likely token
  --top-k K, --top-p P, --min-p P
  --seed N             same seed, same answer
  --decode-mode MODE   auto, ar, verify, greedy, iterative or adaptive [default: auto]
  --enable-thinking=YES, --reasoning-effort LEVEL, --thinking-budget N
                       let the model think: true or false, how much, at most N tokens
  --raw                continue the prompt as it is, without the chat template

Server:
  --host HOST          [default: 127.0.0.1]
  --port PORT          [default: 30000; 0: a free one]

  --help, --version`;

/** Error: the command line is wrong. */
export class UsageError extends Error {}

/** A command with its options. */
export interface Command {
  name: "generate" | "chat" | "serve" | "help" | "version";
  prompt: string | undefined;
  models: string[];
  load: LoadOptions;
  generate: GenerateOptions;
  serve: ServeOptions;
}

/** Options of the server. */
export interface ServeOptions {
  host: string;
  port: number;
}

const text = { type: "string" } as const;
const flag = { type: "boolean" } as const;
const OPTIONS = {
  model: { type: "string", multiple: true },
  ...{ threads: text, context: text, "kv-type": text },
  ...{ "max-tokens": text, temperature: text, "top-k": text, "top-p": text, "min-p": text },
  ...{ seed: text, "decode-mode": text, raw: flag },
  ...{ "enable-thinking": text, "reasoning-effort": text, "thinking-budget": text },
  ...{ host: text, port: text },
  ...{ help: { ...flag, short: "h" }, version: { ...flag, short: "V" } },
} as const;

/** Options that the commands other than `generate` and `chat` do not read, and those of `serve`. */
const OUTPUT = [
  ...["max-tokens", "temperature", "top-k", "top-p", "min-p", "seed", "decode-mode"],
  ...["enable-thinking", "reasoning-effort", "thinking-budget"],
];
const UNREAD = {
  generate: ["host", "port"],
  chat: ["host", "port", "raw"],
  serve: [...OUTPUT, "raw"],
};

/**
 * Reads a command line.
 *
 * @throws {@link UsageError}
 */
export function parse(args: readonly string[]): Command {
  const { values, positionals } = parsed(args);
  const [name, ...rest] = positionals;
  const empty = { prompt: undefined, models: [], load: {}, generate: {}, serve: SERVE };
  if (values.version) return { name: "version", ...empty };
  if (values.help || name === "help") return { name: "help", ...empty };
  if (name !== "generate" && name !== "chat" && name !== "serve") {
    const problem = name === undefined ? "a command is missing" : `there is no command ${name}`;
    throw new UsageError(`${problem}: generate, chat or serve (--help says more)`);
  }
  const unread = UNREAD[name].find((option) => option in values);
  if (unread) throw new UsageError(`${name} has no option --${unread}`);
  if (rest.length > (name === "generate" ? 1 : 0)) {
    throw new UsageError(`${name}: ${rest.at(-1)} is one argument too many; quote a prompt`);
  }
  return {
    name,
    prompt: rest[0],
    models: values.model ?? [],
    load: defined({
      threads: number(values, "threads"),
      context: number(values, "context"),
      kvType: values["kv-type"],
    }) as LoadOptions,
    generate: defined({
      maxTokens: number(values, "max-tokens"),
      temperature: number(values, "temperature"),
      topK: number(values, "top-k"),
      topP: number(values, "top-p"),
      minP: number(values, "min-p"),
      seed: number(values, "seed"),
      decodeMode: values["decode-mode"],
      raw: values.raw,
      enableThinking: yesOrNo(values, "enable-thinking"),
      reasoningEffort: values["reasoning-effort"],
      thinkingBudget: number(values, "thinking-budget"),
    }) as GenerateOptions,
    serve: { host: values.host ?? SERVE.host, port: port(values) },
  };
}

const SERVE: ServeOptions = { host: "127.0.0.1", port: 30000 };

type Values = ReturnType<typeof parsed>["values"];

function parsed(args: readonly string[]) {
  try {
    return parseArgs({ args: [...args], options: OPTIONS, allowPositionals: true });
  } catch (error) {
    throw new UsageError((error as Error).message);
  }
}

function number(values: Values, name: keyof Values): number | undefined {
  const text = values[name];
  if (text === undefined) return undefined;
  const value = typeof text === "string" && text.trim() ? Number(text) : NaN;
  if (!Number.isFinite(value)) throw new UsageError(`--${name}: ${text} is not a number`);
  return value;
}

function yesOrNo(values: Values, name: keyof Values): boolean | undefined {
  const text = values[name];
  if (text === undefined) return undefined;
  if (text === "true" || text === "false") return text === "true";
  throw new UsageError(`--${name}: expected true or false, got ${text}`);
}

function port(values: Values): number {
  const port = number(values, "port") ?? SERVE.port;
  if (Number.isInteger(port) && port >= 0 && port < 65536) return port;
  throw new UsageError(`--port: ${port} is not a port`);
}

/** Returns the fields that are set. */
function defined(fields: Record<string, unknown>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined));
}
