/** Conversion of options to the core's requests. */

import type { ChatMessage } from "./chat_types.js";
import { normalizeMessages } from "./messages.js";
import { WrinkleFreeError } from "./errors.js";
import { refuseUnknown, snakeCase } from "./option_names.js";
import type { WireRequest } from "./protocol.js";
import type { GenerateOptions, Prompt, StreamOptions } from "./types.js";

/** Kinds of values. The core checks ranges and names of modes, since it has the lists. */
const KINDS = {
  flag: { expected: "true or false", fits: (value: unknown) => typeof value === "boolean" },
  count: {
    expected: "an integer of at least 0",
    fits: (value: unknown) => Number.isSafeInteger(value) && Number(value) >= 0,
  },
  number: { expected: "a finite number", fits: (value: unknown) => Number.isFinite(value) },
  text: { expected: "a string", fits: (value: unknown) => typeof value === "string" },
  texts: { expected: "a string or a list of strings", fits: areTexts },
  object: { expected: "an object", fits: isRecord },
  objects: { expected: "a list of at most 128 objects", fits: areObjects },
  choice: {
    expected: "a string or an object",
    fits: (value: unknown) => typeof value === "string" || isRecord(value),
  },
} as const;

/** Options that the core has under the same name, in snake_case, with the kinds of their values. */
const OPTIONS = {
  raw: "flag",
  suffix: "text",
  maxTokens: "count",
  temperature: "number",
  topK: "count",
  topP: "number",
  minP: "number",
  repetitionPenalty: "number",
  frequencyPenalty: "number",
  presencePenalty: "number",
  seed: "count",
  logprobs: "count",
  stop: "texts",
  watch: "flag",
  diffusing: "flag",
  enableThinking: "flag",
  reasoningEffort: "text",
  thinkingBudget: "count",
  preserveThinking: "flag",
  chatTemplateKwargs: "object",
  tools: "objects",
  toolChoice: "choice",
  parallelToolCalls: "flag",
  documents: "objects",
  decodeMode: "text",
  threshold: "number",
  blockSize: "count",
  smallBlockSize: "count",
  selector: "text",
  factor: "number",
  entropyBound: "number",
  slotsPerPass: "count",
  draft: "text",
  draftLength: "count",
  draftThreshold: "number",
  rowCost: "number",
  maskTokenId: "count",
  commit: "text",
  subBlockCache: "flag",
} as const satisfies Partial<Record<keyof StreamOptions, keyof typeof KINDS>>;

type Option = keyof typeof OPTIONS;

/** Options that are converted one by one, or that the page handles. */
const OTHER_OPTIONS = ["logitBias", "signal"] as const;

/** Names of all options of `generate` and `stream`. */
export const GENERATE_OPTIONS: readonly string[] = [...Object.keys(OPTIONS), ...OTHER_OPTIONS];

const WIRE = new Map<string, Option>(
  (Object.keys(OPTIONS) as Option[]).map((name) => [snakeCase(name), name]),
);

/** Names of the same options in the core, which extend OpenAI's request. */
export const DECODING_FIELDS: ReadonlySet<string> = new Set(WIRE.keys());

/**
 * Returns the core's request for a prompt or a conversation.
 *
 * @throws {@link WrinkleFreeError} `"bad_request"`, with the option's name
 */
export function promptRequest(prompt: Prompt, options: StreamOptions): WireRequest {
  refuseUnknown("generate", options, GENERATE_OPTIONS);
  const request = promptField(prompt);
  for (const [wire, name] of WIRE) {
    if (options[name] === undefined) continue;
    checkKind(name, OPTIONS[name], options[name]);
    request[wire] = wire === "stop" ? [options.stop].flat() : options[name];
  }
  return { ...randomSeed(), ...request, ...logitBiasPairs("logitBias", options.logitBias) };
}

/** Checks the value of a field of the core. */
export function checkField(wire: string, value: unknown): void {
  const name = WIRE.get(wire);
  if (name) checkKind(wire, OPTIONS[name], value);
}

function checkKind(name: string, kind: keyof typeof KINDS, value: unknown): void {
  const { expected, fits } = KINDS[kind];
  if (fits(value)) return;
  const text = `${name}: expected ${expected}, got ${shown(value)}`;
  throw new WrinkleFreeError("bad_request", text);
}

/** Returns a value as a short text. */
function shown(value: unknown): string {
  const text = typeof value === "string" ? JSON.stringify(value) : String(value);
  return text.length > 60 ? `${text.slice(0, 57)}...` : text;
}

/** Returns the field of a request for its prompt. */
export function promptField(prompt: Prompt): WireRequest {
  if (typeof prompt === "string") return { prompt };
  const list: unknown = prompt instanceof Uint32Array ? [...prompt] : prompt;
  if (!Array.isArray(list)) {
    const text = `expected a text, messages or token ids, got ${shown(prompt)}`;
    throw new WrinkleFreeError("bad_request", `prompt: ${text}`);
  }
  if (typeof list[0] !== "number") return { messages: normalizeMessages(list as ChatMessage[]) };
  return { tokens: tokenIds("prompt", list) };
}

/**
 * Returns the list if all of its items are token ids.
 *
 * @throws {@link WrinkleFreeError} `"bad_request"`, with the item's place
 */
export function tokenIds(name: string, list: readonly unknown[]): number[] {
  const isId = (id: unknown) => Number.isSafeInteger(id) && Number(id) >= 0 && Number(id) < 2 ** 32;
  const wrong = list.findIndex((id) => !isId(id));
  if (wrong < 0) return list as number[];
  const text = `${name}[${wrong}]: expected a token id, got ${shown(list[wrong])}`;
  throw new WrinkleFreeError("bad_request", text);
}

/** Returns a random seed: the core's default is 0 and would repeat the same answer. */
export function randomSeed(): WireRequest {
  return { seed: crypto.getRandomValues(new Uint32Array(1))[0] };
}

/** Converts logit biases to the core's pairs of id and value. `name` is the caller's for the option. */
export function logitBiasPairs(name: string, biases: GenerateOptions["logitBias"]): WireRequest {
  if (biases === undefined) return {};
  if (!isRecord(biases)) checkKind(name, "object", biases);
  const pairs = Object.entries(biases).map(([id, value]) => {
    checkKind(`${name}: a token id`, "count", Number(id));
    checkKind(`${name}[${id}]`, "number", value);
    return [Number(id), value];
  });
  return { logit_bias: pairs };
}

function areTexts(value: unknown): boolean {
  return [value].flat().every((text) => typeof text === "string");
}

function areObjects(value: unknown): boolean {
  return Array.isArray(value) && value.length <= 128 && value.every(isRecord);
}

function isRecord(value: unknown): boolean {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
