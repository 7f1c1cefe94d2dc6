import type { WirePart } from "./protocol.js";
import type { Part } from "./types.js";

/** A part as users see it. Who cancels gets an error instead, so that reason does not occur. */
export function part({ text, tokens, provisional, stats, finishReason }: WirePart): Part {
  return { text, tokens, provisional, stats, finishReason: finishReason as Part["finishReason"] };
}
