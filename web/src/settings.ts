/** What `load` is told, checked before anything is started or fetched. */

import { WrinkleFreeError } from "./errors.js";
import type { Settings } from "./protocol.js";
import type { SourceFile } from "./sources.js";
import type { KvType, LoadOptions } from "./types.js";

/** Threads at most: each is a worker, with a stack in the shared memory. */
const MAX_THREADS = 64;

const KV_TYPES: readonly KvType[] = ["f32", "f16", "bf16", "fp8-e4m3", "fp8-e5m2", "int8"];
const SIMD = ["auto", "simd128", "relaxed"];

/**
 * The settings for these files.
 *
 * @throws {@link WrinkleFreeError} `"bad_request"`, naming the option
 */
export function settings(options: LoadOptions, files: readonly SourceFile[]): Settings {
  const { threads = "auto", simd = "auto", cache = true, context, sha256 = {}, name } = options;
  const { kvType = {}, attention } = options;
  const first = (files[0] as SourceFile).name;
  const count = Number.isInteger(threads) && Number(threads) > 0 && Number(threads) <= MAX_THREADS;
  check("threads", threads === "auto" || count, `1 to ${MAX_THREADS}, or "auto"`, threads);
  check("simd", SIMD.includes(simd), SIMD.join(", "), simd);
  const positions = context === undefined || (Number.isInteger(context) && context > 0);
  check("context", positions, "a whole number above 0", context);
  check("name", name === undefined || typeof name === "string", "a text", name);
  const rule = attention === undefined || typeof attention === "string";
  check("attention", rule, "a text", attention);
  return {
    name: name ?? first.replace(/(\.wf)?\.(safetensors|gguf)$/, ""),
    threads,
    simd,
    cache,
    sha256: hashes(sha256, files),
    ...(context === undefined ? {} : { context }),
    kv: { ...kvTypes(kvType), ...(attention === undefined ? {} : { attention }) },
  };
}

function kvTypes(kvType: NonNullable<LoadOptions["kvType"]>) {
  const types = typeof kvType === "string" ? { keys: kvType, values: kvType } : kvType;
  const known = (type: unknown) => type === undefined || KV_TYPES.includes(type as KvType);
  const fits =
    isRecord(types) &&
    Object.entries(types).every(([of, type]) => ["keys", "values"].includes(of) && known(type));
  check("kvType", fits, `one of ${KV_TYPES.join(", ")}, or { keys, values }`, kvType);
  return types;
}

/** A hash that no file is compared with would be a promise that nobody keeps. */
function hashes(sha256: NonNullable<LoadOptions["sha256"]>, files: readonly SourceFile[]) {
  const names = files.map((file) => file.name);
  const one = names.length === 1 ? { [names[0] as string]: sha256 as string } : null;
  const all = typeof sha256 === "string" ? one : sha256;
  check("sha256", isRecord(all), "a hash of the only file, or hashes by the files' names", sha256);
  for (const [name, hash] of Object.entries(all ?? {})) {
    check("sha256", names.includes(name), `names among ${names.join(", ")}`, name);
    const hex = typeof hash === "string" && /^[0-9a-f]{64}$/i.test(hash);
    check("sha256", hex, "64 hexadecimal digits", hash);
  }
  return { ...all };
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function check(option: string, fits: boolean, wanted: string, given: unknown): void {
  if (fits) return;
  throw new WrinkleFreeError("bad_request", `${option}: ${wanted} wanted, ${String(given)} given`);
}
