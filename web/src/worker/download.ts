/** Downloads with retries and resumption. */

import { WrinkleFreeError } from "../errors.js";
import { streamChunks } from "./byte_source.js";

/** Maximum number of retries in a row without a byte received. */
const RETRIES = 5;
/** Milliseconds before the first retry; the delay doubles with each one. */
const BACKOFF = 250;

/**
 * Headers of a request from an offset on. With a range, browsers ask for an uncompressed answer, whose
 * length and ranges are those of the file.
 */
const range = (from: number) => ({ Range: `bytes=${from}-` });

/** A file on a server, with the properties known so far. */
export interface RemoteFile {
  url: string;
  /** Size in bytes; `null` if unknown. */
  size: number | null;
  /** ETag, or else Last-Modified; it changes with the file. */
  validator: string | null;
  /** True if the server answered. */
  reachable: boolean;
}

/** Asks a server for the properties of a file. A server that refuses HEAD may still send the file. */
export async function probe(url: string, signal: AbortSignal): Promise<RemoteFile> {
  const unknown = { url, size: null, validator: null, reachable: false };
  try {
    const response = await fetch(url, { method: "HEAD", headers: range(0), signal });
    return response.ok ? { ...unknown, ...describe(response, 0), reachable: true } : unknown;
  } catch {
    signal.throwIfAborted();
    return unknown;
  }
}

/**
 * Yields the bytes of a file from an offset on. A broken connection is resumed where it broke; without
 * range support it restarts and skips the bytes that were already yielded.
 *
 * @throws {@link WrinkleFreeError} `"download_failed"` or `"changed"`, or the signal's reason
 */
export async function* download(
  file: RemoteFile,
  from: number,
  signal: AbortSignal,
  backoff = BACKOFF,
): AsyncGenerator<Uint8Array, void, undefined> {
  let at = from;
  let failures = 0;
  while (at === 0 || at !== file.size) {
    try {
      for await (const chunk of chunks(file, at, signal)) {
        at += chunk.length;
        failures = 0;
        yield chunk;
      }
      if (file.size === null || at >= file.size) return;
      throw new Error(`the connection ended after ${at} of ${file.size} bytes`);
    } catch (error) {
      signal.throwIfAborted();
      if (error instanceof WrinkleFreeError) throw error;
      if (failures++ === RETRIES) throw downloadFailed(file.url, error);
      await sleep(backoff * 2 ** (failures - 1), signal);
    }
  }
}

function downloadFailed(url: string, error: unknown): WrinkleFreeError {
  const message = error instanceof Error ? error.message : String(error);
  return new WrinkleFreeError("download_failed", `${url}: ${message}`, { cause: error });
}

async function* chunks(file: RemoteFile, from: number, signal: AbortSignal) {
  const response = await fetch(file.url, { headers: range(from), signal });
  if (!response.ok || !response.body) {
    await response.body?.cancel();
    throw statusError(file.url, response);
  }
  const start = response.status === 206 ? firstByte(response, from) : 0;
  if (start > from)
    throw downloadFailed(
      file.url,
      new Error(`the answer begins at byte ${start}, expected ${from}`),
    );
  checkUnchanged(file, describe(response, start));
  let skip = from - start;
  for await (const chunk of streamChunks(response.body)) {
    const rest = chunk.subarray(Math.min(skip, chunk.length));
    skip -= chunk.length - rest.length;
    if (rest.length) yield rest;
  }
}

/** Returns the offset at which a partial answer begins: the requested one, unless it says otherwise. */
function firstByte({ headers }: Response, from: number): number {
  const said = /^bytes (\d+)-/.exec(headers.get("content-range") ?? "")?.[1];
  return said === undefined ? from : Number(said);
}

/** Returns an error to retry for a temporary status, or one that ends the download. */
function statusError(url: string, { status, statusText }: Response): Error {
  const message = `the server answered ${status} ${statusText}`.trimEnd();
  const temporary = status >= 500 || status === 408 || status === 429;
  return temporary ? new Error(message) : downloadFailed(url, new Error(message));
}

/**
 * Checks that the file did not change. `If-Range` would leave this to the server, but across origins
 * many file servers do not allow that header.
 */
function checkUnchanged(file: RemoteFile, now: Pick<RemoteFile, "size" | "validator">): void {
  const differs = <T>(a: T | null, b: T | null) => a !== null && b !== null && a !== b;
  if (differs(file.size, now.size) || differs(file.validator, now.validator)) {
    throw new WrinkleFreeError("changed", `${file.url} changed during the download`);
  }
  file.size ??= now.size;
  file.validator ??= now.validator;
}

/** Returns the file's properties from an answer that begins at `from`. */
function describe({ headers }: Response, from: number): Pick<RemoteFile, "size" | "validator"> {
  const length = Number(headers.get("content-length"));
  const range = headers.get("content-range") ?? "";
  const whole = /\/(\d+)$/.exec(range)?.[1];
  // With `*` as the total, the answer's length is not that of the rest of the file.
  const plain =
    !range.endsWith("/*") && (headers.get("content-encoding") ?? "identity") === "identity";
  return {
    size: whole ? Number(whole) : length && plain ? from + length : null,
    validator: headers.get("etag") ?? headers.get("last-modified"),
  };
}

function sleep(milliseconds: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const abort = () => {
      clearTimeout(timer);
      reject(signal.reason);
    };
    const timer = setTimeout(() => {
      signal.removeEventListener("abort", abort);
      resolve();
    }, milliseconds);
    signal.addEventListener("abort", abort, { once: true });
  });
}
