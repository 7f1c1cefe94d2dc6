/** Validation of `load`'s options, before anything is started or fetched. */

import { WrinkleFreeError, messageOf } from "./errors.js";
import { refuseUnknown } from "./option_names.js";
import type { LoadSettings } from "./protocol.js";
import { type SourceFile, modelName } from "./sources.js";
import type { KvType, LoadOptions } from "./types.js";

/** Maximum number of threads: each is a worker with a stack in the shared memory. */
const MAX_THREADS = 64;

const KV_TYPES: readonly KvType[] = ["f32", "f16", "bf16", "fp8-e4m3", "fp8-e5m2", "int8"];
const SIMD_CHOICES = ["auto", "simd128", "relaxed"];

/** Names of all options of `load`. */
export const LOAD_OPTIONS = Object.keys({
  threads: true,
  simd: true,
  signal: true,
  onProgress: true,
  cache: true,
  headers: true,
  context: true,
  kvType: true,
  attention: true,
  allowControlTokens: true,
  mtp: true,
  draftModel: true,
  draftLayout: true,
  stopTokens: true,
  chatTemplate: true,
  templateFixes: true,
  sha256: true,
  name: true,
} satisfies Record<keyof LoadOptions, true>);

/**
 * Returns the settings for these files of a model and of its drafter.
 *
 * @throws {@link WrinkleFreeError} `"bad_request"`, with the option's name in the message
 */
export function loadSettings(
  options: LoadOptions,
  files: readonly SourceFile[],
  drafter: readonly SourceFile[] = [],
): LoadSettings {
  refuseUnknown("load", options, LOAD_OPTIONS);
  const { threads = "auto", simd = "auto", cache = true, context, sha256 = {}, name } = options;
  const { kvType = {}, attention, mtp = false, onProgress, signal } = options;
  const threadCountOk =
    Number.isInteger(threads) && Number(threads) > 0 && Number(threads) <= MAX_THREADS;
  check("threads", threads === "auto" || threadCountOk, `1 to ${MAX_THREADS}, or "auto"`, threads);
  check("simd", SIMD_CHOICES.includes(simd), `one of ${SIMD_CHOICES.join(", ")}`, simd);
  const contextOk = context === undefined || (Number.isInteger(context) && context > 0);
  check("context", contextOk, "an integer above 0", context);
  check("name", name === undefined || typeof name === "string", "a string", name);
  const attentionOk = attention === undefined || typeof attention === "string";
  check("attention", attentionOk, "a string", attention);
  check("mtp", typeof mtp === "boolean", "true or false", mtp);
  const { draftModel, draftLayout } = options;
  const layouts = ["dflash", "dspark"];
  const layoutOk = draftLayout === undefined || layouts.includes(draftLayout);
  check("draftLayout", layoutOk, `one of ${layouts.join(", ")}`, draftLayout);
  const drafts = draftLayout === undefined || draftModel !== undefined;
  check("draftLayout", drafts, "draftModel next to it, whose layout it is", draftLayout);
  check("cache", typeof cache === "boolean", "true or false", cache);
  const listens = onProgress === undefined || typeof onProgress === "function";
  check("onProgress", listens, "a function", onProgress);
  const aborts = signal === undefined || typeof signal?.throwIfAborted === "function";
  check("signal", aborts, "an AbortSignal", signal);
  return {
    name: name ?? modelName(files),
    threads,
    simd,
    cache,
    headers: requestHeaders(options.headers),
    sha256: hashes(sha256, [...files, ...drafter]),
    ...(context === undefined ? {} : { context }),
    text: textSettings(options),
    ...(mtp ? { mtp: true } : {}),
    ...(draftLayout ? { draftLayout } : {}),
    kv: { ...kvTypes(kvType), ...(attention === undefined ? {} : { attention }) },
  };
}

function requestHeaders(headers: LoadOptions["headers"] = {}): Record<string, string> {
  const texts = isRecord(headers) && Object.values(headers).every((one) => typeof one === "string");
  check("headers", texts, "an object of strings", headers);
  try {
    new Headers(headers);
  } catch (error) {
    throw new WrinkleFreeError("bad_request", `headers: ${messageOf(error)}`, { cause: error });
  }
  return { ...headers };
}

/** Returns the options of tokens and templates. Those that are not set are left out. */
function textSettings(options: LoadOptions): LoadSettings["text"] {
  const { allowControlTokens, stopTokens, chatTemplate, templateFixes } = options;
  for (const [name, value] of Object.entries({ allowControlTokens, templateFixes })) {
    const ok = value === undefined || typeof value === "boolean";
    check(name, ok, "true or false", value);
  }
  const strings = (list: unknown) =>
    Array.isArray(list) && list.every((s) => typeof s === "string");
  check("stopTokens", stopTokens === undefined || strings(stopTokens), "strings", stopTokens);
  const templateOk = chatTemplate === undefined || typeof chatTemplate === "string";
  check("chatTemplate", templateOk, "a string", chatTemplate);
  return {
    allow_control_tokens: allowControlTokens,
    stop_tokens: stopTokens,
    chat_template: chatTemplate,
    template_fixes: templateFixes,
  };
}

function kvTypes(kvType: NonNullable<LoadOptions["kvType"]>) {
  const types = typeof kvType === "string" ? { keys: kvType, values: kvType } : kvType;
  const known = (type: unknown) => type === undefined || KV_TYPES.includes(type as KvType);
  const ok =
    isRecord(types) &&
    Object.entries(types).every(([of, type]) => ["keys", "values"].includes(of) && known(type));
  check("kvType", ok, `one of ${KV_TYPES.join(", ")}, or { keys, values }`, kvType);
  return types;
}

/** Returns the hashes by file name. A hash without a file is an error: it would never be checked. */
function hashes(sha256: NonNullable<LoadOptions["sha256"]>, files: readonly SourceFile[]) {
  const names = files.map((file) => file.name);
  const single = names.length === 1 ? { [names[0] as string]: sha256 as string } : null;
  const all = typeof sha256 === "string" ? single : sha256;
  check("sha256", isRecord(all), "the hash of the only file, or hashes by file name", sha256);
  for (const [name, hash] of Object.entries(all ?? {})) {
    check("sha256", names.includes(name), `a name out of ${names.join(", ")}`, name);
    const hex = typeof hash === "string" && /^[0-9a-f]{64}$/i.test(hash);
    check("sha256", hex, "64 hexadecimal digits", hash);
  }
  return { ...all };
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function check(option: string, ok: boolean, expected: string, given: unknown): void {
  if (ok) return;
  throw new WrinkleFreeError(
    "bad_request",
    `${option}: expected ${expected}, got ${String(given)}`,
  );
}
