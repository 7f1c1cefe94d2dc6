/**
 * Service worker. It serves the page offline and adds the headers for cross-origin isolation, which
 * threads need, if the host does not send them. The model is in the package's own cache.
 */

// Replaces the DOM's type of `self`.
export {};
declare const self: ServiceWorkerGlobalScope;
/** All other files of this build; the build inserts the list. */
declare const __FILES__: string[];

const CACHE = "wrinklefree-demo";
/** Files that are cached on first use: a browser runs only one of the four modules. */
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

/** Deletes the files of older versions and takes control of open pages. */
async function takeOver(): Promise<void> {
  const cache = await caches.open(CACHE);
  const known = new Set(["./", ...__FILES__].map(url));
  for (const { url } of await cache.keys()) {
    if (!known.has(url)) await cache.delete(url);
  }
  await self.clients.claim();
}

/** Returns the response to a request, or `null` to leave it to the network. */
function respond(request: Request): Promise<Response> | null {
  const { origin, pathname } = new URL(request.url);
  if (request.method !== "GET" || origin !== location.origin || MODEL.test(pathname)) return null;
  return request.mode === "navigate" ? page(request) : file(request);
}

/** Fetches the newest page, or returns the cached one. */
async function page(request: Request): Promise<Response> {
  try {
    const response = await fetch(request);
    if (response.ok) await keep(url("./"), response.clone());
    return isolated(response);
  } catch {
    return isolated((await caches.match(url("./"))) ?? Response.error());
  }
}

/** Returns a file from the cache first: file names contain a hash of the content. */
async function file(request: Request): Promise<Response> {
  const kept = await caches.match(request);
  if (kept) return isolated(kept);
  const response = await fetch(request);
  if (response.ok) await keep(request.url, response.clone());
  return isolated(response);
}

/** Caches a response. A full disk only prevents the offline copy. */
async function keep(url: string, response: Response): Promise<void> {
  const cache = await caches.open(CACHE);
  await cache.put(url, response).catch(() => {});
}

/** Returns the response with the headers for cross-origin isolation. */
function isolated(response: Response): Response {
  if (response.status === 0) return response;
  const headers = new Headers(response.headers);
  headers.set("cross-origin-opener-policy", "same-origin");
  headers.set("cross-origin-embedder-policy", "require-corp");
  const { status, statusText } = response;
  return new Response(response.body, { status, statusText, headers });
}
