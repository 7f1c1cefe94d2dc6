/** A server on the engine: the chat page, and the part of OpenAI's API that the page needs. */

import { readFile } from "node:fs/promises";
import { type IncomingMessage, type ServerResponse, createServer } from "node:http";
import type { AddressInfo } from "node:net";
import type { ChatCompletionChunk, ChatCompletionParams } from "../chat_types.js";
import type { Engine } from "../engine.js";
import { WrinkleFreeError } from "../errors.js";
import { following } from "../abort.js";
import type { ServeOptions } from "./arguments.js";

/** Most bytes of a request's body, as in `wf-run serve`. */
const BODY_LIMIT = 4 << 20;
/** Modules of the page. */
const MODULES = ["api", "chat", "conversations", "files", "markdown", "messages"];
/** Files of the page, which are those of `wf-run serve`. */
const PAGE: Record<string, [file: string, type: string]> = {
  "/": ["index.html", "text/html; charset=utf-8"],
  "/page/theme.css": ["theme.css", "text/css; charset=utf-8"],
  "/page/style.css": ["style.css", "text/css; charset=utf-8"],
  ...Object.fromEntries(
    MODULES.map((name) => [`/page/${name}.js`, [`${name}.js`, "text/javascript; charset=utf-8"]]),
  ),
};
const PAGE_HEADERS = {
  "content-security-policy":
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src 'self'; " +
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
  "x-content-type-options": "nosniff",
  "referrer-policy": "no-referrer",
  "cache-control": "no-cache",
};
/** Errors that the request is to blame for. */
const REFUSED = new Set([
  ...["bad_request", "unsupported", "context_length_exceeded", "bad_decoding_parameter"],
  ...["bad_sampling_parameter", "no_chat_template"],
]);

/** Error: a request that is answered with a status. */
class HttpError extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
  ) {
    super(message);
  }
}

/** Serves until the signal comes. Running answers end then. */
export async function serve(engine: Engine, { host, port }: ServeOptions, signal: AbortSignal) {
  const server = createServer((request, response) => {
    answer(engine, request, response, signal).catch((error) => fail(response, error));
  });
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen(port, host, resolve);
  });
  const bound = server.address() as AddressInfo;
  const name = bound.family === "IPv6" ? `[${bound.address}]` : bound.address;
  console.log(`listening on http://${name}:${bound.port}`);
  await new Promise<void>((resolve) => {
    if (signal.aborted) resolve();
    signal.addEventListener("abort", () => resolve(), { once: true });
  });
  server.close();
  server.closeAllConnections();
}

async function answer(
  engine: Engine,
  request: IncomingMessage,
  response: ServerResponse,
  signal: AbortSignal,
) {
  requireOwnPage(request);
  const path = new URL(request.url ?? "/", "http://host").pathname;
  const isGet = request.method === "GET" || request.method === "HEAD";
  const file = PAGE[path];
  if (isGet && file) {
    const body = await readFile(new URL(`./page/${file[0]}`, import.meta.url));
    response.writeHead(200, { ...PAGE_HEADERS, "content-type": file[1] }).end(body);
  } else if (isGet && path === "/health") {
    json(response, 200, { status: "ok" });
  } else if (isGet && path === "/v1/models") {
    const { name, parameters, contextLength, defaultDecodeMode } = engine.info();
    // The page chooses its suggestions by the number of parameters, and shows how answers are denoised.
    const denoises = defaultDecodeMode === "iterative";
    const meta = { n_params: parameters, n_ctx_train: contextLength, denoises };
    const model = { id: name, object: "model", created: 0, owned_by: "wrinklefree", meta };
    json(response, 200, { object: "list", data: [model] });
  } else if (request.method === "POST" && path === "/v1/chat/completions") {
    await complete(engine, await params(request), response, signal);
  } else {
    throw new HttpError(404, "not_found", `there is no ${request.method} ${path}`);
  }
}

/**
 * Refuses requests of other sites: from a page of another origin, or through a name that another site
 * has bound to this machine.
 */
function requireOwnPage({ headers, socket }: IncomingMessage) {
  const host = headers.host ?? "";
  const name = host.replace(/:\d+$/, "").toLowerCase();
  const local = socket.localAddress?.replace("::ffff:", "") ?? "";
  const known = ["localhost", local, `[${local}]`];
  if (!known.includes(name)) {
    throw new HttpError(403, "forbidden", `the host ${host} is none of ${known.join(", ")}`);
  }
  if (headers.origin !== undefined && headers.origin !== `http://${host}`) {
    throw new HttpError(403, "forbidden", `pages of ${headers.origin} may not use this server`);
  }
}

async function params(request: IncomingMessage): Promise<ChatCompletionParams> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of request as AsyncIterable<Buffer>) {
    size += chunk.length;
    if (size > BODY_LIMIT) {
      throw new HttpError(413, "too_large", `the body has more than ${BODY_LIMIT} bytes`);
    }
    chunks.push(chunk);
  }
  try {
    const body: unknown = JSON.parse(Buffer.concat(chunks).toString());
    if (typeof body === "object" && body !== null) return body as ChatCompletionParams;
  } catch (error) {
    throw new HttpError(400, "bad_request", `the body is not JSON: ${(error as Error).message}`);
  }
  throw new HttpError(400, "bad_request", "the body is not a JSON object");
}

async function complete(
  engine: Engine,
  params: ChatCompletionParams,
  response: ServerResponse,
  signal: AbortSignal,
) {
  // A client that hangs up cancels its request.
  const gone = following(signal);
  response.once("close", () => gone.abort());
  const answer = await engine.chat.completions.create(params, { signal: gone.signal });
  if (!(Symbol.asyncIterator in answer)) return json(response, 200, answer);
  const write = (chunk: ChatCompletionChunk) =>
    response.write(`data: ${JSON.stringify(chunk)}\n\n`);
  // The role, which comes at once, waits for the first token: a refused request gets its status.
  const [role, token] = [await answer.next(), await answer.next()];
  response.writeHead(200, { "content-type": "text/event-stream" });
  for (const { value } of [role, token]) if (value) write(value);
  for await (const chunk of answer) write(chunk);
  response.end("data: [DONE]\n\n");
}

/** Answers with an error, as a status or, in a stream that has begun, as an event. */
function fail(response: ServerResponse, error: unknown) {
  if (response.destroyed) return;
  const code = error instanceof HttpError || error instanceof WrinkleFreeError ? error.code : null;
  const refused = REFUSED.has(code ?? "") ? 400 : 500;
  const status = error instanceof HttpError ? error.status : refused;
  if (status === 500) console.error(error);
  const type = status < 500 ? "invalid_request_error" : "server_error";
  const message = error instanceof Error ? error.message : String(error);
  const body = { error: { message, type, code, param: null } };
  if (response.headersSent) response.end(`data: ${JSON.stringify(body)}\n\n`);
  else json(response, status, body);
}

function json(response: ServerResponse, status: number, body: object) {
  // What is left of a refused body is not read.
  const close = status === 413 ? { connection: "close" } : {};
  response.writeHead(status, { "content-type": "application/json", ...close });
  response.end(JSON.stringify(body));
}
