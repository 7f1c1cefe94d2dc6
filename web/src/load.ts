/** The implementation of `load`, for browsers and for Node. */

import { WorkerConnection } from "./connection.js";
import { Engine, type LoadFunction } from "./engine.js";
import { WrinkleFreeError } from "./errors.js";
import { withServedBuffers } from "./buffer_stream.js";
import { resolveAssets } from "./assets.js";
import type { PagePlatform } from "./platform/platform.js";
import type { ModelFile, AssetUrls } from "./protocol.js";
import { LOAD_OPTIONS, loadSettings } from "./load_settings.js";
import { withOptionNames } from "./option_names.js";
import { modelFiles, namedFiles } from "./sources.js";
import type { EngineInfo, LoadOptions } from "./types.js";

/** Creates `load` for a platform. `relative`: the package's files, relative to its module. */
export function createLoad(platform: PagePlatform, relative: AssetUrls): LoadFunction {
  return async (source = "default", options = {}) => {
    const { signal, onProgress } = options ?? {};
    signal?.throwIfAborted?.();
    const assets = resolveAssets(relative, platform.resolve);
    const sources = modelFiles(source, platform.resolve, assets.model);
    const drafts = draftFiles(options?.draftModel, platform.resolve);
    const settings = loadSettings(options, sources, drafts);
    // What the caller's server may know is not for the host of this package.
    if (source === "default") settings.headers = {};
    const connection = new WorkerConnection(() => platform.spawn(assets.worker), onProgress);
    const [files, drafter] = [sources.map(withServedBuffers), drafts.map(withServedBuffers)];
    const call = { type: "load", files, drafter, settings, assets } as const;
    const ports = bufferPorts([...files, ...drafter]);
    const info = connection.call<EngineInfo>(call, ports).catch((error) => {
      throw withOptionNames(error, LOAD_OPTIONS);
    });
    info.catch((error) => connection.close(error));
    const abort = () => {
      connection.abort();
      // The worker still closes its cache entry, so it is ended only after its answer.
      const aborted = new WrinkleFreeError("disposed", "loading was aborted");
      info.finally(() => connection.close(aborted)).catch(() => {});
    };
    return new Engine(connection, await raceAbort(info, signal, abort));
  };
}

/** Returns the files of a drafter; none without one. */
function draftFiles(source: LoadOptions["draftModel"], resolve: (url: string | URL) => string) {
  return source === undefined ? [] : namedFiles(source, resolve);
}

function bufferPorts(files: readonly ModelFile[]): Transferable[] {
  const segments = files.flatMap((file) => file.segments);
  return segments.flatMap((segment) => (segment.from === "page" ? [segment.port] : []));
}

/** Returns the promise's result, or calls `abort` and rejects if the signal comes first. */
async function raceAbort<T>(
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
