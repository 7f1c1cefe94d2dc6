/** Conversion of a {@link ModelSource} to named files. */

import { WrinkleFreeError } from "./errors.js";
import { hubUrl } from "./hub.js";
import type { FileSegment } from "./protocol.js";
import type { FileSource, ModelSource } from "./types.js";

/** File name of the model in this package; bundlers change the name in its URL. */
const BUILT_IN = "default.wf.safetensors";

/** Endings of files with weights. */
const WEIGHTS = /(\.wf)?\.(safetensors|gguf)$/;

/** A {@link FileSegment} before its buffer is served to the worker. */
export type SourceSegment =
  Exclude<FileSegment, { from: "page" }> | { from: "buffer"; buffer: ArrayBuffer | Uint8Array };

/** A file of the model: the concatenation of its segments. */
export interface SourceFile {
  name: string;
  /** Name of the folder that the file lies in, if it is known. */
  folder?: string | undefined;
  segments: SourceSegment[];
}

interface NamedSegment {
  name: string;
  folder?: string | undefined;
  segment: SourceSegment;
}

/**
 * Returns the files of a model.
 *
 * @param resolve - makes a URL absolute
 * @param builtIn - URL of the model `"default"`
 * @throws {@link WrinkleFreeError} `"bad_source"`
 */
export function modelFiles(
  source: ModelSource,
  resolve: (url: string | URL) => string,
  builtIn: string,
): SourceFile[] {
  if (source === "default") return [{ name: BUILT_IN, segments: [{ from: "url", url: builtIn }] }];
  return namedFiles(source, resolve);
}

/**
 * Returns the files of a model, or of a drafter, that are not in this package.
 *
 * @throws {@link WrinkleFreeError} `"bad_source"`
 */
export function namedFiles(
  source: FileSource | readonly FileSource[],
  resolve: (url: string | URL) => string,
): SourceFile[] {
  const sources = isList(source) ? source : [source];
  if (sources.length === 0) throw new WrinkleFreeError("bad_source", "the list of files is empty");
  const files = joinSplitFiles(sources.map((one) => toSegment(one, resolve)));
  const names = new Set(files.map((file) => file.name));
  if (names.size < files.length) {
    throw new WrinkleFreeError("bad_source", `two files have the same name: ${listNames(files)}`);
  }
  return files;
}

function isList(source: FileSource | readonly FileSource[]): source is readonly FileSource[] {
  return Array.isArray(source);
}

function listNames(files: readonly { name: string }[]): string {
  return files.map((file) => file.name).join(", ");
}

function toSegment(source: FileSource, resolve: (url: string | URL) => string): NamedSegment {
  if (typeof source === "string" || source instanceof URL) {
    const url = resolveUrl(source, resolve);
    return { name: fileName(url), folder: pathParts(url).at(-2), segment: { from: "url", url } };
  }
  if (source instanceof Blob) {
    const name = "name" in source ? String(source.name) : "model";
    // Files of a folder that a user chose know their path in it.
    const folder = (source as Partial<File>).webkitRelativePath?.split("/").at(-2);
    return { name, folder, segment: { from: "blob", blob: source } };
  }
  if (source instanceof ArrayBuffer || source instanceof Uint8Array) {
    return { name: "model", segment: { from: "buffer", buffer: source } };
  }
  throw new WrinkleFreeError(
    "bad_source",
    "a file must be a URL, a File, a Blob, an ArrayBuffer or a Uint8Array",
  );
}

function resolveUrl(source: string | URL, resolve: (url: string | URL) => string): string {
  const url = hubUrl(source);
  try {
    return resolve(url);
  } catch (error) {
    throw new WrinkleFreeError("bad_source", `${source} is not a URL`, { cause: error });
  }
}

function fileName(url: string): string {
  return pathParts(url).at(-1) || "model";
}

/** Returns the parts of a URL's path, decoded. */
function pathParts(url: string): string[] {
  return new URL(url).pathname.split("/").map((part) => {
    try {
      return decodeURIComponent(part);
    } catch {
      // The name contains a % that encodes nothing.
      return part;
    }
  });
}

/** Returns the name of a model: that of its file, or of the folder that its files lie in. */
export function modelName(files: readonly SourceFile[]): string {
  const isDirectory = files.some(({ name }) => name === "config.json");
  const folder = isDirectory && files.find((file) => file.folder)?.folder;
  if (folder) return folder;
  const weights = files.find(({ name }) => WEIGHTS.test(name)) ?? files[0];
  // Of `name-00001-of-00002.safetensors` only the name counts.
  return weights?.name.replace(WEIGHTS, "").replace(/-\d{5}-of-\d{5}$/, "") || "model";
}

/** Joins `name.part1`, `name.part2`, … to one file, in the order of their numbers. */
function joinSplitFiles(all: readonly NamedSegment[]): SourceFile[] {
  const files: SourceFile[] = [];
  const splitFiles = new Map<string, Map<number, SourceSegment>>();
  for (const { name, folder, segment } of all) {
    const [, whole, number] = /^(.+)\.part(\d+)$/.exec(name) ?? [];
    if (whole === undefined) {
      files.push({ name, folder, segments: [segment] });
    } else {
      const known = splitFiles.get(whole) ?? new Map<number, SourceSegment>();
      if (Number(number) === 0 || known.has(Number(number))) {
        throw new WrinkleFreeError(
          "bad_source",
          `${name}: parts must be numbered from 1, each number once`,
        );
      }
      splitFiles.set(whole, known.set(Number(number), segment));
    }
  }
  const joined = [...splitFiles].map(([name, segments]) => ({
    name,
    segments: sortedSegments(name, segments),
  }));
  return [...files, ...joined];
}

function sortedSegments(name: string, byNumber: ReadonlyMap<number, SourceSegment>) {
  return Array.from({ length: Math.max(...byNumber.keys()) }, (_, index) => {
    const segment = byNumber.get(index + 1);
    if (!segment) throw new WrinkleFreeError("bad_source", `${name}.part${index + 1} is missing`);
    return segment;
  });
}
