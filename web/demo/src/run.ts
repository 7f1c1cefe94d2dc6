/** One answer, recorded pass by pass: what is fast can be shown again slowly. */

import type { ChatMessage, Engine, Part, Slot, Stats, StreamOptions } from "wrinklefree";
import { type Board, board } from "./board.js";

/** Slots of a block where the model does not say. */
const BLOCK = 32;

/** What was there after a pass. */
export interface Frame {
  /** Characters of the answer. */
  length: number;
  tokens: number;
  slots: Slot[];
}

/** An answer that is coming, or has come. */
export class Run {
  readonly frames: Frame[] = [];
  text = "";
  stats: Stats | null = null;
  reason: Part["finishReason"] = null;
  /** Nothing more will come. */
  ended = false;
  /** What ended it early. */
  error: unknown = null;
  readonly mode: string;
  /** Milliseconds, in the end. */
  took = 0;
  readonly #board: Board;

  constructor(
    readonly engine: Engine,
    readonly options: StreamOptions,
  ) {
    const info = engine.info();
    const { decodeMode = "auto" } = options;
    this.mode = decodeMode === "auto" ? info.defaultDecodeMode : decodeMode;
    this.#board = board(this.mode, info.blockSize ?? BLOCK);
  }

  /** Runs to the end; what goes wrong is kept. `each`: called after each part. */
  async go(messages: readonly ChatMessage[], each: () => void = () => {}): Promise<void> {
    const began = performance.now();
    try {
      for await (const part of this.engine.stream(prompt(this.engine, messages), this.options)) {
        this.#take(part);
        each();
      }
    } catch (error) {
      this.error = error;
    }
    this.took = performance.now() - began;
    this.ended = true;
  }

  /** Someone ended it. */
  get stopped(): boolean {
    return this.error !== null && this.options.signal?.aborted === true;
  }

  #take(part: Part): void {
    this.text += part.text;
    this.stats = part.stats;
    this.reason = part.finishReason;
    const slots = this.#board(part);
    this.frames.push({ length: this.text.length, tokens: part.stats.tokens, slots });
  }
}

/** A model without a chat template goes on with the last message. */
function prompt(engine: Engine, messages: readonly ChatMessage[]): string | readonly ChatMessage[] {
  return engine.info().chat ? messages : String(messages.at(-1)?.content);
}
