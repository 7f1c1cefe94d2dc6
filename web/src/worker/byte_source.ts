/** Local bytes of known length. */

/** Bytes of known length that can be read from any offset. */
export interface ByteSource {
  readonly size: number;
  chunks(from: number): AsyncIterable<Uint8Array>;
}

/** Reads a blob in chunks. */
export function blobSource(blob: Blob): ByteSource {
  return { size: blob.size, chunks: (from) => streamChunks(blob.slice(from).stream()) };
}

/** Yields the chunks of a stream. Safari's streams are not iterable. */
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
