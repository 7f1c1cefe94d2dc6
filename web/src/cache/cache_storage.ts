/** Download cache in Cache Storage, for browsers without OPFS. It keeps complete files only. */

import type { CachedFile, CacheMetadata, CacheStore, CacheWriter, StoredFile } from "./store.js";

const NAME = "wrinklefree";

/** Opens the store. Returns `null` if the browser has none or denies access. */
export async function cacheStorage(): Promise<CacheStore | null> {
  try {
    return new CacheStorageStore(await caches.open(NAME));
  } catch {
    return null;
  }
}

class CacheStorageStore implements CacheStore {
  readonly name = "cache-storage";

  constructor(readonly cache: Cache) {}

  async find(key: string): Promise<CachedFile | null> {
    const metadata = await this.cache.match(metadataUrl(key));
    const bytes = await this.cache.match(bytesUrl(key));
    if (!metadata || !bytes) return null;
    return { metadata: (await metadata.json()) as CacheMetadata, bytes: await bytes.blob() };
  }

  async write(key: string): Promise<CacheWriter> {
    const { readable, writable } = new TransformStream<Uint8Array, Uint8Array>();
    const writer = writable.getWriter();
    const stored = this.cache.put(bytesUrl(key), new Response(readable));
    // A failed write, or `finish`, reports these errors.
    stored.catch(() => {});
    writer.closed.catch(() => {});
    return {
      write: (chunk) => Promise.race([writer.write(chunk), stored]),
      finish: async (metadata) => {
        await writer.close();
        await stored;
        await this.cache.put(metadataUrl(key), new Response(JSON.stringify(metadata)));
      },
      close: () => writer.abort(),
    };
  }

  async list(): Promise<StoredFile[]> {
    const found: StoredFile[] = [];
    for (const { url } of await this.cache.keys()) {
      const key = /\/([0-9a-f]{64})\.json$/.exec(url)?.[1];
      const file = key && (await this.find(key));
      if (file) found.push({ key, metadata: file.metadata, bytes: file.bytes.size });
    }
    return found;
  }

  async delete(key: string): Promise<void> {
    await this.cache.delete(metadataUrl(key));
    await this.cache.delete(bytesUrl(key));
  }
}

/** URL under which Cache Storage keeps a file. Nothing is ever fetched from it. */
function bytesUrl(key: string): string {
  return new URL(`/.wrinklefree/${key}`, location.origin).href;
}

function metadataUrl(key: string): string {
  return `${bytesUrl(key)}.json`;
}
