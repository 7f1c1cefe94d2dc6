// A static host for the built page that logs its requests.

import { createReadStream } from "node:fs";
import { stat } from "node:fs/promises";
import { createServer } from "node:http";
import { extname, join, normalize } from "node:path";
import { fileURLToPath } from "node:url";

const ROOT = fileURLToPath(new URL("../../demo/dist", import.meta.url));
const TYPES = {
  ".html": "text/html; charset=utf-8",
  ".css": "text/css; charset=utf-8",
  ".js": "text/javascript; charset=utf-8",
  ".wasm": "application/wasm",
};
const ISOLATION = {
  "cross-origin-opener-policy": "same-origin",
  "cross-origin-embedder-policy": "require-corp",
};

const CORS = {
  "access-control-allow-origin": "*",
  "access-control-allow-headers": "range",
  "access-control-expose-headers": "etag",
};

/**
 * Serves the page, or another folder, under `/some/path/`, as many hosts do. `isolated` adds the
 * headers for cross-origin isolation, `cors` those that let other origins read. `blank.html` is an empty
 * document.
 */
export async function host({ isolated, cors = false, root = ROOT }) {
  const log = [];
  const server = createServer(async (request, response) => {
    const { pathname } = new URL(request.url, "http://localhost");
    log.push(`${request.method} ${pathname}`);
    const headers = {
      // Only the page's own caches are tested, not the browser's HTTP cache.
      "cache-control": "no-store",
      ...(isolated ? ISOLATION : {}),
      ...(cors ? CORS : {}),
    };
    if (request.method === "OPTIONS") return response.writeHead(204, headers).end();
    if (pathname === "/some/path/blank.html") {
      return response.writeHead(200, { ...headers, "content-type": TYPES[".html"] }).end("<p>");
    }
    const path = pathname.replace(/^\/some\/path/, "").replace(/\/$/, "/index.html");
    const file = join(root, normalize(path));
    const found = await stat(file).catch(() => null);
    if (!pathname.startsWith("/some/path/") || !found?.isFile()) {
      return response.writeHead(404).end();
    }
    response.writeHead(200, {
      "content-type": TYPES[extname(file)] ?? "application/octet-stream",
      "content-length": found.size,
      etag: `"${found.size}-${found.mtimeMs}"`,
      ...headers,
    });
    if (request.method === "HEAD") return response.end();
    createReadStream(file).pipe(response);
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const close = () => {
    server.closeAllConnections();
    return new Promise((resolve) => server.close(resolve));
  };
  return { url: `http://localhost:${server.address().port}/some/path/`, log, close };
}
