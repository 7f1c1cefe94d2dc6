import type { EndEvent } from "../glue.js";
import type { Stats } from "../types.js";

/** Measures one request. Times are in milliseconds. */
export class Clock {
  #first: number | null = null;
  #last: number;
  #passing = 0;
  #tokens = 0;

  constructor(readonly submitted: number) {
    this.#last = submitted;
  }

  /** A pass in which this request took part, or waited for its turn. */
  pass(began: number, ended: number): void {
    if (this.#first === null) this.#passing += ended - began;
    this.#last = ended;
  }

  /** A token of the latest pass. */
  token(): void {
    this.#first ??= this.#last;
    this.#tokens += 1;
  }

  stats(end?: EndEvent): Stats {
    const first = this.#first;
    const computed = end ? end.prompt_tokens - end.cached_tokens : null;
    return {
      tokens: end?.generated_tokens ?? this.#tokens,
      promptTokens: end?.prompt_tokens ?? null,
      cachedTokens: end?.cached_tokens ?? null,
      passes: end?.passes ?? null,
      tokensPerPass: end ? ratio(end.generated_tokens, end.passes) : null,
      tokensPerSecond: first === null ? null : perSecond(this.#tokens - 1, this.#last - first),
      timeToFirstToken: first === null ? null : first - this.submitted,
      prefillTokensPerSecond: computed === null ? null : perSecond(computed, this.#passing),
    };
  }
}

function ratio(a: number, b: number): number | null {
  return b > 0 ? a / b : null;
}

function perSecond(count: number, milliseconds: number): number | null {
  return count > 0 ? ratio(count * 1000, milliseconds) : null;
}
