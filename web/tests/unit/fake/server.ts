import {
  type IncomingMessage,
  type RequestListener,
  type ServerResponse,
  createServer,
} from "node:http";
import type { AddressInfo } from "node:net";
import { afterAll } from "vitest";

/** Serves on the loopback until the file's tests end. Returns the base URL. */
export async function serving(listener: RequestListener): Promise<string> {
  const server = createServer(listener);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  afterAll(() => void server.close());
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

/** Answers as a file server does, with ranges, and breaks the connection after `breakAfter` bytes. */
export function answer(
  request: IncomingMessage,
  response: ServerResponse,
  body: Buffer,
  { etag = '"1"', ranges = true, breakAfter = Infinity } = {},
): void {
  const from = Number(/^bytes=(\d+)-$/.exec(request.headers.range ?? "")?.[1] ?? 0);
  const start = ranges ? from : 0;
  const partial = ranges && request.headers.range !== undefined && request.method === "GET";
  const part = body.subarray(start);
  response.writeHead(partial ? 206 : 200, { "content-length": part.length, etag });
  if (request.method === "HEAD") return void response.end();
  if (part.length <= breakAfter) return void response.end(part);
  response.write(part.subarray(0, breakAfter), () => response.destroy());
}
