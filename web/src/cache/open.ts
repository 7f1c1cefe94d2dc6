import { cacheStorage } from "./cache_storage.js";
import { opfs } from "./opfs.js";
import type { Store } from "./store.js";

/** The place for downloads, and why it is this one. */
export async function openStore(wanted: boolean): Promise<{ store: Store | null; why: string }> {
  if (!wanted) return { store: null, why: "off: asked for" };
  const store = (await opfs()) ?? (await cacheStorage());
  return { store, why: store?.name ?? "off: neither OPFS nor Cache Storage is there" };
}
