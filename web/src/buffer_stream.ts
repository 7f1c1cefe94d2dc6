/**
 * Sends a buffer of the page to the worker chunk by chunk. Posting the whole buffer would copy it at
 * once, and transferring it would detach it from its owner.
 */

import { WrinkleFreeError } from "./errors.js";
import type { ModelFile, FileSegment } from "./protocol.js";
import type { SourceFile, SourceSegment } from "./sources.js";
import type { ByteSource } from "./worker/byte_source.js";

/** Maximum number of bytes of a chunk. */
const CHUNK = 4 << 20;

/** Answer to a request for a chunk of a buffer that was detached in the meantime. */
const DETACHED = "detached";

/** Replaces a file's buffers by ports that serve them. */
export function withServedBuffers({ name, segments }: SourceFile): ModelFile {
  const served = (segment: SourceSegment): FileSegment =>
    segment.from === "buffer" ? { from: "page", ...serveBuffer(segment.buffer) } : segment;
  return { name, segments: segments.map(served) };
}

/** Serves a buffer from the page. The port stays open until the worker closes it. */
export function serveBuffer(source: ArrayBuffer | Uint8Array): { port: MessagePort; size: number } {
  // `slice` copies for a Uint8Array, but not for its subclass Buffer in Node.
  const bytes = ArrayBuffer.isView(source)
    ? new Uint8Array(source.buffer, source.byteOffset, source.byteLength)
    : new Uint8Array(source);
  const { port1, port2 } = new MessageChannel();
  port1.onmessage = ({ data: from }: MessageEvent<number>) => {
    // A detached buffer has length 0.
    if (from >= bytes.length) return port1.postMessage(DETACHED);
    const chunk = bytes.slice(from, from + CHUNK);
    port1.postMessage(chunk, [chunk.buffer]);
  };
  // In Node an open port would keep the process alive.
  (port1 as { unref?(): void }).unref?.();
  return { port: port2, size: bytes.length };
}

/** Reads a served buffer in the worker. */
export function bufferSource(port: MessagePort, size: number): ByteSource {
  return { size, chunks: (from) => bufferChunks(port, from, size) };
}

async function* bufferChunks(port: MessagePort, from: number, size: number) {
  try {
    for (let at = from; at < size;) {
      const chunk = await requestChunk(port, at);
      at += chunk.length;
      yield chunk;
    }
  } finally {
    port.close();
  }
}

function requestChunk(port: MessagePort, from: number): Promise<Uint8Array> {
  return new Promise((resolve, reject) => {
    port.onmessage = ({ data }: MessageEvent<Uint8Array | typeof DETACHED>) => {
      if (data !== DETACHED) return resolve(data);
      reject(new WrinkleFreeError("bad_source", "the buffer was transferred while it was loaded"));
    };
    port.postMessage(from);
  });
}
