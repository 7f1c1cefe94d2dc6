/** Values on their way from a message handler to `for await`. */
export class Queue<T> {
  readonly #values: T[] = [];
  #error: { reason: unknown } | undefined;
  #wake = () => {};

  push(value: T): void {
    this.#values.push(value);
    this.#wake();
  }

  /** What waits already is dropped: who aborts wants no more. */
  fail(reason: unknown): void {
    this.#error = { reason };
    this.#wake();
  }

  /** The next value; rejects after `fail`. One caller at a time. */
  async next(): Promise<T> {
    while (!this.#error && this.#values.length === 0) {
      await new Promise<void>((resolve) => (this.#wake = resolve));
    }
    if (this.#error) throw this.#error.reason;
    return this.#values.shift() as T;
  }
}
