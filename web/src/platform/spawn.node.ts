import { Worker } from "node:worker_threads";
import type { WorkerHandle } from "./platform.js";

/** Starts a worker in Node. */
export function spawn(url: string): WorkerHandle {
  const worker = new Worker(new URL(url));
  return {
    // @types/node and the DOM have different types of transferable objects.
    post: (message, transfer = []) => worker.postMessage(message, transfer as never),
    onMessage: (handler) => worker.on("message", handler),
    onFailure: (handler) => {
      worker.on("error", (error) => handler(error.message));
      worker.on("exit", (code) => handler(`the worker exited with code ${code}`));
    },
    keepAlive: (busy) => (busy ? worker.ref() : worker.unref()),
    terminate: () => void worker.terminate(),
  };
}
