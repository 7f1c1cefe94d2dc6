/** Conversion of OpenAI's chat requests to the core's. */

import type { ChatCompletionParams } from "./chat_types.js";
import { normalizeMessages } from "./messages.js";
import { WrinkleFreeError } from "./errors.js";
import { similarName } from "./option_names.js";
import type { WireRequest } from "./protocol.js";
import { DECODING_FIELDS, checkField, logitBiasPairs, randomSeed } from "./request.js";

/** Fields that are converted one by one, or that do not change the answer. */
const HANDLED_ELSEWHERE = new Set([
  ...["model", "stream", "stream_options", "logprobs", "top_logprobs", "logit_bias", "n", "stop"],
  ...["max_tokens", "max_completion_tokens", "messages", "user", "metadata", "store"],
  "response_format",
]);

/** Fields of the core that a conversation cannot have, or for which OpenAI's chunks have no place. */
const NOT_FOR_CHATS = new Set(["raw", "watch", "suffix"]);

/**
 * Returns the core's request for one of OpenAI's.
 *
 * @throws {@link WrinkleFreeError} `"unsupported"` or `"bad_request"`
 */
export function chatRequest(params: ChatCompletionParams): WireRequest {
  const request: WireRequest = { ...randomSeed(), messages: normalizeMessages(params.messages) };
  for (const [name, value] of Object.entries(params)) {
    if (value === undefined || value === null || HANDLED_ELSEWHERE.has(name)) continue;
    if (!DECODING_FIELDS.has(name) || NOT_FOR_CHATS.has(name)) throw unsupported(name);
    checkField(name, value);
    request[name] = value;
  }
  if ((params.n ?? 1) !== 1) throw unsupported("n");
  const format = params.response_format;
  if (format && format.type !== "text") throw unsupported(`response_format: ${format.type}`);
  checkDiffusing(params);
  return { ...request, ...limits(params), ...logprobCount(params), ...logitBias(params) };
}

function unsupported(name: string): WrinkleFreeError {
  const known = [...DECODING_FIELDS, ...HANDLED_ELSEWHERE].filter((one) => !NOT_FOR_CHATS.has(one));
  const similar = similarName(name, known);
  const hint = similar && similar !== name ? `: did you mean ${similar}?` : "";
  return new WrinkleFreeError("unsupported", `the parameter ${name} is not supported${hint}`);
}

/** Refuses snapshots where they have no place. */
function checkDiffusing({ diffusing, stream, logprobs, tools }: ChatCompletionParams): void {
  if (!diffusing) return;
  if (!stream) {
    const text = "diffusing is for streams: set stream, or leave it out";
    throw new WrinkleFreeError("bad_request", text);
  }
  if (logprobs) throw unsupported("logprobs with diffusing");
  if (tools?.length) throw unsupported("tools with diffusing");
}

/** Returns the fields that end an answer. */
function limits({ max_completion_tokens, max_tokens, stop }: ChatCompletionParams): WireRequest {
  const limit = max_completion_tokens ?? max_tokens;
  if (limit != null) checkField("max_tokens", limit);
  if (stop != null) checkField("stop", stop);
  return {
    ...(limit == null ? {} : { max_tokens: limit }),
    ...(stop == null ? {} : { stop: [stop].flat() }),
  };
}

function logprobCount({ logprobs, top_logprobs }: ChatCompletionParams): WireRequest {
  if (top_logprobs != null) checkField("logprobs", top_logprobs);
  return logprobs ? { logprobs: top_logprobs ?? 0 } : {};
}

function logitBias({ logit_bias }: ChatCompletionParams): WireRequest {
  return logitBiasPairs("logit_bias", logit_bias ?? undefined);
}
