// A file server for the measurements, with the headers for cross-origin isolation.

import { once } from "node:events";
import { createReadStream } from "node:fs";
import { stat } from "node:fs/promises";
import { createServer } from "node:http";
import { extname, join, normalize } from "node:path";

const TYPES = { ".js": "text/javascript", ".mjs": "text/javascript", ".wasm": "application/wasm" };
const HEADERS = {
  "cross-origin-opener-policy": "same-origin",
  "cross-origin-embedder-policy": "require-corp",
  "cache-control": "no-store",
};

/** Serves directories by the first part of the path. `/` is an empty page. */
export async function serve(roots) {
  const server = createServer(async (request, response) => {
    const path = normalize(decodeURIComponent(new URL(request.url, "http://host").pathname));
    const [, root, ...rest] = path.split("/");
    if (path === "/") {
      response.writeHead(200, { ...HEADERS, "content-type": "text/html" });
      return response.end("<!doctype html><title>Speed</title><link rel=icon href=data:,>");
    }
    const file = join(roots[root] ?? "/nowhere", ...rest);
    const found = await stat(file).catch(() => undefined);
    if (!found?.isFile()) return response.writeHead(404, HEADERS).end();
    const type = TYPES[extname(file)] ?? "application/octet-stream";
    response.writeHead(200, { ...HEADERS, "content-type": type, "content-length": found.size });
    createReadStream(file).pipe(response);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return { url: `http://127.0.0.1:${server.address().port}`, close: () => server.close() };
}
