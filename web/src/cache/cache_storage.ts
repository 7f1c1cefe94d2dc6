/** Cache Storage, where there is no file system. It keeps whole files only. */

import type { Kept, Meta, Store, Writer } from "./store.js";

const NAME = "wrinklefree";

/** The store; `null` where the browser has none, or does not let us. */
export async function cacheStorage(): Promise<Store | null> {
  try {
    return new CacheStore(await caches.open(NAME));
  } catch {
    return null;
  }
}

class CacheStore implements Store {
  readonly name = "cache-storage";

  constructor(readonly cache: Cache) {}

  async find(key: string): Promise<Kept | null> {
    const meta = await this.cache.match(metaUrl(key));
    const bytes = await this.cache.match(bytesUrl(key));
    if (!meta || !bytes) return null;
    return { meta: (await meta.json()) as Meta, bytes: await bytes.blob() };
  }

  async write(key: string): Promise<Writer> {
    const { readable, writable } = new TransformStream<Uint8Array, Uint8Array>();
    const writer = writable.getWriter();
    const stored = this.cache.put(bytesUrl(key), new Response(readable));
    // Told by the write that fails, or by `finish`.
    stored.catch(() => {});
    writer.closed.catch(() => {});
    return {
      write: (chunk) => Promise.race([writer.write(chunk), stored]),
      finish: async (meta) => {
        await writer.close();
        await stored;
        await this.cache.put(metaUrl(key), new Response(JSON.stringify(meta)));
      },
      leave: () => writer.abort(),
    };
  }

  async drop(key: string): Promise<void> {
    await this.cache.delete(metaUrl(key));
    await this.cache.delete(bytesUrl(key));
  }
}

/** Cache Storage wants requests; nothing is ever fetched from these. */
function bytesUrl(key: string): string {
  return new URL(`/.wrinklefree/${key}`, location.origin).href;
}

function metaUrl(key: string): string {
  return `${bytesUrl(key)}.json`;
}
