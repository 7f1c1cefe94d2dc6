/** Start of an artifact and of its thread pool. */

import { WrinkleFreeError } from "../errors.js";
import type { WasmBindings } from "../bindings.js";
import { type Endpoint, type WorkerPlatform, endpointOf } from "../platform/platform.js";
import type { AssetUrls, FromPoolWorker, FromWorker, ToPoolWorker } from "../protocol.js";
import type { ArtifactChoice } from "./artifact_choice.js";

/** An instantiated artifact, and the pool workers that wait for its session. */
export interface StartedArtifact {
  bindings: WasmBindings;
  poolWorkers: Endpoint[];
}

/** Instantiates an artifact and starts the workers of its thread pool. */
export async function startArtifact(
  { artifact, threads }: ArtifactChoice,
  assets: AssetUrls,
  platform: WorkerPlatform,
): Promise<StartedArtifact> {
  const urls = assets.wasm[artifact];
  const [bindings, module] = await Promise.all([
    import(/* @vite-ignore */ /* webpackIgnore: true */ urls.bindings) as Promise<WasmBindings>,
    platform.compile(urls.binary),
  ]);
  const { memory } = await bindings.default({ module_or_path: module });
  const init = { type: "init", bindings: urls.bindings, module, memory } as const;
  const poolWorkers = Array.from({ length: threads - 1 }, () =>
    startPoolWorker(init, platform.endpoint),
  );
  return { bindings, poolWorkers: await Promise.all(poolWorkers) };
}

/**
 * Starts a pool worker and waits until it has instantiated the module. The page notices when one
 * fails later, and closes the engine.
 */
function startPoolWorker(init: ToPoolWorker, page: Endpoint): Promise<Endpoint> {
  const { port1, port2 } = new MessageChannel();
  page.post({ type: "spawnPoolWorker", port: port2 } satisfies FromWorker, [port2]);
  const worker = endpointOf(port1);
  return new Promise((resolve, reject) => {
    worker.onMessage((message: FromPoolWorker) => {
      if (message.type === "ready") resolve(worker);
      else reject(new WrinkleFreeError("crashed", message.error.message));
    });
    worker.post(init);
  });
}

/** Makes the pool workers run for the session that was opened. */
export function runPoolWorkers(workers: readonly Endpoint[]): void {
  for (const worker of workers) worker.post({ type: "run" } satisfies ToPoolWorker);
}
