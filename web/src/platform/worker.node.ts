import { createReadStream } from "node:fs";
import { readFile, stat } from "node:fs/promises";
import { availableParallelism } from "node:os";
import { setImmediate } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { parentPort } from "node:worker_threads";
import { WrinkleFreeError } from "../errors.js";
import type { ByteSource } from "../worker/byte_source.js";
import type { WorkerPlatform } from "./platform.js";

/** Bytes of one read. */
const CHUNK = 1 << 20;

/** Returns a worker's platform in Node. */
export function platform(): WorkerPlatform {
  if (!parentPort) throw new Error("this module must run in a worker");
  const parent = parentPort;
  return {
    endpoint: {
      // @types/node and the DOM have different types of transferable objects.
      post: (message, transfer = []) => parent.postMessage(message, transfer as never),
      onMessage: (handler) => parent.on("message", handler),
    },
    cores: availableParallelism(),
    yieldToMessages: () => setImmediate(),
    compile: async (url) => WebAssembly.compile(await readFile(new URL(url))),
    openFile,
  };
}

async function openFile(url: string): Promise<ByteSource | null> {
  if (!url.startsWith("file:")) return null;
  const path = fileURLToPath(url);
  const found = await stat(path).catch((error: Error) => {
    throw new WrinkleFreeError("bad_source", error.message, { cause: error });
  });
  if (!found.isFile()) throw new WrinkleFreeError("bad_source", `${path} is not a file`);
  return {
    size: found.size,
    chunks: (start) => createReadStream(path, { start, highWaterMark: CHUNK }),
  };
}
