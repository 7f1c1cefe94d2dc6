/** A queue from a message handler to one `for await` loop. */
export class AsyncQueue<T> {
  readonly #values: T[] = [];
  #error: { reason: unknown } | undefined;
  #wake = () => {};

  /** Appends a value. */
  push(value: T): void {
    this.#values.push(value);
    this.#wake();
  }

  /** Makes `next` reject. Values in the queue are dropped: a cancelled caller needs none. */
  fail(reason: unknown): void {
    this.#error = { reason };
    this.#wake();
  }

  /** Returns the next value, or rejects after `fail`. Only one call may wait at a time. */
  async next(): Promise<T> {
    while (!this.#error && this.#values.length === 0) {
      await new Promise<void>((resolve) => (this.#wake = resolve));
    }
    if (this.#error) throw this.#error.reason;
    return this.#values.shift() as T;
  }
}
