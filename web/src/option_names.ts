/** Names of options: unknown ones, and those of the core. */

import { WrinkleFreeError } from "./errors.js";

/** Names that other libraries have for options of this package. */
const SYNONYMS: Readonly<Record<string, string>> = {
  maxnewtokens: "maxTokens",
  maxlength: "maxTokens",
  npredict: "maxTokens",
  numpredict: "maxTokens",
  maxcompletiontokens: "maxTokens",
  stopsequences: "stop",
  stopstrings: "stop",
  nthreads: "threads",
  numthreads: "threads",
  nctx: "context",
  numctx: "context",
  contextlength: "context",
  progresscallback: "onProgress",
  onprogress: "onProgress",
  abortsignal: "signal",
  usecache: "cache",
};

/** Returns the known name that a caller probably meant. */
export function similarName(name: string, known: readonly string[]): string | undefined {
  const wanted = plain(name);
  const synonym = SYNONYMS[wanted];
  if (synonym && known.includes(synonym)) return synonym;
  const limit = Math.max(1, Math.floor(wanted.length / 4));
  const ranked = known
    .map((candidate) => ({ candidate, distance: editDistance(wanted, plain(candidate)) }))
    .filter(({ distance }) => distance <= limit)
    .sort((a, b) => a.distance - b.distance);
  return ranked[0]?.candidate;
}

/** Returns a sentence's end that suggests a name, or lists all of them. */
export function suggestion(name: string, known: readonly string[]): string {
  const similar = similarName(name, known);
  return similar ? `did you mean ${similar}?` : `the options are ${known.join(", ")}`;
}

/**
 * Refuses options that are not known. One that is `undefined` counts as missing.
 *
 * @throws {@link WrinkleFreeError} `"bad_request"`, with the option's name
 */
export function refuseUnknown(of: string, options: unknown, known: readonly string[]): void {
  if (typeof options !== "object" || options === null || Array.isArray(options)) {
    const given = options === null ? "null" : Array.isArray(options) ? "a list" : typeof options;
    throw new WrinkleFreeError("bad_request", `${of}: expected an object of options, got ${given}`);
  }
  for (const [name, value] of Object.entries(options)) {
    if (value === undefined || known.includes(name)) continue;
    const text = `${of} has no option ${name}: ${suggestion(name, known)}`;
    throw new WrinkleFreeError("bad_request", text);
  }
}

/** Returns the name of an option in snake_case. */
export function snakeCase(name: string): string {
  return name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}

/** Returns an error whose message has the names of options as this package has them. */
export function withOptionNames(error: unknown, options: readonly string[]): unknown {
  if (!(error instanceof WrinkleFreeError)) return error;
  const names = new Map(options.map((name) => [snakeCase(name), name]));
  const own = (text: string, name: string) => names.get(name) ?? text;
  const message = error.message.replace(/`?\b([a-z]+(?:_[a-z]+)*)\b`?/g, own);
  return new WrinkleFreeError(error.code, message, { cause: error.cause ?? error });
}

function plain(name: string): string {
  return name.replace(/[^a-z0-9]/gi, "").toLowerCase();
}

/** Returns the number of letters to insert, delete or replace (Levenshtein). */
function editDistance(a: string, b: string): number {
  // Names are short; a caller's may have any length.
  if (Math.abs(a.length - b.length) > 8) return Infinity;
  let row = Array.from({ length: b.length + 1 }, (_, index) => index);
  for (let i = 0; i < a.length; i++) {
    const next = [i + 1];
    for (let j = 0; j < b.length; j++) {
      const replaced = (row[j] as number) + Number(a[i] !== b[j]);
      next.push(Math.min(replaced, (row[j + 1] as number) + 1, (next[j] as number) + 1));
    }
    row = next;
  }
  return row[b.length] as number;
}
