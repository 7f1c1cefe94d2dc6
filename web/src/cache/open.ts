import { cacheStorage } from "./cache_storage.js";
import { opfs } from "./opfs.js";
import type { CacheStore } from "./store.js";

/** Opens the best store for downloads, with the reason for the choice. */
export async function openStore(
  enabled: boolean,
): Promise<{ store: CacheStore | null; why: string }> {
  if (!enabled) return { store: null, why: "off: requested" };
  const store = (await opfs()) ?? (await cacheStorage());
  return { store, why: store?.name ?? "off: neither OPFS nor Cache Storage is available" };
}
