/** Downloads with retries and resumption. */

import { WrinkleFreeError, messageOf } from "../errors.js";
import { streamChunks } from "./byte_source.js";
import {
  TemporaryError,
  downloadFailed,
  statusError,
  unreachableReason,
} from "./download_error.js";

/** Maximum number of retries in a row without a byte received. */
const RETRIES = 5;
/** Milliseconds before the first retry; the delay doubles with each one. */
const BACKOFF = 250;
/** Maximum milliseconds that a server may ask to wait. */
const MAX_WAIT = 60_000;

/**
 * Headers of a request from an offset on. With a range, browsers ask for an uncompressed answer, whose
 * length and ranges are those of the file.
 */
const range = ({ headers }: Pick<RemoteFile, "headers">, from: number) => ({
  ...headers,
  Range: `bytes=${from}-`,
});

/** A file on a server, with the properties known so far. */
export interface RemoteFile {
  url: string;
  /** Headers of the caller for each request. */
  headers: Readonly<Record<string, string>>;
  /** Size in bytes; `null` if unknown. */
  size: number | null;
  /** ETag, or else Last-Modified; it changes with the file. */
  validator: string | null;
  /** True if the server answered. */
  reachable: boolean;
}

/** Asks a server for the properties of a file. A server that refuses HEAD may still send the file. */
export async function probe(
  url: string,
  signal: AbortSignal,
  headers: RemoteFile["headers"] = {},
): Promise<RemoteFile> {
  const unknown = { url, headers, size: null, validator: null, reachable: false };
  try {
    const response = await fetch(url, { method: "HEAD", headers: range(unknown, 0), signal });
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
      // A server that never answered will not answer in a second either.
      const hopeless = !file.reachable && error instanceof TypeError;
      if (hopeless || failures++ === RETRIES) throw await finalError(file, error);
      const wait = delay(error, backoff, failures);
      if (wait > MAX_WAIT) throw await finalError(file, error);
      await sleep(wait, signal);
    }
  }
}

/** Returns the error to throw: the last one, with its reason in plain words. */
async function finalError(file: RemoteFile, error: unknown): Promise<WrinkleFreeError> {
  const hidden = error instanceof TypeError && !file.reachable;
  const reason = hidden ? await unreachableReason(file.url, error) : messageOf(error);
  return downloadFailed(file.url, reason, error);
}

/** Returns the milliseconds to wait before the next try. */
function delay(error: unknown, backoff: number, failures: number): number {
  const asked = error instanceof TemporaryError ? error.retryAfter : null;
  return asked ?? backoff * 2 ** (failures - 1);
}

async function* chunks(file: RemoteFile, from: number, signal: AbortSignal) {
  const response = await fetch(file.url, { headers: range(file, from), signal });
  file.reachable = true;
  if (!response.ok || !response.body) {
    await response.body?.cancel();
    throw statusError(file.url, response);
  }
  const start = response.status === 206 ? firstByte(response, from) : 0;
  if (start > from) {
    throw downloadFailed(file.url, `the answer begins at byte ${start}, expected ${from}`);
  }
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
