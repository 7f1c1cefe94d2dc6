/** Interface of the stores that keep downloaded files. */

/** Metadata of a cached file. */
export interface CacheMetadata {
  /** URLs of the file's segments, in order. */
  urls: string[];
  /** Bytes of each segment; `null` if its server did not report a length. */
  sizes: (number | null)[];
  /** ETag or Last-Modified of each segment. */
  validators: (string | null)[];
  /** SHA-256 of the whole file in hexadecimal; `null` while it is incomplete. */
  sha256: string | null;
  /** True if the file is complete. */
  complete: boolean;
}

/** A cached file, or its beginning. */
export interface CachedFile {
  metadata: CacheMetadata;
  bytes: Blob;
}

/** Writer of one file. */
export interface CacheWriter {
  write(chunk: Uint8Array): void | Promise<void>;
  /** Completes the file. */
  finish(metadata: CacheMetadata): Promise<void>;
  /** Stops before the end. A store that can resume downloads keeps the bytes written so far. */
  close(): Promise<void>;
}

/** An entry of a store. */
export interface StoredFile {
  key: string;
  metadata: CacheMetadata;
  /** Number of bytes that are kept. */
  bytes: number;
}

/** A store of downloaded files. */
export interface CacheStore {
  readonly name: string;
  find(key: string): Promise<CachedFile | null>;
  /** Writes a file after its first `keepBytes` bytes, which the store has already. */
  write(key: string, metadata: CacheMetadata, keepBytes: number): Promise<CacheWriter>;
  delete(key: string): Promise<void>;
  /** Returns all entries. */
  list(): Promise<StoredFile[]>;
}

/** Returns the key of a file: a name that every store accepts. */
export async function cacheKey(urls: readonly string[]): Promise<string> {
  const text = new TextEncoder().encode(urls.join("\n"));
  const digest = await crypto.subtle.digest("SHA-256", text);
  return [...new Uint8Array(digest)].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}
