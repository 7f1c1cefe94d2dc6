/**
 * Lends a buffer of the page to the worker chunk by chunk: to send it whole would copy it, and to
 * transfer it would take it from its owner.
 */

import { WrinkleFreeError } from "./errors.js";
import type { ModelFile, Piece } from "./protocol.js";
import type { SourceFile, SourcePiece } from "./sources.js";
import type { Bytes } from "./worker/bytes.js";

/** Bytes of a chunk. */
const CHUNK = 4 << 20;

/** What a chunk is where the page's buffer has lost its bytes meanwhile. */
const GONE = "gone";

/** A file whose buffers are lent. */
export function lent({ name, pieces }: SourceFile): ModelFile {
  const lentPiece = (piece: SourcePiece): Piece =>
    piece.from === "buffer" ? { from: "page", ...lend(piece.buffer) } : piece;
  return { name, pieces: pieces.map(lentPiece) };
}

/** The page's side. The port serves until the worker closes it. */
export function lend(source: ArrayBuffer | Uint8Array): { port: MessagePort; size: number } {
  // A view of our own: `slice` copies for a Uint8Array, but not for Node's subclass Buffer.
  const bytes = ArrayBuffer.isView(source)
    ? new Uint8Array(source.buffer, source.byteOffset, source.byteLength)
    : new Uint8Array(source);
  const { port1, port2 } = new MessageChannel();
  port1.onmessage = ({ data: from }: MessageEvent<number>) => {
    // Of a buffer that was transferred nothing is left.
    if (from >= bytes.length) return port1.postMessage(GONE);
    const chunk = bytes.slice(from, from + CHUNK);
    port1.postMessage(chunk, [chunk.buffer]);
  };
  // In Node it would keep the process alive if nobody ever asks.
  (port1 as { unref?(): void }).unref?.();
  return { port: port2, size: bytes.length };
}

/** The worker's side. */
export function lentBytes(port: MessagePort, size: number): Bytes {
  return { size, chunks: (from) => lentChunks(port, from, size) };
}

async function* lentChunks(port: MessagePort, from: number, size: number) {
  try {
    for (let at = from; at < size;) {
      const chunk = await ask(port, at);
      at += chunk.length;
      yield chunk;
    }
  } finally {
    port.close();
  }
}

function ask(port: MessagePort, from: number): Promise<Uint8Array> {
  return new Promise((resolve, reject) => {
    port.onmessage = ({ data }: MessageEvent<Uint8Array | typeof GONE>) => {
      if (data !== GONE) return resolve(data);
      reject(new WrinkleFreeError("bad_source", "the buffer was transferred while it was loaded"));
    };
    port.postMessage(from);
  });
}
