/** Download cache in the origin private file system (OPFS), which can resume downloads. */

import { messageOf } from "../errors.js";
import type { CachedFile, CacheMetadata, CacheStore, CacheWriter, StoredFile } from "./store.js";

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

/** Opens the store. Returns the reason if files cannot be written: none, no access, no handles. */
export async function opfs(): Promise<CacheStore | string> {
  try {
    if (!navigator.storage?.getDirectory) return "OPFS is not available";
    if (!("createSyncAccessHandle" in FileSystemFileHandle.prototype)) {
      return "OPFS has no createSyncAccessHandle";
    }
    const store = new Opfs(await openDirectory(true));
    await store.checkWritable();
    return store;
  } catch (error) {
    return `OPFS denies access (${messageOf(error)})`;
  }
}

/** Opens the store to list and delete files, which pages can without writing handles. */
export async function listableOpfs(): Promise<CacheStore | null> {
  try {
    return new Opfs(await openDirectory(false));
  } catch {
    // There is no OPFS, or nothing was ever kept.
    return null;
  }
}

async function openDirectory(create: boolean): Promise<FileSystemDirectoryHandle> {
  const root = await navigator.storage.getDirectory();
  return root.getDirectoryHandle(DIRECTORY, { create });
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

  async list(): Promise<StoredFile[]> {
    const found: StoredFile[] = [];
    for await (const name of namesIn(this.directory)) {
      const key = /^([0-9a-f]{64})$/.exec(name)?.[1];
      const file = key && (await this.find(key));
      if (file) found.push({ key, metadata: file.metadata, bytes: file.bytes.size });
    }
    return found;
  }

  /** Writes and deletes a file: private windows of some browsers refuse only that. */
  async checkWritable(): Promise<void> {
    const name = `probe-${crypto.getRandomValues(new Uint32Array(2)).join("-")}`;
    const file = await this.#open(name);
    file.close();
    await this.directory.removeEntry(name);
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

/** Yields the names in a directory. The DOM's types lack this method. */
function namesIn(directory: FileSystemDirectoryHandle): AsyncIterable<string> {
  return (directory as unknown as { keys(): AsyncIterable<string> }).keys();
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
      if (written === 0) throw new DOMException("no space is left", "QuotaExceededError");
      at += written;
      rest = rest.subarray(written);
    }
  };
}
