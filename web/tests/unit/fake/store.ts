import type { Meta, Store, Writer } from "../../../src/cache/store.js";

/** A cache in memory, which goes on with interrupted files as OPFS does. */
export class MemoryStore implements Store {
  readonly name = "memory";
  readonly files = new Map<string, { meta: Meta; bytes: Buffer }>();

  async find(key: string) {
    const file = this.files.get(key);
    return file ? { meta: file.meta, bytes: new Blob([new Uint8Array(file.bytes)]) } : null;
  }

  async write(key: string, meta: Meta, keep: number): Promise<Writer> {
    const old = this.files.get(key)?.bytes ?? Buffer.alloc(0);
    const file = { meta, bytes: old.subarray(0, keep) };
    this.files.set(key, file);
    return {
      write: (chunk) => void (file.bytes = Buffer.concat([file.bytes, chunk])),
      finish: async (final) => void (file.meta = final),
      leave: async () => {},
    };
  }

  async drop(key: string) {
    this.files.delete(key);
  }
}
