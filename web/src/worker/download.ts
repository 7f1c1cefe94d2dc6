import { WrinkleFreeError } from "../errors.js";
import { streamChunks } from "./bytes.js";

/** Tries after a failure without a byte in between. */
const RETRIES = 5;
/** Milliseconds before the first retry; each further one waits twice as long. */
const BACKOFF = 250;

/**
 * With a range, browsers ask for the bytes as they are: a compressed answer's length would not be
 * the file's, and its ranges would mean something else.
 */
const range = (from: number) => ({ Range: `bytes=${from}-` });

/** A file on a server, as far as it is known. */
export interface Remote {
  url: string;
  /** Bytes. */
  size: number | null;
  /** ETag, or else Last-Modified: the same as long as the bytes are. */
  validator: string | null;
  /** The server answered. */
  reached: boolean;
}

/** Asks a server about a file. One that does not answer is asked for the file itself later. */
export async function remote(url: string, signal: AbortSignal): Promise<Remote> {
  const unknown = { url, size: null, validator: null, reached: false };
  try {
    const response = await fetch(url, { method: "HEAD", headers: range(0), signal });
    return response.ok ? { ...unknown, ...described(response, 0), reached: true } : unknown;
  } catch {
    signal.throwIfAborted();
    return unknown;
  }
}

/**
 * The bytes of a file from a place on. A broken connection is taken up where it broke, if the
 * server has ranges; otherwise from the start, without giving bytes twice.
 *
 * Throws {@link WrinkleFreeError} `"download_failed"`, `"changed"`, or the signal's reason.
 */
export async function* download(
  file: Remote,
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
      if (failures++ === RETRIES) throw failed(file.url, error);
      await pause(backoff * 2 ** (failures - 1), signal);
    }
  }
}

function failed(url: string, error: unknown): WrinkleFreeError {
  const message = error instanceof Error ? error.message : String(error);
  return new WrinkleFreeError("download_failed", `${url}: ${message}`, { cause: error });
}

async function* chunks(file: Remote, from: number, signal: AbortSignal) {
  const response = await fetch(file.url, { headers: range(from), signal });
  if (!response.ok || !response.body) {
    await response.body?.cancel();
    throw refusal(file.url, response);
  }
  const start = response.status === 206 ? begins(response, from) : 0;
  if (start > from) throw failed(file.url, new Error(`asked for byte ${from}, got ${start}`));
  same(file, described(response, start));
  let skip = from - start;
  for await (const chunk of streamChunks(response.body)) {
    const rest = chunk.subarray(Math.min(skip, chunk.length));
    skip -= chunk.length - rest.length;
    if (rest.length) yield rest;
  }
}

/** The first byte of a partial answer: where it was asked to begin, unless it says otherwise. */
function begins({ headers }: Response, from: number): number {
  const said = /^bytes (\d+)-/.exec(headers.get("content-range") ?? "")?.[1];
  return said === undefined ? from : Number(said);
}

/** What may pass is an error to retry, what will not ends the download. */
function refusal(url: string, { status, statusText }: Response): Error {
  const message = `the server says ${status} ${statusText}`.trimEnd();
  const passing = status >= 500 || status === 408 || status === 429;
  return passing ? new Error(message) : failed(url, new Error(message));
}

/**
 * The check that `If-Range` would leave to the server, made here: across origins that header
 * needs a permission which many file servers do not give.
 */
function same(file: Remote, now: Pick<Remote, "size" | "validator">): void {
  const differs = <T>(a: T | null, b: T | null) => a !== null && b !== null && a !== b;
  if (differs(file.size, now.size) || differs(file.validator, now.validator)) {
    throw new WrinkleFreeError("changed", `${file.url} changed while it was downloaded`);
  }
  file.size ??= now.size;
  file.validator ??= now.validator;
}

/** What an answer that begins at `from` says about the whole file. */
function described({ headers }: Response, from: number): Pick<Remote, "size" | "validator"> {
  const length = Number(headers.get("content-length"));
  const range = headers.get("content-range") ?? "";
  const whole = /\/(\d+)$/.exec(range)?.[1];
  // Of a part whose whole is unknown, `*`, the length says nothing of the whole.
  const plain =
    !range.endsWith("/*") && (headers.get("content-encoding") ?? "identity") === "identity";
  return {
    size: whole ? Number(whole) : length && plain ? from + length : null,
    validator: headers.get("etag") ?? headers.get("last-modified"),
  };
}

function pause(milliseconds: number, signal: AbortSignal): Promise<void> {
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
