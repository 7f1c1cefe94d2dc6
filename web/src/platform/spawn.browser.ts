import type { WorkerHandle } from "./platform.js";

/** Starts a worker in a browser. */
export function spawn(url: string): WorkerHandle {
  const blobUrl = sameOriginUrl(url);
  const worker = new Worker(blobUrl ?? url, { type: "module", name: "wrinklefree" });
  return {
    post: (message, transfer = []) => worker.postMessage(message, transfer),
    onMessage: (handler) => {
      worker.onmessage = ({ data }) => handler(data);
    },
    onFailure: (handler) => {
      worker.onerror = (event) => handler(event.message || `the worker ${url} failed to load`);
    },
    keepAlive: () => {},
    terminate: () => {
      worker.terminate();
      if (blobUrl) URL.revokeObjectURL(blobUrl);
    },
  };
}

/**
 * Returns a blob URL for a worker from another origin. Browsers refuse to start such a worker directly,
 * but they let a module of this origin import it.
 */
function sameOriginUrl(url: string): string | undefined {
  if (new URL(url).origin === location.origin) return undefined;
  const source = `import ${JSON.stringify(url)};`;
  return URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
}
