import { randomBytes } from "node:crypto";
import { afterEach, describe, expect, test, vi } from "vitest";
import { cache } from "../../src/cache/model_cache.js";
import { openStore } from "../../src/cache/open.js";
import { hubUrl } from "../../src/hub.js";
import { load } from "./fake/load.js";
import { answer, serving } from "./fake/server.js";

afterEach(() => vi.unstubAllGlobals());

describe("tokens", () => {
  test("are counted, decoded and taken as a prompt", async () => {
    const engine = await load();
    expect(await engine.countTokens("to be or not")).toBe(4);
    expect(await engine.countTokens([{ role: "user", content: "to be" }])).toBe(2);
    expect(await engine.countTokens([7, 8, 9])).toBe(3);
    expect(await engine.detokenize([5, 6])).toBe("<5,6>");
    expect(await engine.detokenize(Uint32Array.of(5))).toBe("<5>");
    await expect(engine.detokenize(["a"] as never)).rejects.toThrow("tokens[0]: expected a token");
    await expect(engine.countTokens("a", { raws: true } as never)).rejects.toThrow("raw?");
  });
});

test("`await using` disposes an engine", async () => {
  const engine = await load();
  await engine[Symbol.asyncDispose]();
  await expect(engine.generate("a")).rejects.toMatchObject({ code: "disposed" });
});

describe("downloads", () => {
  const body = randomBytes(1000);

  test("send headers, which the built-in model does not get", async () => {
    const keys: unknown[] = [];
    const url = await serving((request, response) => {
      keys.push(request.headers.authorization);
      answer(request, response, body);
    });
    const headers = { authorization: "Bearer 7" };
    await load(`${url}/m.gguf`, { headers });
    expect(keys).toEqual(["Bearer 7", "Bearer 7"]);
    for (const wrong of [{ a: 1 }, { "a b": "x" }, "x"]) {
      const refused = load(`${url}/m.gguf`, { headers: wrong as never });
      await expect(refused).rejects.toThrow(/^headers: /);
    }
  });

  test("of several files run at the same time, four at most, and an error ends all", async () => {
    let [now, most] = [0, 0];
    const url = await serving((request, response) => {
      if (request.method === "HEAD") return answer(request, response, body);
      most = Math.max(most, ++now);
      setTimeout(() => {
        now -= 1;
        if (request.url === "/bad.json") response.writeHead(404).end();
        else answer(request, response, body);
      }, 100);
    });
    const files = [1, 2, 3, 4, 5, 6].map((n) => `${url}/m${n}.gguf`);
    const engine = await load(files);
    expect(most).toBe(4);
    expect(engine.info().files.map((file) => file.name)).toEqual(
      [1, 2, 3, 4, 5, 6].map((n) => `m${n}.gguf`),
    );
    const failing = load([`${url}/bad.json`, ...files]);
    await expect(failing).rejects.toThrow(/bad\.json: the server answered 404 Not Found: .*URL/);
  });
});

test.each([
  ["hf:org/name/m.gguf", "https://huggingface.co/org/name/resolve/main/m.gguf"],
  ["hf:org/n-1.58_B@v2/a/m.gguf", "https://huggingface.co/org/n-1.58_B/resolve/v2/a/m.gguf"],
  ["hf:org/name@refs/pr/1/m.gguf", "https://huggingface.co/org/name/resolve/refs/pr/1/m.gguf"],
  ["./m.gguf", "./m.gguf"],
])("%s", (id, url) => {
  expect(decodeURIComponent(String(hubUrl(id)))).toContain(url.split("/resolve/")[0]);
});

test.each(["hf:org/name", "hf:org", "hf:", "hf:../a/b", "hf:a/b/../../c", "hf:a b/c/d"])(
  "%s is refused",
  (id) => {
    expect(() => hubUrl(id)).toThrow(expect.objectContaining({ code: "bad_source" }));
  },
);

describe("the cache", () => {
  /** A browser with Cache Storage, and with OPFS if `handle` is set. */
  function browser(handle: object | null, directory: () => Promise<object>) {
    class FileSystemFileHandle {}
    Object.assign(FileSystemFileHandle.prototype, handle);
    vi.stubGlobal("FileSystemFileHandle", FileSystemFileHandle);
    vi.stubGlobal("navigator", { storage: { getDirectory: directory } });
    vi.stubGlobal("location", new URL("https://page.example/"));
    vi.stubGlobal("caches", { open: async () => fakeCache(new Map()) });
  }

  const denied = async () => {
    throw new DOMException("private window", "SecurityError");
  };

  test("is Cache Storage where OPFS cannot write, and says why", async () => {
    browser(null, denied);
    expect(await openStore(true)).toMatchObject({
      store: { name: "cache-storage" },
      why: "cache-storage: OPFS has no createSyncAccessHandle",
    });
    browser({ createSyncAccessHandle: denied }, denied);
    expect((await openStore(true)).why).toBe("cache-storage: OPFS denies access (private window)");
    browser({ createSyncAccessHandle: denied }, async () => fakeDirectory(denied));
    expect((await openStore(true)).why).toContain("OPFS denies access");
    vi.stubGlobal("navigator", {});
    expect((await openStore(true)).why).toBe("cache-storage: OPFS is not available");
    vi.unstubAllGlobals();
    expect(await openStore(true)).toMatchObject({ store: null });
    expect(await openStore(false)).toEqual({ store: null, why: "off: requested" });
  });

  test("lists, measures and deletes what it keeps", async () => {
    const entries = new Map<string, Response>();
    browser(null, denied);
    vi.stubGlobal("caches", { open: async () => fakeCache(entries) });
    const { store } = await openStore(true);
    const url = "https://models.example/m.gguf";
    const metadata = {
      ...{ urls: [url], sizes: [3], validators: [null] },
      ...{ sha256: "00", complete: true },
    };
    const writer = await store!.write("a".repeat(64), metadata, 0);
    await writer.write(new Uint8Array(3));
    await writer.finish(metadata);
    const [file, ...others] = await cache.list();
    expect(others).toEqual([]);
    expect(file).toEqual({
      ...{ urls: [url], bytes: 3, complete: true, sha256: "00", store: "cache-storage" },
    });
    expect(await cache.size()).toEqual({ downloads: 3, used: null, quota: null });
    expect(await cache.delete("https://models.example/other.gguf")).toBe(0);
    await expect(cache.delete("https://[")).rejects.toMatchObject({ code: "bad_request" });
    expect(await cache.delete(new URL(url))).toBe(1);
    expect(await cache.list()).toEqual([]);
  });

  test("is empty in Node", async () => {
    expect(await cache.list()).toEqual([]);
    expect(await cache.delete()).toBe(0);
  });
});

function fakeDirectory(createSyncAccessHandle: () => Promise<never>) {
  const directory = {
    getDirectoryHandle: async () => directory,
    getFileHandle: async () => ({ createSyncAccessHandle }),
    removeEntry: async () => {},
  };
  return directory;
}

function fakeCache(entries: Map<string, Response>) {
  return {
    match: async (url: string) => entries.get(url)?.clone(),
    put: async (url: string, response: Response) => {
      entries.set(url, new Response(await response.arrayBuffer()));
    },
    delete: async (url: string) => entries.delete(url),
    keys: async () => [...entries.keys()].map((url) => ({ url })),
  };
}
