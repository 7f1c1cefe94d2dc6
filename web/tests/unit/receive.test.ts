import { createHash, randomBytes } from "node:crypto";
import type { IncomingMessage, RequestListener } from "node:http";
import { beforeEach, describe, expect, test } from "vitest";
import type { CacheStore } from "../../src/cache/store.js";
import type { WasmBindings, Upload } from "../../src/bindings.js";
import { serveBuffer } from "../../src/buffer_stream.js";
import type { FileSegment } from "../../src/protocol.js";
import { ProgressReporter } from "../../src/worker/progress_reporter.js";
import { locate, receive } from "../../src/worker/receive.js";
import * as bindings from "./fake/bindings.js";
import { answer, serving } from "./fake/server.js";
import { MemoryStore } from "./fake/store.js";

const body = randomBytes(2_000_000);
const sha256 = createHash("sha256").update(body).digest("hex");
const nowhere = { openFile: async () => null };

let store: CacheStore & MemoryStore;
let notes: string[];
let lastProgress: { loaded: number; cached: boolean };

beforeEach(() => {
  store = new MemoryStore();
  notes = [];
});

interface FakeUpload extends Upload {
  bytes(): Buffer;
}

async function load(
  segments: FileSegment[],
  options: { sha256?: string; signal?: AbortSignal } = {},
) {
  const { sha256: expected, signal = new AbortController().signal } = options;
  const file = await locate({ name: "m", segments }, nowhere, signal);
  const { upload, loaded } = await receive(file, {
    Upload: bindings.Upload as unknown as WasmBindings["Upload"],
    store,
    sha256: expected ? { m: expected } : {},
    progress: new ProgressReporter(file.size, (progress) => (lastProgress = progress)),
    signal,
    addNote: (text) => notes.push(text),
  });
  return { ...loaded, whole: (upload as FakeUpload).bytes().equals(body) };
}

/** Starts a server of `body`. Returns its segment and the GET requests it received. */
async function server(listener?: (count: number) => Parameters<typeof answer>[3]) {
  const gets: IncomingMessage[] = [];
  const serve: RequestListener = (request, response) => {
    if (request.method === "GET") gets.push(request);
    answer(request, response, body, listener?.(gets.length));
  };
  const segment = { from: "url", url: `${await serving(serve)}/m` } as const;
  return { segment, gets };
}

describe("a file", () => {
  test("is downloaded once", async () => {
    const { segment, gets } = await server();
    expect(await load([segment])).toEqual({ ...whole(), cached: false });
    expect(lastProgress).toMatchObject({ loaded: body.length, total: body.length, cached: false });
    expect(await load([segment])).toEqual({ ...whole(), cached: true });
    expect(lastProgress).toMatchObject({ loaded: body.length, cached: true });
    expect(gets).toHaveLength(1);
    expect(notes).toEqual([]);
  });

  test("is downloaded again after it changed on the server", async () => {
    let etag = '"1"';
    const { segment, gets } = await server(() => ({ etag }));
    await load([segment]);
    etag = '"2"';
    expect(await load([segment])).toMatchObject({ cached: false, whole: true });
    expect(gets).toHaveLength(2);
  });

  test("is downloaded again if the cached file is damaged", async () => {
    const { segment } = await server();
    await load([segment]);
    for (const file of store.files.values()) file.bytes[1000] = ~(file.bytes[1000] as number);
    expect(await load([segment])).toMatchObject({ cached: false, whole: true });
    expect(lastProgress.loaded).toBe(body.length);
    expect(notes).toEqual([expect.stringContaining("damaged")]);
    expect(await load([segment])).toMatchObject({ cached: true, whole: true });
  });

  test("resumes after an abort", async () => {
    const { segment, gets } = await server();
    const abort = new AbortController();
    const write = store.write.bind(store);
    store.write = async (...args) => {
      const writer = await write(...args);
      return { ...writer, write: (chunk) => (abort.abort("enough"), writer.write(chunk)) };
    };
    await expect(load([segment], { signal: abort.signal })).rejects.toBe("enough");
    store.write = write;
    expect(await load([segment])).toMatchObject({ cached: false, whole: true });
    expect(gets[1]?.headers.range).toMatch(/^bytes=[1-9]\d*-$/);
  });

  test("is refused and not cached if its hash differs", async () => {
    const { segment } = await server();
    expect(await load([segment], { sha256: sha256.toUpperCase() })).toMatchObject({ whole: true });
    const wrong = load([segment], { sha256: "00" });
    await expect(wrong).rejects.toMatchObject({ code: "hash_mismatch" });
    expect(store.files.size).toBe(0);
  });

  test("loads without a failing cache, with a note", async () => {
    const { segment } = await server();
    store.write = async () => {
      throw new Error("quota exceeded");
    };
    expect(await load([segment])).toMatchObject({ cached: false, whole: true });
    expect(notes).toEqual([expect.stringContaining("quota exceeded")]);
  });

  test("is joined from segments and resumes within one", async () => {
    const segments = [body.subarray(0, 700_000), body.subarray(700_000)];
    let gets = 0;
    const base = await serving((request, response) => {
      const segment = segments[Number(request.url?.at(-1))] as Buffer;
      const broken = request.method === "GET" && gets++ === 1;
      answer(request, response, segment, broken ? { breakAfter: 500_000 } : {});
    });
    const urls = [0, 1].map((n) => ({ from: "url", url: `${base}/${n}` }) as const);
    expect(await load(urls)).toEqual({ ...whole(), cached: false });
    expect(gets).toBe(3);
    expect(await load(urls)).toEqual({ ...whole(), cached: true });
  });

  test("is read from a blob or a buffer of the page", async () => {
    const blob = { from: "blob", blob: new Blob([new Uint8Array(body)]) } as const;
    expect(await load([blob])).toEqual({ ...whole(), sha256: null, cached: false });
    const buffer = { from: "page", ...serveBuffer(body) } as const;
    expect(await load([buffer])).toMatchObject({ whole: true });
    expect(store.files.size).toBe(0);
  });
});

function whole() {
  return { name: "m", bytes: body.length, sha256, whole: true };
}
