/** The downloads that this origin keeps, as the package's users see them. */

import { WrinkleFreeError } from "../errors.js";
import { cacheStorage } from "./cache_storage.js";
import { listableOpfs } from "./opfs.js";
import type { CacheStore } from "./store.js";

/** A file that this origin keeps. */
export interface CachedDownload {
  /** URL of the file, or the URLs of its parts. */
  urls: string[];
  /** Bytes that are kept. */
  bytes: number;
  /** True if the whole file is kept; else the next `load` resumes its download. */
  complete: boolean;
  /** SHA-256 in hexadecimal; `null` until the file is complete. */
  sha256: string | null;
  /** Store that keeps the file. */
  store: string;
}

/** Space of this origin, in bytes. A number is `null` if the browser does not report it. */
export interface CacheSize {
  /** Bytes of the downloads. */
  downloads: number;
  /** Bytes that this origin uses for everything. */
  used: number | null;
  /** Bytes that this origin may use. */
  quota: number | null;
}

/** The downloads that this origin keeps. Node keeps none. */
export const cache = {
  /** Returns all files that are kept, whole or in part. */
  async list(): Promise<CachedDownload[]> {
    const found = (await openStores()).map(async (store) => {
      const entries = await store.list();
      return entries.map(({ metadata, bytes }) => {
        const { urls, complete, sha256 } = metadata;
        return { urls, bytes, complete, sha256, store: store.name };
      });
    });
    return (await Promise.all(found)).flat();
  },

  /**
   * Deletes the downloads of these URLs, or all.
   *
   * @returns the number of files deleted
   * @throws {@link WrinkleFreeError} `"bad_request"` for something that is not a URL
   */
  async delete(urls?: string | URL | readonly (string | URL)[]): Promise<number> {
    const wanted = urls === undefined ? null : new Set([urls].flat().map(absolute));
    let deleted = 0;
    for (const store of await openStores()) {
      for (const { key, metadata } of await store.list()) {
        if (wanted && !metadata.urls.some((url) => wanted.has(url))) continue;
        await store.delete(key);
        deleted += 1;
      }
    }
    return deleted;
  },

  /** Returns the space that the downloads take, and what this origin may use. */
  async size(): Promise<CacheSize> {
    const files = await this.list();
    const estimate = await globalThis.navigator?.storage?.estimate?.().catch(() => undefined);
    return {
      downloads: files.reduce((sum, file) => sum + file.bytes, 0),
      used: estimate?.usage ?? null,
      quota: estimate?.quota ?? null,
    };
  },
};

/** Both stores: an earlier version of the browser may have used the other one. */
async function openStores(): Promise<CacheStore[]> {
  const stores = await Promise.all([listableOpfs(), cacheStorage()]);
  return stores.filter((store) => store !== null);
}

function absolute(url: string | URL): string {
  try {
    return new URL(url, (globalThis.location as Location | undefined)?.href).href;
  } catch (error) {
    throw new WrinkleFreeError("bad_request", `${url} is not a URL`, { cause: error });
  }
}
