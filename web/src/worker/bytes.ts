/** Bytes of known length that can be read from any place on. */
export interface Bytes {
  readonly size: number;
  chunks(from: number): AsyncIterable<Uint8Array>;
}

/** The bytes of a blob, without reading it at once. */
export function blobBytes(blob: Blob): Bytes {
  return { size: blob.size, chunks: (from) => streamChunks(blob.slice(from).stream()) };
}

/** The chunks of a stream. Safari's streams are not iterable. */
export async function* streamChunks(
  stream: ReadableStream<Uint8Array>,
): AsyncGenerator<Uint8Array, void, undefined> {
  const reader = stream.getReader();
  let ended = false;
  try {
    for (;;) {
      const { done, value } = await reader.read();
      ended = done;
      if (done) return;
      yield value;
    }
  } finally {
    if (!ended) await reader.cancel().catch(() => {});
  }
}
