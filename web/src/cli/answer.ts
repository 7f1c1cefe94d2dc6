/** Printing of answers while they are computed: the answer on standard output, the rest apart from it. */

import type { Part } from "../types.js";

/** How the reasoning before an answer is shown. */
export type Thinking = "shown" | "folded";

/** An answer in progress. */
export class AnswerView {
  text = "";
  reasoning = "";
  #thinks = false;
  #last: Part | undefined;

  constructor(readonly thinking: Thinking) {}

  /** Prints what is new. */
  show(part: Part): void {
    if (part.reasoning) this.#showReasoning(part.reasoning);
    if (part.text) {
      if (this.#thinks && this.thinking === "shown") process.stderr.write("\n\n");
      this.#thinks = false;
      process.stdout.write(part.text);
    }
    this.text += part.text;
    this.#last = part;
  }

  /** Ends the answer's line, and says why there is no text if there is none. */
  end(): void {
    if (this.text) return void process.stdout.write("\n");
    if (this.#thinks && this.thinking === "shown") process.stderr.write("\n");
    console.error(this.#whyEmpty());
  }

  #whyEmpty(): string {
    const { stats, finishReason } = this.#last ?? {};
    if (finishReason === "length" && this.reasoning) {
      const fix = "--max-tokens N allows more, --thinking-budget N ends it";
      return `(no answer: the thinking took all ${stats?.tokens} tokens; ${fix})`;
    }
    return finishReason ? "(no answer: the model ended the text at once)" : "(stopped)";
  }

  #showReasoning(text: string): void {
    this.reasoning += text;
    if (this.thinking === "shown") process.stderr.write(dim(text));
    else if (!this.#thinks) console.error("(thinking …)");
    this.#thinks = true;
  }
}

function dim(text: string): string {
  return process.stderr.isTTY ? `\x1b[2m${text}\x1b[0m` : text;
}
