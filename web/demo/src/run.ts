/** Recording of an answer, pass by pass, for the replay. */

import type { ChatMessage, Engine, Part, Slot, Stats, StreamOptions } from "wrinklefree";
import { type SlotsView, slotsView } from "./slots_view.js";

/** Number of slots of a block if the model has no blocks. */
const DEFAULT_BLOCK = 32;

/** State of an answer after a pass. */
export interface RunFrame {
  /** Length of the answer in characters. */
  length: number;
  /** Length of the reasoning before it. */
  thought: number;
  tokens: number;
  slots: Slot[];
}

/** An answer in progress or complete. */
export class Run {
  readonly frames: RunFrame[] = [];
  text = "";
  reasoning = "";
  stats: Stats | null = null;
  reason: Part["finishReason"] = null;
  /** True if the answer has ended. */
  ended = false;
  /** Error that ended the answer early, or `null`. */
  error: unknown = null;
  readonly mode: string;
  /** Number of old messages that did not fit the context. */
  forgotten = 0;
  /** The last message. */
  question = "";
  /** Total time in milliseconds, once it has ended. */
  duration = 0;
  readonly #slotsView: SlotsView;

  constructor(
    readonly engine: Engine,
    readonly options: StreamOptions,
  ) {
    const info = engine.info();
    const { decodeMode = "auto" } = options;
    this.mode = decodeMode === "auto" ? info.defaultDecodeMode : decodeMode;
    this.#slotsView = slotsView(this.mode, info.blockSize ?? DEFAULT_BLOCK);
  }

  /** Runs to the end and stores an error. Calls `each` after each part. */
  async start(messages: readonly ChatMessage[], each: () => void = () => {}): Promise<void> {
    const began = performance.now();
    this.question = String(messages.at(-1)?.content);
    try {
      for await (const part of this.engine.stream(prompt(this.engine, messages), this.options)) {
        this.#record(part);
        each();
      }
    } catch (error) {
      this.error = error;
    }
    this.duration = performance.now() - began;
    this.ended = true;
  }

  /** True if the user cancelled the answer. */
  get stopped(): boolean {
    return this.error !== null && this.options.signal?.aborted === true;
  }

  #record(part: Part): void {
    this.text += part.text;
    this.reasoning += part.reasoning;
    this.stats = part.stats;
    this.reason = part.finishReason;
    const slots = this.#slotsView(part);
    const [length, thought] = [this.text.length, this.reasoning.length];
    this.frames.push({ length, thought, tokens: part.stats.tokens, slots });
  }
}

/** Returns the prompt: the last message for a model without a chat template. */
function prompt(engine: Engine, messages: readonly ChatMessage[]): string | readonly ChatMessage[] {
  return engine.info().chat ? messages : String(messages.at(-1)?.content);
}
