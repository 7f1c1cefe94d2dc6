/** From what a user gave to named files. */

import { WrinkleFreeError } from "./errors.js";
import type { Piece } from "./protocol.js";
import type { FileSource, ModelSource } from "./types.js";

/** The name of the model in this package. */
const BUILT_IN = "default.wf.safetensors";

/** Where a file, or a part of it, comes from. A buffer is still the page's. */
export type SourcePiece =
  Exclude<Piece, { from: "page" }> | { from: "buffer"; buffer: ArrayBuffer | Uint8Array };

/** A file that was named; its pieces follow each other. */
export interface SourceFile {
  name: string;
  pieces: SourcePiece[];
}

interface Named {
  name: string;
  piece: SourcePiece;
}

/**
 * The files of a model.
 *
 * @param resolve - makes URLs absolute
 * @param builtIn - where `"default"` is
 */
export function modelFiles(
  source: ModelSource,
  resolve: (url: string | URL) => string,
  builtIn: string,
): SourceFile[] {
  // Bundlers give it a name of their own.
  if (source === "default") return [{ name: BUILT_IN, pieces: [{ from: "url", url: builtIn }] }];
  const sources = isList(source) ? source : [source];
  if (sources.length === 0) throw new WrinkleFreeError("bad_source", "no file was given");
  const files = joined(sources.map((one) => named(one, resolve)));
  const names = new Set(files.map((file) => file.name));
  if (names.size < files.length) {
    throw new WrinkleFreeError("bad_source", `two files have one name: ${listed(files)}`);
  }
  return files;
}

function isList(source: ModelSource): source is readonly FileSource[] {
  return Array.isArray(source);
}

function listed(files: readonly { name: string }[]): string {
  return files.map((file) => file.name).join(", ");
}

function named(source: FileSource, resolve: (url: string | URL) => string): Named {
  if (typeof source === "string" || source instanceof URL) {
    const url = resolved(source, resolve);
    return { name: lastName(url), piece: { from: "url", url } };
  }
  if (source instanceof Blob) {
    const name = "name" in source ? String(source.name) : "model";
    return { name, piece: { from: "blob", blob: source } };
  }
  if (source instanceof ArrayBuffer || source instanceof Uint8Array) {
    return { name: "model", piece: { from: "buffer", buffer: source } };
  }
  throw new WrinkleFreeError("bad_source", "a model is a URL, a File, a Blob or an ArrayBuffer");
}

function resolved(source: string | URL, resolve: (url: string | URL) => string): string {
  try {
    return resolve(source);
  } catch (error) {
    throw new WrinkleFreeError("bad_source", `${source} is no URL`, { cause: error });
  }
}

function lastName(url: string): string {
  const last = new URL(url).pathname.split("/").at(-1) || "model";
  try {
    return decodeURIComponent(last);
  } catch {
    // A stray % stands for itself.
    return last;
  }
}

/** Puts `name.part1`, `name.part2`, … together, in whatever order they were given. */
function joined(all: readonly Named[]): SourceFile[] {
  const files: SourceFile[] = [];
  const parts = new Map<string, Map<number, SourcePiece>>();
  for (const { name, piece } of all) {
    const [, whole, number] = /^(.+)\.part(\d+)$/.exec(name) ?? [];
    if (whole === undefined) {
      files.push({ name, pieces: [piece] });
    } else {
      const known = parts.get(whole) ?? new Map<number, SourcePiece>();
      if (Number(number) === 0 || known.has(Number(number))) {
        throw new WrinkleFreeError("bad_source", `${name}: parts count from 1, each one once`);
      }
      parts.set(whole, known.set(Number(number), piece));
    }
  }
  const whole = [...parts].map(([name, pieces]) => ({ name, pieces: inOrder(name, pieces) }));
  return [...files, ...whole];
}

function inOrder(name: string, pieces: ReadonlyMap<number, SourcePiece>): SourcePiece[] {
  return Array.from({ length: Math.max(...pieces.keys()) }, (_, index) => {
    const piece = pieces.get(index + 1);
    if (!piece) throw new WrinkleFreeError("bad_source", `${name}.part${index + 1} is missing`);
    return piece;
  });
}
