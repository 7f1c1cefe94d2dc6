import type { Store } from "../cache/store.js";
import { WrinkleFreeError } from "../errors.js";
import type { Glue, Upload } from "../glue.js";
import { lentBytes } from "../lend.js";
import type { WorkerPlatform } from "../platform/platform.js";
import type { ModelFile, Piece } from "../protocol.js";
import type { LoadedFile } from "../types.js";
import { type Bytes, blobBytes } from "./bytes.js";
import { type Remote, download, remote } from "./download.js";
import { Entry } from "./entry.js";
import type { Meter } from "./meter.js";

/** A piece whose size was asked for. */
type Found = { remote: Remote } | { bytes: Bytes };

/** A file whose pieces were asked for. */
export interface FoundFile {
  name: string;
  pieces: Found[];
  /** Bytes; `null` where a server did not say. */
  size: number | null;
}

/** What receiving files needs. */
export interface Receiving {
  Upload: Glue["Upload"];
  store: Store | null;
  /** Expected, by name. */
  sha256: Record<string, string>;
  meter: Meter;
  signal: AbortSignal;
  note(text: string): void;
}

/** Asks where a file's pieces are, and how large. */
export async function find(
  file: ModelFile,
  platform: Pick<WorkerPlatform, "file">,
  signal: AbortSignal,
): Promise<FoundFile> {
  const pieces = await Promise.all(file.pieces.map((piece) => found(piece, platform, signal)));
  const sizes = pieces.map(sizeOf);
  const size = sizes.reduce((sum, size) => (sum === null || size === null ? null : sum + size), 0);
  return { name: file.name, pieces, size };
}

async function found(
  piece: Piece,
  platform: Pick<WorkerPlatform, "file">,
  signal: AbortSignal,
): Promise<Found> {
  if (piece.from === "blob") return { bytes: blobBytes(piece.blob) };
  if (piece.from === "page") return { bytes: lentBytes(piece.port, piece.size) };
  const bytes = await platform.file(piece.url);
  return bytes ? { bytes } : { remote: await remote(piece.url, signal) };
}

function sizeOf(piece: Found): number | null {
  return "remote" in piece ? piece.remote.size : piece.bytes.size;
}

/** A file that is being filled. */
interface Target {
  upload: Upload;
  /** Bytes that are there. */
  length: number;
}

/** Brings a file into wasm memory, from the cache as far as it is there. */
export async function receive(
  file: FoundFile,
  context: Receiving,
): Promise<{ upload: Upload; loaded: LoadedFile }> {
  const remotes = file.pieces.flatMap((piece) => ("remote" in piece ? [piece.remote] : []));
  // A file that is partly local is none that a cache could name by its URLs.
  const whole = remotes.length === file.pieces.length ? remotes : [];
  const entry = await Entry.of(context.store, whole, context.note);
  return (await fromCache(file, entry, context)) ?? (await fromSource(file, entry, context));
}

async function fromCache(file: FoundFile, entry: Entry, context: Receiving) {
  const kept = await entry.find();
  if (!kept?.meta.complete) return null;
  const target = { upload: new context.Upload(file.name, kept.bytes.size), length: 0 };
  context.meter.begin(file.name, true);
  const sha256 = await guarded(target, async () => {
    await fill(target, blobBytes(kept.bytes).chunks(0), context);
    return target.upload.sha256();
  });
  if (sha256 === kept.meta.sha256 && fits(file, sha256, context)) {
    return done(file, target, context, { cached: true, sha256 });
  }
  target.upload.free();
  context.meter.undo();
  context.note(`${file.name}: the cached file was damaged or another, and is downloaded anew`);
  await entry.drop();
  return null;
}

async function fromSource(file: FoundFile, entry: Entry, context: Receiving) {
  const target = { upload: new context.Upload(file.name, file.size ?? 0), length: 0 };
  context.meter.begin(file.name, false);
  const sha256 = await guarded(target, async () => {
    try {
      const kept = await entry.find();
      if (kept) await fill(target, blobBytes(kept.bytes).chunks(0), context);
      await entry.begin(target.length);
      for (const chunks of rest(file, target.length, context.signal)) {
        await fill(target, chunks, context, entry);
      }
      return await checked(file, target.upload, entry, context);
    } finally {
      await entry.leave();
    }
  });
  return done(file, target, context, { cached: false, sha256 });
}

/** Gives the memory back if this fails. */
async function guarded<T>({ upload }: Target, what: () => Promise<T>): Promise<T> {
  try {
    return await what();
  } catch (error) {
    upload.free();
    throw error;
  }
}

function done(
  { name }: FoundFile,
  { upload, length }: Target,
  { meter }: Receiving,
  how: Pick<LoadedFile, "cached" | "sha256">,
) {
  meter.end();
  return { upload, loaded: { name, bytes: length, ...how } };
}

/** What is missing of a file of which the first bytes are there. */
function* rest(file: FoundFile, have: number, signal: AbortSignal) {
  for (const piece of file.pieces) {
    // An unknown size ends the known beginning: such files are never taken up again.
    const skip = Math.min(have, sizeOf(piece) ?? 0);
    have -= skip;
    yield "remote" in piece ? download(piece.remote, skip, signal) : piece.bytes.chunks(skip);
  }
}

async function fill(
  target: Target,
  chunks: AsyncIterable<Uint8Array>,
  { signal, meter }: Receiving,
  entry?: Entry,
): Promise<void> {
  for await (const chunk of chunks) {
    signal.throwIfAborted();
    target.upload.write(chunk);
    target.length += chunk.length;
    await entry?.write(chunk);
    meter.add(chunk.length);
  }
}

/** The hash, where it is expected or kept; hashing gigabytes for nobody would take seconds. */
async function checked(
  file: FoundFile,
  upload: Upload,
  entry: Entry,
  context: Receiving,
): Promise<string | null> {
  if (!entry.used && !Object.hasOwn(context.sha256, file.name)) return null;
  const sha256 = upload.sha256();
  if (!fits(file, sha256, context)) {
    await entry.leave();
    await entry.drop();
    throw new WrinkleFreeError(
      "hash_mismatch",
      `${file.name}: SHA-256 is ${sha256}, expected was ${context.sha256[file.name]}`,
    );
  }
  await entry.finish(sha256);
  return sha256;
}

function fits(file: FoundFile, sha256: string, context: Receiving): boolean {
  const { name } = file;
  return !Object.hasOwn(context.sha256, name) || context.sha256[name]?.toLowerCase() === sha256;
}
