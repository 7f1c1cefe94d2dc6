/** Where downloads are kept. */

/** What is known about a kept file, beside its bytes. */
export interface Meta {
  /** Of its pieces, in order. */
  urls: string[];
  /** Bytes; `null` where no server said. */
  sizes: (number | null)[];
  validators: (string | null)[];
  /** Hex, of all bytes. */
  sha256: string | null;
  /** All bytes are there. */
  complete: boolean;
}

/** A kept file, maybe only its beginning. */
export interface Kept {
  meta: Meta;
  bytes: Blob;
}

/** A file that is being written. */
export interface Writer {
  write(chunk: Uint8Array): void | Promise<void>;
  /** All bytes are there. */
  finish(meta: Meta): Promise<void>;
  /** No more bytes will come. What came is kept where the store can go on with it. */
  leave(): Promise<void>;
}

/** A place in which downloads are kept. */
export interface Store {
  readonly name: string;
  find(key: string): Promise<Kept | null>;
  /** Writes a file, after its first `keep` bytes, which are there already. */
  write(key: string, meta: Meta, keep: number): Promise<Writer>;
  drop(key: string): Promise<void>;
}

/** The key of a file: a name that every store takes. */
export async function keyOf(urls: readonly string[]): Promise<string> {
  const text = new TextEncoder().encode(urls.join("\n"));
  const digest = await crypto.subtle.digest("SHA-256", text);
  return [...new Uint8Array(digest)].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}
