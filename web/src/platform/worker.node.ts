import { createReadStream } from "node:fs";
import { readFile, stat } from "node:fs/promises";
import { availableParallelism } from "node:os";
import { setImmediate } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { parentPort } from "node:worker_threads";
import { WrinkleFreeError } from "../errors.js";
import type { Bytes } from "../worker/bytes.js";
import type { WorkerPlatform } from "./platform.js";

/** Bytes that are read at once. */
const CHUNK = 1 << 20;

/** A worker's side in Node. */
export function platform(): WorkerPlatform {
  if (!parentPort) throw new Error("this module runs in a worker");
  const port = parentPort;
  return {
    port: {
      // @types/node and the DOM name different types for what can be transferred.
      post: (message, transfer = []) => port.postMessage(message, transfer as never),
      onMessage: (handler) => port.on("message", handler),
    },
    cores: availableParallelism(),
    breathe: () => setImmediate(),
    compile: async (url) => WebAssembly.compile(await readFile(new URL(url))),
    file,
  };
}

async function file(url: string): Promise<Bytes | null> {
  if (!url.startsWith("file:")) return null;
  const path = fileURLToPath(url);
  const found = await stat(path).catch((error: Error) => {
    throw new WrinkleFreeError("bad_source", error.message, { cause: error });
  });
  if (!found.isFile()) throw new WrinkleFreeError("bad_source", `${path} is no file`);
  return {
    size: found.size,
    chunks: (start) => createReadStream(path, { start, highWaterMark: CHUNK }),
  };
}
