/** The requests in progress, and the parts to send for them. */

import type {
  EngineEvent,
  EndEvent,
  NewOutput,
  Session,
  SlotsEvent,
  StepResult,
  TokenEvent,
} from "../bindings.js";
import type { WirePart, WireRequest } from "../protocol.js";
import { randomId } from "../random_id.js";
import type { Token } from "../types.js";
import { RequestTimer } from "./request_timer.js";

/** Matches unpaired surrogates. */
const LONE_SURROGATES = /\p{Surrogate}/gu;

/** A request in progress. */
interface ActiveRequest {
  /** The page's id of the request. The session has its own. */
  id: number;
  timer: RequestTimer;
  /** Part that was not sent yet. */
  pending: WirePart | null;
}

/** The requests of a session, and their unsent parts. */
export class ActiveRequests {
  readonly #active = new Map<number, ActiveRequest>();
  #parts: WirePart[] = [];
  /** Requests that have failed since the last call of {@link drainFailed}, by the page's ids. */
  #failed: number[] = [];

  constructor(readonly session: Session) {}

  /** True if a request is in progress. */
  get busy(): boolean {
    return this.#active.size > 0;
  }

  /** Submits a request under the page's id. */
  submit(id: number, request: WireRequest): void {
    const sessionId = this.session.submit(requestJson(request));
    this.#active.set(sessionId, { id, timer: new RequestTimer(performance.now()), pending: null });
  }

  /** Cancels a request by the page's id. It has no effect on a request that has ended. */
  cancel(id: number): void {
    for (const [sessionId, request] of this.#active) {
      if (request.id === id) this.session.cancel(sessionId);
    }
  }

  /** Runs one forward pass and collects its events. */
  step(): void {
    const began = performance.now();
    const step = JSON.parse(this.session.step()) as StepResult;
    const ended = performance.now();
    for (const { timer } of this.#active.values()) timer.pass(began, ended);
    for (const event of step.events) this.#handle(event);
  }

  /** Returns all parts since the last call. */
  drainParts(): WirePart[] {
    for (const request of this.#active.values()) this.#flush(request);
    const parts = this.#parts;
    this.#parts = [];
    return parts;
  }

  /** Returns the page's ids of the requests that have failed since the last call. */
  drainFailed(): number[] {
    const failed = this.#failed;
    this.#failed = [];
    return failed;
  }

  #handle(event: EngineEvent): void {
    const request = this.#active.get(event.id);
    if (!request) return;
    switch (event.type) {
      case "token":
        return this.#onToken(request, event);
      case "slots":
        return this.#onSlots(request, event);
      case "end":
        return this.#onEnd(request, event);
    }
  }

  #onToken(request: ActiveRequest, event: TokenEvent): void {
    request.timer.token();
    const part = pendingPart(request);
    addOutput(part, event);
    part.tokens.push(this.#toToken(event));
  }

  /** Each state of a block is shown, so it ends the part. */
  #onSlots(request: ActiveRequest, { slots, snapshot }: SlotsEvent): void {
    if (slots.length === 0 && !snapshot) return;
    const part = pendingPart(request);
    part.provisional = slots;
    part.snapshot = snapshot ?? null;
    this.#flush(request);
  }

  #onEnd(request: ActiveRequest, event: EndEvent): void {
    const part = pendingPart(request);
    addOutput(part, event);
    part.snapshot = event.snapshot ?? null;
    if (event.reason === "model_error") this.#failed.push(request.id);
    else part.finishReason = event.reason;
    this.#flush(request, event);
    this.#active.delete(event.id);
  }

  #flush(request: ActiveRequest, end?: EndEvent): void {
    if (!request.pending) return;
    request.pending.stats = request.timer.stats(end);
    this.#parts.push(request.pending);
    request.pending = null;
  }

  #toToken({ token: id, logprob, top }: TokenEvent): Token {
    if (logprob === undefined) return { id };
    const alternatives = (top ?? []).map(([id, logprob]) => ({
      id,
      text: this.#tokenText(id),
      logprob,
    }));
    return { id, text: this.#tokenText(id), logprob, top: alternatives };
  }

  #tokenText(token: number): string {
    return this.session.detokenize(Uint32Array.of(token));
  }
}

/** Returns a request as the session takes it. */
export function requestJson(request: WireRequest): string {
  return JSON.stringify(request, wellFormed);
}

/** Replaces unpaired surrogates, left where a string was cut: the core refuses them. */
function wellFormed(_: string, value: unknown): unknown {
  return typeof value === "string" ? value.replace(LONE_SURROGATES, "\ufffd") : value;
}

/** Returns the request's unsent part, or begins one. */
function pendingPart(request: ActiveRequest): WirePart {
  const stats = request.timer.stats();
  const output = { text: "", reasoning: "", toolCalls: [], tokens: [], provisional: [] };
  const rest = { snapshot: null, finishReason: null, stats };
  return (request.pending ??= { id: request.id, ...output, ...rest });
}

/** Adds an event's output to a part. A call gets its id when it begins. */
function addOutput(part: WirePart, { text, reasoning, calls }: NewOutput): void {
  part.text += text;
  part.reasoning += reasoning ?? "";
  for (const { index, name, arguments: more } of calls ?? []) {
    const last = part.toolCalls.at(-1);
    if (name !== undefined) {
      part.toolCalls.push({ index, id: `call_${randomId()}`, name, arguments: more });
    } else if (last?.index === index) {
      last.arguments += more;
    } else {
      part.toolCalls.push({ index, arguments: more });
    }
  }
}
