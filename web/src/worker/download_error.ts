/** Reasons why a download failed, with what to do. */

import { WrinkleFreeError, messageOf } from "../errors.js";

/** What Node says about connections, by code. */
const NODE_REASONS: Readonly<Record<string, string>> = {
  ECONNREFUSED: "the connection was refused: is the server running, and on this port?",
  ENOTFOUND: "there is no host of this name: check the spelling and the network",
  EAI_AGAIN: "the host's name could not be resolved: check the network",
  ECONNRESET: "the connection was reset",
  ETIMEDOUT: "the server did not answer in time",
  UND_ERR_CONNECT_TIMEOUT: "the server did not answer in time",
  DEPTH_ZERO_SELF_SIGNED_CERT: "the server's certificate is self-signed",
  CERT_HAS_EXPIRED: "the server's certificate has expired",
};

/** What a status means for the caller. */
const STATUS_ADVICE: Readonly<Record<number, string>> = {
  401: "the file needs a login: pass an authorization header in the option headers",
  403: "the server does not give this file away: check the access rights, or pass the option headers",
  404: "there is no such file: check the URL",
  410: "the file is no longer there",
  429: "too many requests: try again later",
  503: "the server is starting or overloaded: try again later",
};

/** Error for a temporary state of the server: another try may succeed. */
export class TemporaryError extends Error {
  constructor(
    message: string,
    /** Milliseconds that the server asks to wait; `null` if it does not say. */
    readonly retryAfter: number | null = null,
  ) {
    super(message);
  }
}

/** Returns the error that ends the download of a URL. */
export function downloadFailed(url: string, reason: string, cause?: unknown): WrinkleFreeError {
  return new WrinkleFreeError("download_failed", `${url}: ${reason}`, { cause });
}

/** Returns an error to retry for a temporary status, or one that ends the download. */
export function statusError(url: string, { status, statusText, headers }: Response): Error {
  const advice = STATUS_ADVICE[status];
  const answered = `the server answered ${status} ${statusText}`.trimEnd();
  const message = advice ? `${answered}: ${advice}` : answered;
  const temporary = status >= 500 || status === 408 || status === 429;
  if (!temporary) return downloadFailed(url, message);
  const wait = retryAfter(headers.get("retry-after"));
  const asks = wait ? ` (it asks to wait ${Math.ceil(wait / 1000)} s)` : "";
  return new TemporaryError(message + asks, wait);
}

/** Returns the milliseconds of a `Retry-After`, which is a number of seconds or a date. */
function retryAfter(header: string | null): number | null {
  if (!header) return null;
  const seconds = Number(header);
  const wait = Number.isFinite(seconds) ? seconds * 1000 : Date.parse(header) - Date.now();
  return Number.isFinite(wait) ? Math.max(wait, 0) : null;
}

/**
 * Returns why a server was not reached. Browsers hide the reason from pages, so it is found by what else
 * fails.
 */
export async function unreachableReason(url: string, error: unknown): Promise<string> {
  const { protocol, origin, hostname } = new URL(url);
  const code = (messageCause(error) as { code?: string } | undefined)?.code;
  if (code && NODE_REASONS[code]) return NODE_REASONS[code];
  if (!/^https?:$/.test(protocol)) {
    const file = protocol === "file:" ? ", or pass a File that the user chose" : "";
    return `${protocol} URLs cannot be downloaded here: use https:${file}`;
  }
  const page = globalThis.location as Location | undefined;
  if (!page) return messageCause(error) ? messageOf(messageCause(error)) : messageOf(error);
  if (globalThis.navigator?.onLine === false) return "this device is offline";
  const local = hostname === "localhost" || hostname === "127.0.0.1";
  if (page.protocol === "https:" && protocol === "http:" && !local) {
    return "a page with https: may not read from http:; serve the file with https:";
  }
  if (origin === page.origin) return "the server did not answer: is it running?";
  const cors =
    `the server does not let pages of ${page.origin} read the file: it must send ` +
    "Access-Control-Allow-Origin (CORS)";
  if (await answersWithoutCors(url)) return cors;
  return `the server did not answer, the page's policy forbids it, or ${cors}`;
}

function messageCause(error: unknown): unknown {
  return error instanceof Error ? error.cause : undefined;
}

/** Returns true if a server answers a request whose answer the page may not see. */
async function answersWithoutCors(url: string): Promise<boolean> {
  try {
    await fetch(url, { method: "HEAD", mode: "no-cors" });
    return true;
  } catch {
    // Not reached, or hidden by the page's cross-origin isolation.
    return false;
  }
}
