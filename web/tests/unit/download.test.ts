import { randomBytes } from "node:crypto";
import { describe, expect, test } from "vitest";
import { type RemoteFile, download, probe } from "../../src/worker/download.js";
import { answer, serving } from "./fake/server.js";

const body = randomBytes(300_000);
const signal = new AbortController().signal;

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
    expect(file).toEqual({ url, size: body.length, validator: '"1"', reachable: true });
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
    const unknown = { url: late, size: null, validator: null, reachable: false };
    await expect(bytes(unknown)).rejects.toMatchObject({ code: "download_failed" });
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
    for (const status of ["404", "503"]) {
      const file = { url: `${url}/${status}`, size: null, validator: null, reachable: true };
      await expect(bytes(file)).rejects.toMatchObject({
        code: "download_failed",
        message: expect.stringContaining(status),
      });
    }
    expect(tries).toEqual({ "/404": 1, "/503": 6 });
  });

  test("rejects with the signal's reason, also between retries", async () => {
    const url = await serving((_, response) => void response.writeHead(503).end());
    const abort = new AbortController();
    const file = { url, size: null, validator: null, reachable: true };
    const ended = download(file, 0, abort.signal, 10_000).next();
    setTimeout(() => abort.abort("enough"), 50);
    await expect(ended).rejects.toBe("enough");
  });
});
