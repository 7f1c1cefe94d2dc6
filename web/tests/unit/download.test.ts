import { randomBytes } from "node:crypto";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { describe, expect, test } from "vitest";
import { type RemoteFile, download, probe } from "../../src/worker/download.js";
import { answer, serving } from "./fake/server.js";

const body = randomBytes(300_000);
const signal = new AbortController().signal;

/** Returns a file of which nothing is known yet. */
function unknown(url: string, reachable = true): RemoteFile {
  return { url, headers: {}, size: null, validator: null, reachable };
}

async function bytes(file: RemoteFile, from = 0): Promise<Buffer> {
  const chunks = [];
  for await (const chunk of download(file, from, signal, 1)) chunks.push(chunk);
  return Buffer.concat(chunks);
}

describe("a download", () => {
  test("requests uncompressed bytes and is complete", async () => {
    const encodings: unknown[] = [];
    const url = await serving((request, response) => {
      encodings.push(request.headers["accept-encoding"]);
      answer(request, response, body);
    });
    const file = await probe(url, signal);
    expect(file).toEqual({ ...unknown(url), size: body.length, validator: '"1"' });
    expect((await bytes(file)).equals(body)).toBe(true);
    expect(encodings).toEqual(["identity", "identity"]);
  });

  test.each([true, false])("resumes after a broken connection (ranges: %s)", async (ranges) => {
    let answers = 0;
    const url = await serving((request, response) => {
      const breakAfter = request.method === "GET" && answers++ === 0 ? 100_000 : Infinity;
      answer(request, response, body, { ranges, breakAfter });
    });
    expect((await bytes(await probe(url, signal))).equals(body)).toBe(true);
    expect(answers).toBe(2);
  });

  test("starts at an offset", async () => {
    const url = await serving((request, response) => answer(request, response, body));
    const file = await probe(url, signal);
    expect((await bytes(file, 299_000)).equals(body.subarray(299_000))).toBe(true);
    expect(await bytes(file, body.length)).toHaveLength(0);
  });

  test("uses the offset that the answer reports", async () => {
    const url = await serving((request, response) => {
      if (request.method === "HEAD") return answer(request, response, body);
      const range = `bytes 0-${body.length - 1}/${body.length}`;
      response.writeHead(206, { "content-range": range, etag: '"1"' }).end(body);
    });
    const file = await probe(url, signal);
    expect((await bytes(file, 299_000)).equals(body.subarray(299_000))).toBe(true);
    const late = await serving((_, response) => {
      response.writeHead(206, { "content-range": "bytes 10-19/*" }).end(body.subarray(10, 20));
    });
    await expect(bytes(unknown(late, false))).rejects.toMatchObject({ code: "download_failed" });
  });

  test("works without HEAD", async () => {
    const url = await serving((request, response) => {
      if (request.method === "HEAD") response.writeHead(405).end();
      else answer(request, response, body);
    });
    const file = await probe(url, signal);
    expect(file).toMatchObject({ size: null, reachable: false });
    expect((await bytes(file)).equals(body)).toBe(true);
    expect(file.size).toBe(body.length);
  });

  test("fails if the file changes", async () => {
    let answers = 0;
    const url = await serving((request, response) =>
      answer(request, response, body, { etag: `"${answers++}"` }),
    );
    await expect(bytes(await probe(url, signal))).rejects.toMatchObject({ code: "changed" });
  });

  test("retries temporary errors only", async () => {
    const tries: Record<string, number> = {};
    const url = await serving(({ url = "" }, response) => {
      tries[url] = (tries[url] ?? 0) + 1;
      response.writeHead(Number(url.slice(1))).end();
    });
    for (const [status, advice] of [
      ["401", "pass an authorization header"],
      ["404", "check the URL"],
      ["503", "try again later"],
    ]) {
      await expect(bytes(unknown(`${url}/${status}`))).rejects.toMatchObject({
        code: "download_failed",
        message: expect.stringMatching(new RegExp(`/${status}: the server answered .*${advice}`)),
      });
    }
    expect(tries).toEqual({ "/401": 1, "/404": 1, "/503": 6 });
  });

  test("waits as long as the server asks, up to a minute", async () => {
    const began = performance.now();
    let tries = 0;
    const url = await serving((request, response) => {
      if (tries++) answer(request, response, body);
      else response.writeHead(429, { "retry-after": "1" }).end();
    });
    expect((await bytes(unknown(url))).equals(body)).toBe(true);
    expect(performance.now() - began).toBeGreaterThan(990);
    const later = new Date(Date.now() + 3_600_000).toUTCString();
    const busy = await serving((_, response) => {
      response.writeHead(503, { "retry-after": later }).end();
    });
    await expect(bytes(unknown(busy))).rejects.toThrow(/it asks to wait 3\d\d\d s/);
  });

  test("sends the caller's headers with each request", async () => {
    const seen: unknown[] = [];
    const url = await serving((request, response) => {
      seen.push([request.method, request.headers["x-key"]]);
      const denied = request.headers["x-key"] !== "7";
      if (denied) response.writeHead(401).end();
      else answer(request, response, body);
    });
    const file = await probe(url, signal, { "x-key": "7" });
    expect((await bytes(file)).equals(body)).toBe(true);
    expect(seen).toEqual([
      ["HEAD", "7"],
      ["GET", "7"],
    ]);
  });

  test("says that nothing listens", async () => {
    const server = createServer();
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const { port } = server.address() as AddressInfo;
    await new Promise((resolve) => server.close(resolve));
    const file = await probe(`http://127.0.0.1:${port}/m.gguf`, signal);
    const failed = download(file, 0, signal, 60_000).next();
    await expect(failed).rejects.toThrow("the connection was refused: is the server running");
  });

  test.each([
    ["http://no-such-host.invalid/m.gguf", /there is no host|could not be resolved/],
    ["gopher://example.org/m.gguf", "gopher: URLs cannot be downloaded here: use https:"],
  ])("fails after one try where nothing answers: %s", async (url, reason) => {
    const file = await probe(url, signal);
    const failed = download(file, 0, signal, 60_000).next();
    await expect(failed).rejects.toThrow(reason);
    await expect(failed).rejects.toMatchObject({ code: "download_failed" });
  });

  test("rejects with the signal's reason, also between retries", async () => {
    const url = await serving((_, response) => void response.writeHead(503).end());
    const abort = new AbortController();
    const ended = download(unknown(url), 0, abort.signal, 10_000).next();
    setTimeout(() => abort.abort("enough"), 50);
    await expect(ended).rejects.toBe("enough");
  });
});
