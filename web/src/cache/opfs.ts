/** Download cache in the origin private file system (OPFS), which can resume downloads. */

import type { CachedFile, CacheMetadata, CacheStore, CacheWriter } from "./store.js";

const DIRECTORY = "wrinklefree";

/** Missing in the DOM's types, because only workers have it. */
interface SyncAccessHandle {
  write(chunk: Uint8Array, options: { at: number }): number;
  truncate(size: number): void;
  flush(): void;
  close(): void;
}

interface SyncFileHandle extends FileSystemFileHandle {
  createSyncAccessHandle(): Promise<SyncAccessHandle>;
}

/** Opens the store. Returns `null` if the browser has none or denies access. */
export async function opfs(): Promise<CacheStore | null> {
  try {
    const root = await navigator.storage.getDirectory();
    return new Opfs(await root.getDirectoryHandle(DIRECTORY, { create: true }));
  } catch {
    return null;
  }
}

class Opfs implements CacheStore {
  readonly name = "opfs";

  constructor(readonly directory: FileSystemDirectoryHandle) {}

  async find(key: string): Promise<CachedFile | null> {
    try {
      const metadata = await this.directory.getFileHandle(metadataName(key));
      const bytes = await this.directory.getFileHandle(key);
      const text = await (await metadata.getFile()).text();
      return { metadata: JSON.parse(text) as CacheMetadata, bytes: await bytes.getFile() };
    } catch {
      // The file is missing, or its metadata is incomplete.
      return null;
    }
  }

  async write(key: string, metadata: CacheMetadata, keepBytes: number): Promise<CacheWriter> {
    const bytes = await this.#open(key);
    try {
      bytes.truncate(keepBytes);
      await this.#writeMetadata(key, metadata);
    } catch (error) {
      bytes.close();
      throw error;
    }
    return {
      write: appender(bytes, keepBytes),
      finish: async (final) => {
        bytes.flush();
        bytes.close();
        await this.#writeMetadata(key, final);
      },
      close: async () => {
        bytes.flush();
        bytes.close();
      },
    };
  }

  async delete(key: string): Promise<void> {
    // A file without metadata counts as missing.
    await this.directory.removeEntry(metadataName(key)).catch(() => {});
    await this.directory.removeEntry(key).catch(() => {});
  }

  async #open(name: string): Promise<SyncAccessHandle> {
    const handle = await this.directory.getFileHandle(name, { create: true });
    return (handle as SyncFileHandle).createSyncAccessHandle();
  }

  async #writeMetadata(key: string, metadata: CacheMetadata): Promise<void> {
    const file = await this.#open(metadataName(key));
    try {
      file.truncate(0);
      file.write(new TextEncoder().encode(JSON.stringify(metadata)), { at: 0 });
      file.flush();
    } finally {
      file.close();
    }
  }
}

function metadataName(key: string): string {
  return `${key}.json`;
}

/** Returns a function that appends chunks to a file, from an offset on. */
function appender(file: SyncAccessHandle, from: number): (chunk: Uint8Array) => void {
  let at = from;
  return (chunk) => {
    for (let rest = chunk; rest.length > 0;) {
      const written = file.write(rest, { at });
      if (written === 0) throw new Error("no space is left on the device");
      at += written;
      rest = rest.subarray(written);
    }
  };
}
