/** Reading of the model's files into wasm memory. */

import type { CacheStore } from "../cache/store.js";
import { WrinkleFreeError } from "../errors.js";
import type { WasmBindings, Upload } from "../bindings.js";
import { bufferSource } from "../buffer_stream.js";
import type { WorkerPlatform } from "../platform/platform.js";
import type { ModelFile, FileSegment } from "../protocol.js";
import type { LoadedFile } from "../types.js";
import { type ByteSource, blobSource } from "./byte_source.js";
import { type RemoteFile, download, probe } from "./download.js";
import { CacheEntry } from "./cache_entry.js";
import type { FileProgress, ProgressReporter } from "./progress_reporter.js";

/** A segment whose size is known, or whose server was asked for it. */
type LocatedSegment = { remote: RemoteFile } | { source: ByteSource };

/** A file whose segments were located. */
export interface LocatedFile {
  name: string;
  segments: LocatedSegment[];
  /** Size in bytes; `null` if a server did not report a length. */
  size: number | null;
}

/** Dependencies of {@link receive}. */
export interface ReceiveContext {
  Upload: WasmBindings["Upload"];
  store: CacheStore | null;
  /** Expected hashes by file name. */
  sha256: Record<string, string>;
  progress: ProgressReporter;
  signal: AbortSignal;
  addNote(text: string): void;
}

/** Locates a file's segments and determines their sizes. */
export async function locate(
  file: ModelFile,
  platform: Pick<WorkerPlatform, "openFile">,
  signal: AbortSignal,
  headers: RemoteFile["headers"] = {},
): Promise<LocatedFile> {
  const segments = await Promise.all(
    file.segments.map((segment) => locateSegment(segment, platform, signal, headers)),
  );
  const sizes = segments.map(sizeOf);
  const size = sizes.reduce((sum, size) => (sum === null || size === null ? null : sum + size), 0);
  return { name: file.name, segments, size };
}

async function locateSegment(
  segment: FileSegment,
  platform: Pick<WorkerPlatform, "openFile">,
  signal: AbortSignal,
  headers: RemoteFile["headers"],
): Promise<LocatedSegment> {
  if (segment.from === "blob") return { source: blobSource(segment.blob) };
  if (segment.from === "page") return { source: bufferSource(segment.port, segment.size) };
  const source = await platform.openFile(segment.url);
  return source ? { source } : { remote: await probe(segment.url, signal, headers) };
}

function sizeOf(segment: LocatedSegment): number | null {
  return "remote" in segment ? segment.remote.size : segment.source.size;
}

/** A file that is being uploaded. */
interface PartialUpload {
  upload: Upload;
  /** Bytes written so far. */
  length: number;
  progress: FileProgress;
}

function begin(
  name: string,
  size: number,
  { Upload, progress }: ReceiveContext,
  cached: boolean,
): PartialUpload {
  return { upload: new Upload(name, size), length: 0, progress: progress.begin(name, cached) };
}

/** A file in wasm memory. */
export interface ReceivedFile {
  upload: Upload;
  loaded: LoadedFile;
  /** Reason why the cache does not keep the file; `null` if it does, or if it was not asked to. */
  cacheFault: string | null;
}

/** Reads a file into wasm memory, from the cache where possible. */
export async function receive(file: LocatedFile, context: ReceiveContext): Promise<ReceivedFile> {
  const remotes = file.segments.flatMap((segment) => ("remote" in segment ? [segment.remote] : []));
  // The cache's key is made of all URLs, so a partly local file cannot be cached.
  const cacheable = remotes.length === file.segments.length ? remotes : [];
  const entry = await CacheEntry.create(context.store, cacheable, context.addNote);
  const read = (await fromCache(file, entry, context)) ?? (await fromSource(file, entry, context));
  return { ...read, cacheFault: entry.fault };
}

async function fromCache(file: LocatedFile, entry: CacheEntry, context: ReceiveContext) {
  const cached = await entry.find();
  if (!cached?.metadata.complete) return null;
  const target = begin(file.name, cached.bytes.size, context, true);
  const sha256 = await freeOnError(target, async () => {
    await fill(target, blobSource(cached.bytes).chunks(0), context);
    return target.upload.sha256();
  });
  if (sha256 === cached.metadata.sha256 && hashMatches(file, sha256, context)) {
    return received(file, target, { cached: true, sha256 });
  }
  target.upload.free();
  target.progress.undo();
  context.addNote(`${file.name}: the cached file is damaged or outdated and is downloaded again`);
  await entry.delete();
  return null;
}

async function fromSource(file: LocatedFile, entry: CacheEntry, context: ReceiveContext) {
  const target = begin(file.name, file.size ?? 0, context, false);
  const sha256 = await freeOnError(target, async () => {
    try {
      const cached = await entry.find();
      if (cached) await fill(target, blobSource(cached.bytes).chunks(0), context);
      await entry.begin(target.length);
      for (const chunks of remainingChunks(file, target.length, context.signal)) {
        await fill(target, chunks, context, entry);
      }
      return await verifyHash(file, target.upload, entry, context);
    } finally {
      await entry.close();
    }
  });
  return received(file, target, { cached: false, sha256 });
}

/** Frees the upload if the action fails. */
async function freeOnError<T>({ upload }: PartialUpload, action: () => Promise<T>): Promise<T> {
  try {
    return await action();
  } catch (error) {
    upload.free();
    throw error;
  }
}

function received(
  { name }: LocatedFile,
  { upload, length, progress }: PartialUpload,
  how: Pick<LoadedFile, "cached" | "sha256">,
) {
  progress.report();
  return { upload, loaded: { name, bytes: length, ...how } };
}

/** Yields the chunks of each segment after the file's first `have` bytes. */
function* remainingChunks(file: LocatedFile, have: number, signal: AbortSignal) {
  for (const segment of file.segments) {
    // A segment of unknown size is read from its start: such files are never resumed.
    const skip = Math.min(have, sizeOf(segment) ?? 0);
    have -= skip;
    yield "remote" in segment
      ? download(segment.remote, skip, signal)
      : segment.source.chunks(skip);
  }
}

async function fill(
  target: PartialUpload,
  chunks: AsyncIterable<Uint8Array>,
  { signal }: ReceiveContext,
  entry?: CacheEntry,
): Promise<void> {
  for await (const chunk of chunks) {
    signal.throwIfAborted();
    target.upload.write(chunk);
    target.length += chunk.length;
    await entry?.write(chunk);
    target.progress.add(chunk.length);
  }
}

/**
 * Hashes the file if the caller expects a hash or the cache stores it. Hashing takes seconds for
 * gigabytes, so it is skipped otherwise.
 */
async function verifyHash(
  file: LocatedFile,
  upload: Upload,
  entry: CacheEntry,
  context: ReceiveContext,
): Promise<string | null> {
  if (!entry.enabled && !Object.hasOwn(context.sha256, file.name)) return null;
  const sha256 = upload.sha256();
  if (!hashMatches(file, sha256, context)) {
    await entry.close();
    await entry.delete();
    throw new WrinkleFreeError(
      "hash_mismatch",
      `${file.name}: the SHA-256 is ${sha256}, expected ${context.sha256[file.name]}`,
    );
  }
  await entry.finish(sha256);
  return sha256;
}

function hashMatches(file: LocatedFile, sha256: string, context: ReceiveContext): boolean {
  const { name } = file;
  return !Object.hasOwn(context.sha256, name) || context.sha256[name]?.toLowerCase() === sha256;
}
