/** Validation of conversations for chat templates. */

import type { ChatCalledFunction, ChatMessage } from "./chat_types.js";
import { WrinkleFreeError } from "./errors.js";

/** Accepted roles. Templates silently skip messages of other roles. */
const ROLES = ["system", "developer", "user", "assistant", "tool"];

/** Names by which templates know OpenAI's newer role `developer` and its older role `function`. */
const TEMPLATE_ROLES = new Map([
  ["developer", "system"],
  ["function", "tool"],
]);

/**
 * Returns the messages with their contents as plain text.
 *
 * @throws {@link WrinkleFreeError} `"bad_request"`, with the message's index
 */
export function normalizeMessages(messages: readonly ChatMessage[]): object[] {
  if (!Array.isArray(messages) || messages.length === 0) {
    throw invalid("messages", "expected a list of at least one message");
  }
  return messages.map(normalizeMessage);
}

function normalizeMessage(message: ChatMessage, index: number): object {
  const path = `messages[${index}]`;
  const given: unknown = message?.role;
  const role = TEMPLATE_ROLES.get(String(given)) ?? given;
  if (typeof role !== "string" || !ROLES.includes(role)) {
    throw invalid(`${path}.role`, `expected one of ${ROLES.join(", ")}, got ${String(given)}`);
  }
  const { tool_calls, function_call, content, ...others } = message;
  const calls = toolCalls(message, path);
  // Templates test whether a field is there.
  const known = Object.entries(others).filter(([, value]) => value !== null);
  return {
    ...Object.fromEntries(known),
    role,
    content: content == null && calls.length ? "" : plainText(content, `${path}.content`),
    ...(calls.length ? { tool_calls: calls } : {}),
  };
}

/** Returns the calls of a message, also those in OpenAI's older form. */
function toolCalls({ tool_calls, function_call }: ChatMessage, path: string): object[] {
  const list: unknown = tool_calls ?? [];
  if (!Array.isArray(list)) throw invalid(`${path}.tool_calls`, "expected a list of calls");
  const calls = list.map((call, index) => ({
    id: call?.id ?? null,
    type: "function",
    function: calledFunction(call?.function, `${path}.tool_calls[${index}].function`),
  }));
  if (function_call == null) return calls;
  const called = calledFunction(function_call, `${path}.function_call`);
  return [...calls, { id: null, type: "function", function: called }];
}

/** Checks a called function. The core reads the arguments. */
function calledFunction(called: ChatCalledFunction | undefined, place: string): object {
  if (typeof called?.name === "string") return called;
  throw invalid(place, "expected an object with the name of the function");
}

function plainText(content: ChatMessage["content"], place: string): string {
  if (typeof content === "string") return content;
  if (!Array.isArray(content)) throw invalid(place, "expected a string or a list of text parts");
  const parts = content.map((part) => {
    if (part?.type === "text" && typeof part.text === "string") return part.text;
    throw invalid(place, `expected parts of type text only, got type ${String(part?.type)}`);
  });
  return parts.join("\n");
}

function invalid(place: string, why: string): WrinkleFreeError {
  return new WrinkleFreeError("bad_request", `${place}: ${why}`);
}
