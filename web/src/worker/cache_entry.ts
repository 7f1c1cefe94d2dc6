/** Access to the download cache for one file. */

import {
  type CacheMetadata,
  type CacheStore,
  type CacheWriter,
  type CachedFile,
  cacheKey,
} from "../cache/store.js";
import { messageOf } from "../errors.js";
import type { RemoteFile } from "./download.js";

/**
 * The cache entry of one file. A failing cache does not end the load: the entry is no longer used, and
 * `addNote` receives the reason.
 */
export class CacheEntry {
  #writer: CacheWriter | null = null;
  #fault: string | null = null;

  private constructor(
    readonly store: CacheStore | null,
    readonly key: string,
    readonly remotes: readonly RemoteFile[],
    readonly addNote: (text: string) => void,
  ) {}

  static async create(
    store: CacheStore | null,
    remotes: readonly RemoteFile[],
    addNote: (text: string) => void,
  ): Promise<CacheEntry> {
    const urls = remotes.map((remote) => remote.url);
    // Pages without TLS have no stores, and no `crypto.subtle` for the key.
    if (!store || urls.length === 0) return new CacheEntry(null, "", remotes, addNote);
    return new CacheEntry(store, await cacheKey(urls), remotes, addNote);
  }

  /** True if the file is cached. */
  get enabled(): boolean {
    return this.store !== null;
  }

  /** Reason why the store failed, so that the file is not kept; else `null`. */
  get fault(): string | null {
    return this.#fault;
  }

  /** Returns the cached file, or its beginning. A file that changed on the server is deleted. */
  async find(): Promise<CachedFile | null> {
    const cached = await this.#try((store) => store.find(this.key));
    if (!cached || this.#isCurrent(cached.metadata)) return cached;
    await this.delete();
    return null;
  }

  async delete(): Promise<void> {
    await this.#try((store) => store.delete(this.key));
  }

  /** Begins to write after the first `keepBytes` bytes. */
  async begin(keepBytes: number): Promise<void> {
    const metadata = this.#metadata(null);
    this.#writer = await this.#try((store) => store.write(this.key, metadata, keepBytes));
  }

  async write(chunk: Uint8Array): Promise<void> {
    try {
      await this.#writer?.write(chunk);
    } catch (error) {
      await this.close();
      await this.delete();
      this.#noteFailure(error);
    }
  }

  async finish(sha256: string): Promise<void> {
    const writer = this.#writer;
    this.#writer = null;
    await this.#try(async () => writer?.finish(this.#metadata(sha256)));
  }

  /** Stops writing before the end. */
  async close(): Promise<void> {
    const writer = this.#writer;
    this.#writer = null;
    await this.#try(async () => writer?.close());
  }

  async #try<T>(operation: (store: CacheStore) => Promise<T>): Promise<T | null> {
    try {
      return this.store && (await operation(this.store));
    } catch (error) {
      this.#noteFailure(error);
      return null;
    }
  }

  #noteFailure(error: unknown): void {
    this.#fault ??= cacheFault(error);
    this.addNote(`the cache is not used for ${this.remotes[0]?.url}: ${this.#fault}`);
  }

  #metadata(sha256: string | null): CacheMetadata {
    return {
      urls: this.remotes.map((remote) => remote.url),
      sizes: this.remotes.map((remote) => remote.size),
      validators: this.remotes.map((remote) => remote.validator),
      sha256,
      complete: sha256 !== null,
    };
  }

  /**
   * Returns true if the file did not change on the server. A complete file is used even if the server
   * does not answer; the beginning of a file needs a known size and validator.
   */
  #isCurrent(cached: CacheMetadata): boolean {
    return this.remotes.every((remote, index) => {
      const matches = cached.complete ? equalOrUnknown : equalAndKnown;
      return (
        (cached.complete && !remote.reachable) ||
        (matches(cached.sizes[index], remote.size) &&
          matches(cached.validators[index], remote.validator))
      );
    });
  }
}

/** Returns why a store failed, with what to do about a full one. */
function cacheFault(error: unknown): string {
  const full = error instanceof Error && error.name === "QuotaExceededError";
  if (!full) return messageOf(error);
  return (
    "the browser's quota for this site is used up: delete models that are no longer needed " +
    "(cache.delete), or free space on the device"
  );
}

function equalOrUnknown<T>(cached: T | null | undefined, now: T | null): boolean {
  return cached === null || now === null || cached === now;
}

function equalAndKnown<T>(cached: T | null | undefined, now: T | null): boolean {
  return now !== null && cached === now;
}
