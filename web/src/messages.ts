/** Validation of conversations for chat templates. */

import type { ChatMessage } from "./chat_types.js";
import { WrinkleFreeError } from "./errors.js";

/** Accepted roles. Templates silently skip messages of other roles. */
const ROLES = ["system", "developer", "user", "assistant", "tool"];

/**
 * Returns the messages with their contents as plain text.
 *
 * @throws {@link WrinkleFreeError} `"bad_request"`, with the message's index
 */
export function normalizeMessages(messages: readonly ChatMessage[]): object[] {
  if (!Array.isArray(messages) || messages.length === 0) {
    throw invalid("messages", "expected a list of at least one message");
  }
  return messages.map((message: ChatMessage, index) => {
    const path = `messages[${index}]`;
    const role: unknown = message?.role;
    if (typeof role !== "string" || !ROLES.includes(role)) {
      throw invalid(`${path}.role`, `expected one of ${ROLES.join(", ")}, got ${String(role)}`);
    }
    const content = plainText(message.content, `${path}.content`);
    // Templates know OpenAI's role `developer` under its former name `system`.
    return { ...message, role: role === "developer" ? "system" : role, content };
  });
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
