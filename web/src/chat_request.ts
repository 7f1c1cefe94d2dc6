/** Conversion of OpenAI's chat requests to the core's. */

import type { ChatCompletionParams } from "./chat_types.js";
import { normalizeMessages } from "./messages.js";
import { WrinkleFreeError } from "./errors.js";
import type { WireRequest } from "./protocol.js";
import { DECODING_FIELDS, logitBiasPairs, requireFinite, randomSeed } from "./request.js";

/** Fields that are converted one by one, or that do not change the answer. */
const HANDLED_ELSEWHERE = new Set([
  ...["model", "stream", "stream_options", "logprobs", "top_logprobs", "logit_bias", "n", "stop"],
  ...["max_tokens", "max_completion_tokens", "messages", "user", "metadata", "store"],
]);

/**
 * Returns the core's request for one of OpenAI's.
 *
 * @throws {@link WrinkleFreeError} `"unsupported"` or `"bad_request"`
 */
export function chatRequest(params: ChatCompletionParams): WireRequest {
  const request: WireRequest = { ...randomSeed(), messages: normalizeMessages(params.messages) };
  for (const [name, value] of Object.entries(params)) {
    if (value === undefined || value === null || HANDLED_ELSEWHERE.has(name)) continue;
    // A conversation cannot be `raw`, and OpenAI's chunks have no field for `watch`.
    if (!DECODING_FIELDS.has(name) || name === "raw" || name === "watch") throw unsupported(name);
    request[name] = value;
  }
  if ((params.n ?? 1) !== 1) throw unsupported("n");
  return requireFinite({
    ...{ ...request, ...maxTokens(params), ...stopStrings(params) },
    ...{ ...logprobCount(params), ...logitBias(params) },
  });
}

function unsupported(name: string): WrinkleFreeError {
  return new WrinkleFreeError("unsupported", `the parameter ${name} is not supported`);
}

function maxTokens({ max_completion_tokens, max_tokens }: ChatCompletionParams): WireRequest {
  const limit = max_completion_tokens ?? max_tokens;
  return limit == null ? {} : { max_tokens: limit };
}

function stopStrings({ stop }: ChatCompletionParams): WireRequest {
  return stop == null ? {} : { stop: typeof stop === "string" ? [stop] : stop };
}

function logprobCount({ logprobs, top_logprobs }: ChatCompletionParams): WireRequest {
  return logprobs ? { logprobs: top_logprobs ?? 0 } : {};
}

function logitBias({ logit_bias }: ChatCompletionParams): WireRequest {
  return logitBiasPairs(logit_bias ?? undefined);
}
