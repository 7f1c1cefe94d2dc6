/** Errors of the package, and their form in messages between threads. */

/**
 * Code of a {@link WrinkleFreeError}. Codes of the core are passed on unchanged, such as
 * `"not_a_model"`, `"unsupported_architecture"`, `"context_length_exceeded"`,
 * `"bad_decoding_parameter"`, `"bad_sampling_parameter"`, `"no_tokenizer"` and `"out_of_memory"`.
 */
export type ErrorCode =
  /** The sources passed to `load` are not files of one model. */
  | "bad_source"
  /** A file could not be downloaded, even after retries. */
  | "download_failed"
  /** A file changed on the server during the download. */
  | "changed"
  /** The SHA-256 of a file is not the expected one. */
  | "hash_mismatch"
  /** The model does not fit in wasm memory. */
  | "too_large"
  /** This browser or Node cannot run any of the WebAssembly modules, or not the requested one. */
  | "unsupported_environment"
  /** The engine crashed. Dispose it and load the model again. */
  | "crashed"
  /** The model computed a number that is NaN or infinite: its weights are damaged, or too large. */
  | "model_error"
  /** The engine was disposed. */
  | "disposed"
  /** An unexpected error; please report it. */
  | "internal"
  /** A parameter that this package does not support. */
  | "unsupported"
  /** An option or argument with an invalid value. */
  | "bad_request"
  | (string & {});

/**
 * Class of all errors of this package, except for cancelled calls, which reject with the signal's
 * `reason`.
 */
export class WrinkleFreeError extends Error {
  override readonly name = "WrinkleFreeError";

  constructor(
    /** Stable code of the error, for programs. */
    readonly code: ErrorCode,
    message: string,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }
}

/**
 * An error as it is sent between threads.
 * @internal
 */
export interface WireError {
  code: string;
  message: string;
}

/**
 * Converts an error for sending.
 * @internal
 */
export function toWire(error: unknown): WireError {
  return { code: codeOf(error) ?? "internal", message: messageOf(error) };
}

/**
 * Restores an error that was sent.
 * @internal
 */
export function fromWire({ code, message }: WireError): WrinkleFreeError {
  return new WrinkleFreeError(code, message);
}

/**
 * Returns the message of anything that was thrown.
 * @internal
 */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/**
 * Returns the code of an error; `undefined` for traps and unexpected errors.
 * @internal
 */
export function codeOf(error: unknown): string | undefined {
  const code = error instanceof Error && "code" in error ? error.code : undefined;
  return typeof code === "string" ? code : undefined;
}
