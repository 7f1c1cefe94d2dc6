/** From options to requests in the core's terms. */

import type { ChatMessage } from "./chat_types.js";
import { conversation } from "./conversation.js";
import { WrinkleFreeError } from "./errors.js";
import type { WireRequest } from "./protocol.js";
import type { GenerateOptions, StreamOptions } from "./types.js";

/** Options that the core knows by the same name, in snake_case. */
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

/** The same options, as extensions of OpenAI's request. */
export const EXTENSIONS: ReadonlySet<string> = new Set(SNAKE.values());

function snake(name: string): string {
  return name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}

/** The request for a prompt or a conversation. */
export function promptRequest(
  prompt: string | readonly ChatMessage[],
  options: StreamOptions,
): WireRequest {
  const request: WireRequest =
    typeof prompt === "string" ? { prompt } : { messages: conversation(prompt) };
  for (const [name, wire] of SNAKE) {
    if (options[name] !== undefined) request[wire] = options[name];
  }
  return finite({ ...seed(), ...request, ...bias(options.logitBias) });
}

/**
 * The request, if all its numbers are some: JSON would make nothing of the others, which is to say
 * the default.
 */
export function finite(request: WireRequest): WireRequest {
  for (const [name, value] of Object.entries(request)) {
    if (typeof value === "number" && !Number.isFinite(value)) {
      throw new WrinkleFreeError("bad_request", `${name}: ${value} is no finite number`);
    }
  }
  return request;
}

/** Without a seed the core takes 0, and would say the same each time. */
export function seed(): WireRequest {
  return { seed: crypto.getRandomValues(new Uint32Array(1))[0] };
}

/** `logit_bias` as the core takes it: pairs, since JSON's keys are strings. */
export function bias(biases: GenerateOptions["logitBias"]): WireRequest {
  if (!biases) return {};
  return { logit_bias: Object.entries(biases).map(([id, value]) => [Number(id), value]) };
}
