import { Worker } from "node:worker_threads";
import type { Thread } from "./platform.js";

/** Starts a worker in Node. */
export function spawn(url: string): Thread {
  const worker = new Worker(new URL(url));
  return {
    // @types/node and the DOM name different types for what can be transferred.
    post: (message, transfer = []) => worker.postMessage(message, transfer as never),
    onMessage: (handler) => worker.on("message", handler),
    onBroken: (handler) => {
      worker.on("error", (error) => handler(error.message));
      worker.on("exit", (code) => handler(`the worker exited with code ${code}`));
    },
    hold: (busy) => (busy ? worker.ref() : worker.unref()),
    terminate: () => void worker.terminate(),
  };
}
