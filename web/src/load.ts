import { Connection } from "./connection.js";
import { Engine, type Load } from "./engine.js";
import { WrinkleFreeError } from "./errors.js";
import { lent } from "./lend.js";
import { absolute } from "./places.js";
import type { PagePlatform } from "./platform/platform.js";
import type { ModelFile, Places } from "./protocol.js";
import { settings } from "./settings.js";
import { modelFiles } from "./sources.js";
import type { EngineInfo } from "./types.js";

/** `load` for a platform. */
export function loader(platform: PagePlatform, given: Places): Load {
  return async (source = "default", options = {}) => {
    const { signal, onProgress } = options;
    signal?.throwIfAborted();
    const places = absolute(given, platform.resolve);
    const named = modelFiles(source, platform.resolve, places.model);
    const chosen = settings(options, named);
    const connection = new Connection(() => platform.spawn(places.worker), onProgress);
    const files = named.map(lent);
    const call = { type: "load", files, settings: chosen, places } as const;
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
