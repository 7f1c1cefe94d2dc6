/** Time measurement of requests. */

import type { EndEvent } from "../bindings.js";
import type { Stats } from "../types.js";

/** Measures one request, in milliseconds. */
export class RequestTimer {
  #firstTokenAt: number | null = null;
  #lastPassAt: number;
  #prefillTime = 0;
  #tokens = 0;

  constructor(readonly submitted: number) {
    this.#lastPassAt = submitted;
  }

  /** Counts a forward pass in which the request took part or waited. */
  pass(began: number, ended: number): void {
    if (this.#firstTokenAt === null) this.#prefillTime += ended - began;
    this.#lastPassAt = ended;
  }

  /** Counts a token of the last pass. */
  token(): void {
    this.#firstTokenAt ??= this.#lastPassAt;
    this.#tokens += 1;
  }

  /** Returns the statistics so far, or with the end event the final ones. */
  stats(end?: EndEvent): Stats {
    const first = this.#firstTokenAt;
    const elapsed = first === null ? null : this.#lastPassAt - first;
    const computed = end ? end.prompt_tokens - end.cached_tokens : null;
    return {
      tokens: end?.generated_tokens ?? this.#tokens,
      promptTokens: end?.prompt_tokens ?? null,
      cachedTokens: end?.cached_tokens ?? null,
      passes: end?.passes ?? null,
      draftedTokens: end?.drafted_tokens ?? null,
      acceptedTokens: end?.accepted_tokens ?? null,
      tokensPerPass: end ? ratio(end.generated_tokens, end.passes) : null,
      tokensPerSecond: elapsed === null ? null : perSecond(this.#tokens - 1, elapsed),
      timeToFirstToken: first === null ? null : first - this.submitted,
      prefillTokensPerSecond: computed === null ? null : perSecond(computed, this.#prefillTime),
    };
  }
}

function ratio(a: number, b: number): number | null {
  return b > 0 ? a / b : null;
}

function perSecond(count: number, milliseconds: number): number | null {
  return count > 0 ? ratio(count * 1000, milliseconds) : null;
}
