/**
 * Makes the page work offline, and gives it the headers that threads need (cross-origin isolation)
 * where the host does not send them. The model is not kept here: the package has its own cache.
 */

// The types are those of any worker.
export {};
declare const self: ServiceWorkerGlobalScope;
/** All files of this build but this one; the build writes them in. */
declare const __FILES__: string[];

const CACHE = "wrinklefree-demo";
/** Of the four modules a browser runs one: these come into the cache when they are used. */
const LATER = /\.(wasm|safetensors)$/;
const MODEL = /\.safetensors$/;

const url = (file: string) => new URL(file, self.registration.scope).href;

self.addEventListener("install", (event) => event.waitUntil(keepShell()));
self.addEventListener("activate", (event) => event.waitUntil(takeOver()));
self.addEventListener("fetch", (event) => {
  const answer = respond(event.request);
  if (answer) event.respondWith(answer);
});

async function keepShell(): Promise<void> {
  const cache = await caches.open(CACHE);
  const shell = ["./", ...__FILES__.filter((file) => !LATER.test(file))];
  await cache.addAll(shell.map((file) => new Request(url(file), { cache: "reload" })));
}

/** Drops what older versions kept, and serves the page that is open already. */
async function takeOver(): Promise<void> {
  const cache = await caches.open(CACHE);
  const known = new Set(["./", ...__FILES__].map(url));
  for (const { url } of await cache.keys()) {
    if (!known.has(url)) await cache.delete(url);
  }
  await self.clients.claim();
}

/** What answers a request; `null`: the network does, as if this were not here. */
function respond(request: Request): Promise<Response> | null {
  const { origin, pathname } = new URL(request.url);
  if (request.method !== "GET" || origin !== location.origin || MODEL.test(pathname)) return null;
  return request.mode === "navigate" ? page(request) : file(request);
}

/** The newest page there is. */
async function page(request: Request): Promise<Response> {
  try {
    const response = await fetch(request);
    if (response.ok) await keep(url("./"), response.clone());
    return isolated(response);
  } catch {
    return isolated((await caches.match(url("./"))) ?? Response.error());
  }
}

/** Files have names of their content, so those that are kept are right. */
async function file(request: Request): Promise<Response> {
  const kept = await caches.match(request);
  if (kept) return isolated(kept);
  const response = await fetch(request);
  if (response.ok) await keep(request.url, response.clone());
  return isolated(response);
}

/** A full disk costs the offline copy, not the page. */
async function keep(url: string, response: Response): Promise<void> {
  const cache = await caches.open(CACHE);
  await cache.put(url, response).catch(() => {});
}

/** The response, with the headers of a page, or a worker, that may have threads. */
function isolated(response: Response): Response {
  if (response.status === 0) return response;
  const headers = new Headers(response.headers);
  headers.set("cross-origin-opener-policy", "same-origin");
  headers.set("cross-origin-embedder-policy", "require-corp");
  const { status, statusText } = response;
  return new Response(response.body, { status, statusText, headers });
}
