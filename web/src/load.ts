import { Connection } from "./connection.js";
import { Engine, type Load } from "./engine.js";
import { WrinkleFreeError } from "./errors.js";
import { absolute } from "./places.js";
import type { PagePlatform } from "./platform/platform.js";
import type { ModelFile, Places, Settings } from "./protocol.js";
import { modelFiles } from "./sources.js";
import type { EngineInfo, LoadOptions } from "./types.js";

/** `load` for a platform. */
export function loader(platform: PagePlatform, given: Places): Load {
  return async (source = "default", options = {}) => {
    const { signal, onProgress } = options;
    signal?.throwIfAborted();
    const places = absolute(given, platform.resolve);
    const files = modelFiles(source, platform.resolve, places.model);
    const connection = new Connection(() => platform.spawn(places.worker), onProgress);
    const call = { type: "load", files, settings: settings(options, files), places } as const;
    const info = connection.call<EngineInfo>(call, ports(files));
    info.catch((error) => connection.close(error));
    const abort = () => {
      connection.abort();
      // The worker still closes its cache entry, so it ends only when it has answered.
      const aborted = new WrinkleFreeError("disposed", "loading was aborted");
      info.finally(() => connection.close(aborted)).catch(() => {});
    };
    return new Engine(connection, await abortable(info, signal, abort));
  };
}

function settings(options: LoadOptions, files: readonly ModelFile[]): Settings {
  const { threads = "auto", simd = "auto", cache = true, context, sha256 = {}, name } = options;
  const { kvType = {}, attention } = options;
  const types = typeof kvType === "string" ? { keys: kvType, values: kvType } : kvType;
  const first = (files[0] as ModelFile).name;
  if (threads !== "auto" && !(Number.isInteger(threads) && threads > 0)) {
    throw new WrinkleFreeError("bad_request", `threads: ${threads} is no number of threads`);
  }
  return {
    name: name ?? first.replace(/(\.wf)?\.(safetensors|gguf)$/, ""),
    threads,
    simd,
    cache,
    sha256: typeof sha256 === "string" ? { [first]: sha256 } : { ...sha256 },
    ...(context === undefined ? {} : { context }),
    kv: { ...types, ...(attention === undefined ? {} : { attention }) },
  };
}

function ports(files: readonly ModelFile[]): Transferable[] {
  const pieces = files.flatMap((file) => file.pieces);
  return pieces.flatMap((piece) => (piece.from === "page" ? [piece.port] : []));
}

/** What a promise gives, unless the signal comes first. */
async function abortable<T>(
  promise: Promise<T>,
  signal: AbortSignal | undefined,
  abort: () => void,
) {
  if (!signal) return promise;
  let onAbort = () => {};
  const aborted = new Promise<never>((_, reject) => {
    onAbort = () => {
      abort();
      reject(signal.reason);
    };
  });
  signal.addEventListener("abort", onAbort);
  try {
    return await Promise.race([promise, aborted]);
  } finally {
    signal.removeEventListener("abort", onAbort);
  }
}
