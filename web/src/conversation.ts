/** Conversations as chat templates know them. */

import type { ChatMessage } from "./chat_types.js";
import { WrinkleFreeError } from "./errors.js";

/** Who may have said something. Templates leave out what others say, without a word. */
const ROLES = ["system", "developer", "user", "assistant", "tool"];

/**
 * The messages with contents as plain text.
 *
 * @throws {@link WrinkleFreeError} `"bad_request"`, naming the message
 */
export function conversation(messages: readonly ChatMessage[]): object[] {
  if (!Array.isArray(messages) || messages.length === 0) {
    throw wrong("messages", "a list of at least one message is wanted");
  }
  return messages.map((message: ChatMessage, index) => {
    const place = `messages[${index}]`;
    const role: unknown = message?.role;
    if (typeof role !== "string" || !ROLES.includes(role)) {
      throw wrong(`${place}.role`, `${String(role)} is none of ${ROLES.join(", ")}`);
    }
    const content = text(message.content, `${place}.content`);
    // What OpenAI calls `developer` now was `system` when templates were written.
    return { ...message, role: role === "developer" ? "system" : role, content };
  });
}

function text(content: ChatMessage["content"], place: string): string {
  if (typeof content === "string") return content;
  if (!Array.isArray(content)) throw wrong(place, "a text or a list of text parts is wanted");
  const parts = content.map((part) => {
    if (part?.type === "text" && typeof part.text === "string") return part.text;
    throw wrong(place, `this model takes text only, not a part of type ${String(part?.type)}`);
  });
  return parts.join("\n");
}

function wrong(place: string, why: string): WrinkleFreeError {
  return new WrinkleFreeError("bad_request", `${place}: ${why}`);
}
