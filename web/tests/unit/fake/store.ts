import type { CacheMetadata, CacheStore, CacheWriter } from "../../../src/cache/store.js";

/** A cache in memory that resumes interrupted files, as OPFS does. */
export class MemoryStore implements CacheStore {
  readonly name = "memory";
  readonly files = new Map<string, { metadata: CacheMetadata; bytes: Buffer }>();

  async find(key: string) {
    const file = this.files.get(key);
    return file ? { metadata: file.metadata, bytes: new Blob([new Uint8Array(file.bytes)]) } : null;
  }

  async write(key: string, metadata: CacheMetadata, keepBytes: number): Promise<CacheWriter> {
    const old = this.files.get(key)?.bytes ?? Buffer.alloc(0);
    const file = { metadata, bytes: old.subarray(0, keepBytes) };
    this.files.set(key, file);
    return {
      write: (chunk) => void (file.bytes = Buffer.concat([file.bytes, chunk])),
      finish: async (final) => void (file.metadata = final),
      close: async () => {},
    };
  }

  async delete(key: string) {
    this.files.delete(key);
  }

  async list() {
    return [...this.files].map(([key, { metadata, bytes }]) => ({
      ...{ key, metadata },
      bytes: bytes.length,
    }));
  }
}
