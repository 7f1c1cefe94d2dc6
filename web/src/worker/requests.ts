import type { Event, EndEvent, Session, SlotsEvent, Step, TokenEvent } from "../glue.js";
import type { WirePart, WireRequest } from "../protocol.js";
import type { Token } from "../types.js";
import { Clock } from "./clock.js";

/** Surrogates without their other half. */
const LONE = /\p{Surrogate}/gu;

/** One request that runs. */
interface Running {
  /** The page's number for it; the session has its own. */
  id: number;
  clock: Clock;
  /** What is not yet sent. */
  open: WirePart | null;
}

/** The requests of a session, and what is new about them. */
export class Requests {
  readonly #running = new Map<number, Running>();
  #parts: WirePart[] = [];

  constructor(readonly session: Session) {}

  get busy(): boolean {
    return this.#running.size > 0;
  }

  submit(id: number, request: WireRequest): void {
    const number = this.session.submit(JSON.stringify(request, wellFormed));
    this.#running.set(number, { id, clock: new Clock(performance.now()), open: null });
  }

  /** Cancels by the page's number; one that has ended already is left alone. */
  cancel(id: number): void {
    for (const [number, running] of this.#running) {
      if (running.id === id) this.session.cancel(number);
    }
  }

  /** One pass. */
  step(): void {
    const began = performance.now();
    const step = JSON.parse(this.session.step()) as Step;
    const ended = performance.now();
    for (const { clock } of this.#running.values()) clock.pass(began, ended);
    for (const event of step.events) this.#take(event);
  }

  /** All that is new since the last time. */
  take(): WirePart[] {
    for (const running of this.#running.values()) this.#close(running);
    const parts = this.#parts;
    this.#parts = [];
    return parts;
  }

  #take(event: Event): void {
    const running = this.#running.get(event.id);
    if (!running) return;
    switch (event.type) {
      case "token":
        return this.#token(running, event);
      case "slots":
        return this.#slots(running, event);
      case "end":
        return this.#end(running, event);
    }
  }

  #token(running: Running, event: TokenEvent): void {
    running.clock.token();
    const part = opened(running);
    part.text += event.text;
    part.tokens.push(this.#described(event));
  }

  /** A block in the making is to be seen pass by pass, so it ends the part. */
  #slots(running: Running, { slots }: SlotsEvent): void {
    if (slots.length === 0) return;
    opened(running).provisional = slots;
    this.#close(running);
  }

  #end(running: Running, event: EndEvent): void {
    const part = opened(running);
    part.text += event.text;
    part.finishReason = event.reason;
    this.#close(running, event);
    this.#running.delete(event.id);
  }

  #close(running: Running, end?: EndEvent): void {
    if (!running.open) return;
    running.open.stats = running.clock.stats(end);
    this.#parts.push(running.open);
    running.open = null;
  }

  #described({ token: id, logprob, top }: TokenEvent): Token {
    if (logprob === undefined) return { id };
    const alternatives = (top ?? []).map(([id, logprob]) => ({
      id,
      text: this.#text(id),
      logprob,
    }));
    return { id, text: this.#text(id), logprob, top: alternatives };
  }

  #text(token: number): string {
    return this.session.detokenize(Uint32Array.of(token));
  }
}

/** Half of a surrogate pair, left where a text was cut, is no text to the core. */
function wellFormed(_: string, value: unknown): unknown {
  return typeof value === "string" ? value.replace(LONE, "\ufffd") : value;
}

function opened(running: Running): WirePart {
  const stats = running.clock.stats();
  const fresh = { id: running.id, text: "", tokens: [], provisional: [], finishReason: null };
  return (running.open ??= { ...fresh, stats });
}
