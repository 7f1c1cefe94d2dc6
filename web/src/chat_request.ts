import type { ChatCompletionParams } from "./chat_types.js";
import { conversation } from "./conversation.js";
import { WrinkleFreeError } from "./errors.js";
import type { WireRequest } from "./protocol.js";
import { EXTENSIONS, bias, finite, seed } from "./request.js";

/** What is used otherwise, or says nothing about the answer. */
const OTHERWISE = new Set([
  ...["model", "stream", "stream_options", "logprobs", "top_logprobs", "logit_bias", "n", "stop"],
  ...["max_tokens", "max_completion_tokens", "messages", "user", "metadata", "store"],
]);

/** The core's request for one of OpenAI's. */
export function chatRequest(params: ChatCompletionParams): WireRequest {
  const request: WireRequest = { ...seed(), messages: conversation(params.messages) };
  for (const [name, value] of Object.entries(params)) {
    if (value === undefined || value === null || OTHERWISE.has(name)) continue;
    // "raw" means a prompt without a template, and "watch" has no place in OpenAI's shapes.
    if (!EXTENSIONS.has(name) || name === "raw" || name === "watch") throw unsupported(name);
    request[name] = value;
  }
  if ((params.n ?? 1) !== 1) throw unsupported("n");
  return finite({
    ...{ ...request, ...limit(params), ...stops(params) },
    ...{ ...logprobs(params), ...biases(params) },
  });
}

function unsupported(name: string): WrinkleFreeError {
  return new WrinkleFreeError("unsupported", `${name}: not supported`);
}

function limit({ max_completion_tokens, max_tokens }: ChatCompletionParams): WireRequest {
  const limit = max_completion_tokens ?? max_tokens;
  return limit == null ? {} : { max_tokens: limit };
}

function stops({ stop }: ChatCompletionParams): WireRequest {
  return stop == null ? {} : { stop: typeof stop === "string" ? [stop] : stop };
}

function logprobs({ logprobs, top_logprobs }: ChatCompletionParams): WireRequest {
  return logprobs ? { logprobs: top_logprobs ?? 0 } : {};
}

function biases({ logit_bias }: ChatCompletionParams): WireRequest {
  return bias(logit_bias ?? undefined);
}
