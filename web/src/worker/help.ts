import { toWire } from "../errors.js";
import type { Glue } from "../glue.js";
import type { Port } from "../platform/platform.js";
import type { FromHelper, ToHelper } from "../protocol.js";

/** A helper's life: gets the engine's module and memory, then works until the session is freed. */
export function help(port: Port): void {
  let glue: Glue | undefined;
  port.onMessage((message: ToHelper) => {
    // What fails at work breaks this worker, which the page notices; the engine waits and cannot.
    if (message.type === "go") glue?.helper?.();
    else void start(message);
  });

  async function start({ glue: url, module, memory }: Extract<ToHelper, { type: "start" }>) {
    try {
      glue = (await import(/* @vite-ignore */ /* webpackIgnore: true */ url)) as Glue;
      await glue.default({ module_or_path: module, memory });
      port.post({ type: "ready" } satisfies FromHelper);
    } catch (error) {
      port.post({ type: "failed", error: toWire(error) } satisfies FromHelper);
    }
  }
}
