import { WrinkleFreeError } from "../errors.js";
import type { Glue } from "../glue.js";
import type { Thread, WorkerPlatform } from "../platform/platform.js";
import type { FromHelper, Places, ToHelper } from "../protocol.js";
import type { Choice } from "./choose.js";

/** An artefact that runs, and the helper workers that wait for its session. */
export interface Running {
  glue: Glue;
  helpers: Thread[];
}

/** Starts an artefact with its threads. */
export async function start(
  { artefact, threads }: Choice,
  places: Places,
  platform: WorkerPlatform,
): Promise<Running> {
  const { glue: url, binary } = places.wasm[artefact];
  const [glue, module] = await Promise.all([
    import(/* @vite-ignore */ /* webpackIgnore: true */ url) as Promise<Glue>,
    platform.compile(binary),
  ]);
  const { memory } = await glue.default({ module_or_path: module });
  const start = { type: "helper", glue: url, module, memory } as const;
  const helpers = Array.from({ length: threads - 1 }, () => helper(start, places.worker, platform));
  return { glue, helpers: await Promise.all(helpers) };
}

/** A helper worker that has the module. */
function helper(start: ToHelper, url: string, platform: WorkerPlatform): Promise<Thread> {
  const thread = platform.spawn(url);
  return new Promise((resolve, reject) => {
    const broken = (message: string) => reject(new WrinkleFreeError("crashed", message));
    thread.onBroken(broken);
    thread.onMessage((message: FromHelper) => {
      if (message.type === "ready") resolve(thread);
      else broken(message.error.message);
    });
    thread.post(start);
  });
}

/** Lets helpers work for the session that was opened. */
export function go(helpers: readonly Thread[]): void {
  for (const helper of helpers) helper.post({ type: "go" } satisfies ToHelper);
}
