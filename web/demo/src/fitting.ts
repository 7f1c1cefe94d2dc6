/** The part of a conversation that fits the model's context. */

import type { ChatMessage, Engine } from "wrinklefree";

/**
 * Returns the newest messages that leave half of the context for the answer. The oldest exchanges are
 * left out; the last message always stays.
 */
export async function fittingMessages(
  engine: Pick<Engine, "countTokens" | "info">,
  messages: readonly ChatMessage[],
): Promise<readonly ChatMessage[]> {
  const { chat, context } = engine.info();
  if (!chat) return messages;
  let fitting = messages;
  while (fitting.length > 2 && (await engine.countTokens(fitting)) > context / 2) {
    // A question and its answer.
    fitting = fitting.slice(2);
  }
  return fitting;
}
