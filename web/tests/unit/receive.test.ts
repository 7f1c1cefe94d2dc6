import { createHash, randomBytes } from "node:crypto";
import type { IncomingMessage, RequestListener } from "node:http";
import { beforeEach, describe, expect, test } from "vitest";
import type { Store } from "../../src/cache/store.js";
import type { Glue, Upload } from "../../src/glue.js";
import { lend } from "../../src/lend.js";
import type { Piece } from "../../src/protocol.js";
import { Meter } from "../../src/worker/meter.js";
import { find, receive } from "../../src/worker/receive.js";
import * as glue from "./fake/glue.js";
import { answer, serving } from "./fake/server.js";
import { MemoryStore } from "./fake/store.js";

const body = randomBytes(2_000_000);
const sha256 = createHash("sha256").update(body).digest("hex");
const nowhere = { file: async () => null };

let store: Store & MemoryStore;
let notes: string[];
let told: { loaded: number; cached: boolean };

beforeEach(() => {
  store = new MemoryStore();
  notes = [];
});

interface Bytes extends Upload {
  bytes(): Buffer;
}

async function load(pieces: Piece[], options: { sha256?: string; signal?: AbortSignal } = {}) {
  const { sha256: expected, signal = new AbortController().signal } = options;
  const file = await find({ name: "m", pieces }, nowhere, signal);
  const { upload, loaded } = await receive(file, {
    Upload: glue.Upload as unknown as Glue["Upload"],
    store,
    sha256: expected ? { m: expected } : {},
    meter: new Meter(file.size, (progress) => (told = progress)),
    signal,
    note: (text) => notes.push(text),
  });
  return { ...loaded, whole: (upload as Bytes).bytes().equals(body) };
}

/** A server of `body`, and the requests for it that it got. */
async function server(listener?: (count: number) => Parameters<typeof answer>[3]) {
  const gets: IncomingMessage[] = [];
  const serve: RequestListener = (request, response) => {
    if (request.method === "GET") gets.push(request);
    answer(request, response, body, listener?.(gets.length));
  };
  const piece = { from: "url", url: `${await serving(serve)}/m` } as const;
  return { piece, gets };
}

describe("a file", () => {
  test("is downloaded once", async () => {
    const { piece, gets } = await server();
    expect(await load([piece])).toEqual({ ...whole(), cached: false });
    expect(told).toMatchObject({ loaded: body.length, total: body.length, cached: false });
    expect(await load([piece])).toEqual({ ...whole(), cached: true });
    expect(told).toMatchObject({ loaded: body.length, cached: true });
    expect(gets).toHaveLength(1);
    expect(notes).toEqual([]);
  });

  test("is downloaded anew when the server has another", async () => {
    let etag = '"1"';
    const { piece, gets } = await server(() => ({ etag }));
    await load([piece]);
    etag = '"2"';
    expect(await load([piece])).toMatchObject({ cached: false, whole: true });
    expect(gets).toHaveLength(2);
  });

  test("is downloaded anew when the cached one is damaged", async () => {
    const { piece } = await server();
    await load([piece]);
    for (const file of store.files.values()) file.bytes[1000] = ~(file.bytes[1000] as number);
    expect(await load([piece])).toMatchObject({ cached: false, whole: true });
    expect(told.loaded).toBe(body.length);
    expect(notes).toEqual([expect.stringContaining("damaged")]);
    expect(await load([piece])).toMatchObject({ cached: true, whole: true });
  });

  test("goes on after an abort", async () => {
    const { piece, gets } = await server();
    const abort = new AbortController();
    const write = store.write.bind(store);
    store.write = async (...args) => {
      const writer = await write(...args);
      return { ...writer, write: (chunk) => (abort.abort("enough"), writer.write(chunk)) };
    };
    await expect(load([piece], { signal: abort.signal })).rejects.toBe("enough");
    store.write = write;
    expect(await load([piece])).toMatchObject({ cached: false, whole: true });
    expect(gets[1]?.headers.range).toMatch(/^bytes=[1-9]\d*-$/);
  });

  test("has the expected hash, or is refused and not kept", async () => {
    const { piece } = await server();
    expect(await load([piece], { sha256: sha256.toUpperCase() })).toMatchObject({ whole: true });
    const wrong = load([piece], { sha256: "00" });
    await expect(wrong).rejects.toMatchObject({ code: "hash_mismatch" });
    expect(store.files.size).toBe(0);
  });

  test("loads without a cache that fails, and says so", async () => {
    const { piece } = await server();
    store.write = async () => {
      throw new Error("quota exceeded");
    };
    expect(await load([piece])).toMatchObject({ cached: false, whole: true });
    expect(notes).toEqual([expect.stringContaining("quota exceeded")]);
  });

  test("may come in pieces, and go on in the middle of one", async () => {
    const pieces = [body.subarray(0, 700_000), body.subarray(700_000)];
    let gets = 0;
    const base = await serving((request, response) => {
      const piece = pieces[Number(request.url?.at(-1))] as Buffer;
      const broken = request.method === "GET" && gets++ === 1;
      answer(request, response, piece, broken ? { breakAfter: 500_000 } : {});
    });
    const urls = [0, 1].map((n) => ({ from: "url", url: `${base}/${n}` }) as const);
    expect(await load(urls)).toEqual({ ...whole(), cached: false });
    expect(gets).toBe(3);
    expect(await load(urls)).toEqual({ ...whole(), cached: true });
  });

  test("may be the page's own", async () => {
    const blob = { from: "blob", blob: new Blob([new Uint8Array(body)]) } as const;
    expect(await load([blob])).toEqual({ ...whole(), sha256: null, cached: false });
    const lent = { from: "page", ...lend(body) } as const;
    expect(await load([lent])).toMatchObject({ whole: true });
    expect(store.files.size).toBe(0);
  });
});

function whole() {
  return { name: "m", bytes: body.length, sha256, whole: true };
}
