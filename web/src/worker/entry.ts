import { type Kept, type Meta, type Store, type Writer, keyOf } from "../cache/store.js";
import type { Remote } from "./download.js";

/**
 * The cache's entry for one file, or the lack of one. A cache that fails does not end the load:
 * the entry is left alone from then on, and `note` hears why.
 */
export class Entry {
  #writer: Writer | null = null;

  private constructor(
    readonly store: Store | null,
    readonly key: string,
    readonly remotes: readonly Remote[],
    readonly note: (text: string) => void,
  ) {}

  static async of(
    store: Store | null,
    remotes: readonly Remote[],
    note: (text: string) => void,
  ): Promise<Entry> {
    const urls = remotes.map((remote) => remote.url);
    // Pages without TLS have no stores, and nothing to make keys with.
    if (!store || urls.length === 0) return new Entry(null, "", remotes, note);
    return new Entry(store, await keyOf(urls), remotes, note);
  }

  /** Whether there is a cache for this file. */
  get used(): boolean {
    return this.store !== null;
  }

  /** What is kept of the file as it is on the server now. An older one is dropped. */
  async find(): Promise<Kept | null> {
    const kept = await this.#try((store) => store.find(this.key));
    if (!kept || this.#current(kept.meta)) return kept;
    await this.drop();
    return null;
  }

  async drop(): Promise<void> {
    await this.#try((store) => store.drop(this.key));
  }

  /** Begins to write, after what is kept. */
  async begin(keep: number): Promise<void> {
    this.#writer = await this.#try((store) => store.write(this.key, this.#meta(null), keep));
  }

  async write(chunk: Uint8Array): Promise<void> {
    try {
      await this.#writer?.write(chunk);
    } catch (error) {
      await this.leave();
      await this.drop();
      this.#say(error);
    }
  }

  async finish(sha256: string): Promise<void> {
    const writer = this.#writer;
    this.#writer = null;
    await this.#try(async () => writer?.finish(this.#meta(sha256)));
  }

  /** Ends writing early. */
  async leave(): Promise<void> {
    const writer = this.#writer;
    this.#writer = null;
    await this.#try(async () => writer?.leave());
  }

  async #try<T>(what: (store: Store) => Promise<T>): Promise<T | null> {
    try {
      return this.store && (await what(this.store));
    } catch (error) {
      this.#say(error);
      return null;
    }
  }

  #say(error: unknown): void {
    const message = error instanceof Error ? error.message : String(error);
    this.note(`the cache was not used for ${this.remotes[0]?.url}: ${message}`);
  }

  #meta(sha256: string | null): Meta {
    return {
      urls: this.remotes.map((remote) => remote.url),
      sizes: this.remotes.map((remote) => remote.size),
      validators: this.remotes.map((remote) => remote.validator),
      sha256,
      complete: sha256 !== null,
    };
  }

  /** A complete file may be one that the server does not speak of; a beginning must be known. */
  #current(meta: Meta): boolean {
    return this.remotes.every((remote, index) => {
      const fits = meta.complete ? compatible : equal;
      return (
        (meta.complete && !remote.reached) ||
        (fits(meta.sizes[index], remote.size) && fits(meta.validators[index], remote.validator))
      );
    });
  }
}

function compatible<T>(kept: T | null | undefined, now: T | null): boolean {
  return kept === null || now === null || kept === now;
}

function equal<T>(kept: T | null | undefined, now: T | null): boolean {
  return now !== null && kept === now;
}
