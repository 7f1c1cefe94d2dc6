/**
 * What an error is about. Codes of the core (`"not_a_model"`, `"unsupported"`,
 * `"context_length_exceeded"`, `"bad_decoding_parameter"`, `"no_tokenizer"`, `"out_of_memory"`,
 * `"bad_request"`, …) come through as they are.
 */
export type ErrorCode =
  /** The sources given to `load` make no sense; the message says which. */
  | "bad_source"
  /** A file could not be fetched, also after retries. */
  | "download_failed"
  /** A file changed on the server while it was downloaded. */
  | "changed"
  /** A file's SHA-256 is not the expected one. */
  | "hash_mismatch"
  /** The model does not fit in memory. */
  | "too_large"
  /** This browser or Node cannot run any of the artifacts, or not the one asked for. */
  | "unsupported_environment"
  /** The engine broke; only a new one helps. */
  | "crashed"
  /** The engine was disposed. */
  | "disposed"
  /** Something that nobody foresaw. */
  | "internal"
  | "unsupported"
  | "bad_request"
  | (string & {});

/** Every error of this package, except aborts: these reject with the signal's `reason`. */
export class WrinkleFreeError extends Error {
  override readonly name = "WrinkleFreeError";

  constructor(
    /** What it is about, for programs. */
    readonly code: ErrorCode,
    message: string,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }
}

/**
 * An error as it crosses threads.
 * @internal
 */
export interface WireError {
  code: string;
  message: string;
}

/** @internal */
export function toWire(error: unknown): WireError {
  const message = error instanceof Error ? error.message : String(error);
  return { code: codeOf(error) ?? "internal", message };
}

/** @internal */
export function fromWire({ code, message }: WireError): WrinkleFreeError {
  return new WrinkleFreeError(code, message);
}

/**
 * The code that an error carries. A trap and anything unforeseen have none.
 * @internal
 */
export function codeOf(error: unknown): string | undefined {
  const code = error instanceof Error && "code" in error ? error.code : undefined;
  return typeof code === "string" ? code : undefined;
}
