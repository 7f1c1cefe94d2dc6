import { toWire } from "../errors.js";
import type { Glue } from "../glue.js";
import type { Port } from "../platform/platform.js";
import type { FromHelper, ToHelper } from "../protocol.js";

/** A helper worker: gets the engine's module and memory, then works until the session is freed. */
export function helper(port: Port): (message: ToHelper) => Promise<void> {
  let glue: Glue | undefined;
  return async (message) => {
    try {
      if (message.type === "go") {
        glue?.helper?.();
        return;
      }
      glue = (await import(/* @vite-ignore */ /* webpackIgnore: true */ message.glue)) as Glue;
      await glue.default({ module_or_path: message.module, memory: message.memory });
      port.post({ type: "ready" } satisfies FromHelper);
    } catch (error) {
      port.post({ type: "failed", error: toWire(error) } satisfies FromHelper);
    }
  };
}
