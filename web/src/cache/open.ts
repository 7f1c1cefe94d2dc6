import { cacheStorage } from "./cache_storage.js";
import { opfs } from "./opfs.js";
import type { CacheStore } from "./store.js";

/** Opens the best store for downloads, with the reason for the choice. */
export async function openStore(
  enabled: boolean,
): Promise<{ store: CacheStore | null; why: string }> {
  if (!enabled) return { store: null, why: "off: requested" };
  const best = await opfs();
  if (typeof best !== "string") return { store: best, why: best.name };
  const store = await cacheStorage();
  if (store) return { store, why: `${store.name}: ${best}` };
  return { store: null, why: "off: neither OPFS nor Cache Storage is available" };
}
