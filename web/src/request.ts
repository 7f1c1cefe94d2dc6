/** Conversion of options to the core's requests. */

import type { ChatMessage } from "./chat_types.js";
import { normalizeMessages } from "./messages.js";
import { WrinkleFreeError } from "./errors.js";
import type { WireRequest } from "./protocol.js";
import type { GenerateOptions, StreamOptions } from "./types.js";

/** Options that the core has under the same name, in snake_case. */
const OPTIONS = [
  "raw",
  "maxTokens",
  "temperature",
  "topK",
  "topP",
  "minP",
  "repetitionPenalty",
  "frequencyPenalty",
  "presencePenalty",
  "seed",
  "logprobs",
  "stop",
  "watch",
  "enableThinking",
  "reasoningEffort",
  "thinkingBudget",
  "chatTemplateKwargs",
  "decodeMode",
  "threshold",
  "blockSize",
  "smallBlockSize",
  "selector",
  "factor",
  "entropyBound",
  "slotsPerPass",
  "draft",
  "draftLength",
  "maskTokenId",
  "commit",
  "subBlockCache",
] as const satisfies readonly (keyof StreamOptions)[];

const SNAKE = new Map<keyof StreamOptions, string>(OPTIONS.map((name) => [name, snake(name)]));

/** Names of the same options in the core, which extend OpenAI's request. */
export const DECODING_FIELDS: ReadonlySet<string> = new Set(SNAKE.values());

function snake(name: string): string {
  return name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}

/** Returns the core's request for a prompt or a conversation. */
export function promptRequest(
  prompt: string | readonly ChatMessage[],
  options: StreamOptions,
): WireRequest {
  const request: WireRequest =
    typeof prompt === "string" ? { prompt } : { messages: normalizeMessages(prompt) };
  for (const [name, wire] of SNAKE) {
    if (options[name] !== undefined) request[wire] = options[name];
  }
  return requireFinite({ ...randomSeed(), ...request, ...logitBiasPairs(options.logitBias) });
}

/** Refuses NaN and infinities, which JSON would turn into `null` and so into the default. */
export function requireFinite(request: WireRequest): WireRequest {
  for (const [name, value] of Object.entries(request)) {
    if (typeof value === "number" && !Number.isFinite(value)) {
      throw new WrinkleFreeError("bad_request", `${name}: expected a finite number, got ${value}`);
    }
  }
  return request;
}

/** Returns a random seed: the core's default is 0 and would repeat the same answer. */
export function randomSeed(): WireRequest {
  return { seed: crypto.getRandomValues(new Uint32Array(1))[0] };
}

/** Converts logit biases to the core's pairs of id and value. */
export function logitBiasPairs(biases: GenerateOptions["logitBias"]): WireRequest {
  if (!biases) return {};
  return { logit_bias: Object.entries(biases).map(([id, value]) => [Number(id), value]) };
}
