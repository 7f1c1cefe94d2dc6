/** The origin's private file system. Interrupted downloads go on from what is there. */

import type { Kept, Meta, Store, Writer } from "./store.js";

const DIRECTORY = "wrinklefree";

/** Workers only, so not in the DOM's types. */
interface SyncAccessHandle {
  write(chunk: Uint8Array, options: { at: number }): number;
  truncate(size: number): void;
  flush(): void;
  close(): void;
}

interface SyncFileHandle extends FileSystemFileHandle {
  createSyncAccessHandle(): Promise<SyncAccessHandle>;
}

/** The store; `null` where the browser has none, or does not let us. */
export async function opfs(): Promise<Store | null> {
  try {
    const root = await navigator.storage.getDirectory();
    return new Opfs(await root.getDirectoryHandle(DIRECTORY, { create: true }));
  } catch {
    return null;
  }
}

class Opfs implements Store {
  readonly name = "opfs";

  constructor(readonly directory: FileSystemDirectoryHandle) {}

  async find(key: string): Promise<Kept | null> {
    try {
      const meta = await this.directory.getFileHandle(metaName(key));
      const bytes = await this.directory.getFileHandle(key);
      const text = await (await meta.getFile()).text();
      return { meta: JSON.parse(text) as Meta, bytes: await bytes.getFile() };
    } catch {
      // Nothing there, or half written: either way there is nothing to go on with.
      return null;
    }
  }

  async write(key: string, meta: Meta, keep: number): Promise<Writer> {
    const bytes = await this.#open(key);
    try {
      bytes.truncate(keep);
      await this.#writeMeta(key, meta);
    } catch (error) {
      bytes.close();
      throw error;
    }
    return {
      write: appender(bytes, keep),
      finish: async (final) => {
        bytes.flush();
        bytes.close();
        await this.#writeMeta(key, final);
      },
      leave: async () => {
        bytes.flush();
        bytes.close();
      },
    };
  }

  async drop(key: string): Promise<void> {
    // Without its meta data a file counts as not there.
    await this.directory.removeEntry(metaName(key)).catch(() => {});
    await this.directory.removeEntry(key).catch(() => {});
  }

  async #open(name: string): Promise<SyncAccessHandle> {
    const handle = await this.directory.getFileHandle(name, { create: true });
    return (handle as SyncFileHandle).createSyncAccessHandle();
  }

  async #writeMeta(key: string, meta: Meta): Promise<void> {
    const file = await this.#open(metaName(key));
    try {
      file.truncate(0);
      file.write(new TextEncoder().encode(JSON.stringify(meta)), { at: 0 });
      file.flush();
    } finally {
      file.close();
    }
  }
}

function metaName(key: string): string {
  return `${key}.json`;
}

function appender(file: SyncAccessHandle, from: number): (chunk: Uint8Array) => void {
  let at = from;
  return (chunk) => {
    for (let rest = chunk; rest.length > 0;) {
      const written = file.write(rest, { at });
      if (written === 0) throw new Error("no space is left");
      at += written;
      rest = rest.subarray(written);
    }
  };
}
