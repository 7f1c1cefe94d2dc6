import { WrinkleFreeError } from "../errors.js";
import type { Glue } from "../glue.js";
import { type Port, type WorkerPlatform, portOf } from "../platform/platform.js";
import type { FromHelper, FromWorker, Places, ToHelper } from "../protocol.js";
import type { Choice } from "./choose.js";

/** An artifact that runs, and the lines to the helpers that wait for its session. */
export interface Running {
  glue: Glue;
  helpers: Port[];
}

/** Starts an artifact with its threads. */
export async function start(
  { artifact, threads }: Choice,
  places: Places,
  platform: WorkerPlatform,
): Promise<Running> {
  const { glue: url, binary } = places.wasm[artifact];
  const [glue, module] = await Promise.all([
    import(/* @vite-ignore */ /* webpackIgnore: true */ url) as Promise<Glue>,
    platform.compile(binary),
  ]);
  const { memory } = await glue.default({ module_or_path: module });
  const start = { type: "start", glue: url, module, memory } as const;
  const helpers = Array.from({ length: threads - 1 }, () => helper(start, platform.port));
  return { glue, helpers: await Promise.all(helpers) };
}

/** A helper that has the module. One that breaks is the page's affair, which then ends us all. */
function helper(start: ToHelper, page: Port): Promise<Port> {
  const { port1, port2 } = new MessageChannel();
  page.post({ type: "spawn", port: port2 } satisfies FromWorker, [port2]);
  const line = portOf(port1);
  return new Promise((resolve, reject) => {
    line.onMessage((message: FromHelper) => {
      if (message.type === "ready") resolve(line);
      else reject(new WrinkleFreeError("crashed", message.error.message));
    });
    line.post(start);
  });
}

/** Lets helpers work for the session that was opened. */
export function go(helpers: readonly Port[]): void {
  for (const helper of helpers) helper.post({ type: "go" } satisfies ToHelper);
}
