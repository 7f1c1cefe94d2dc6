/** A worker of the engine's thread pool. */

import { toWire } from "../errors.js";
import type { WasmBindings } from "../bindings.js";
import type { Endpoint } from "../platform/platform.js";
import type { FromPoolWorker, ToPoolWorker } from "../protocol.js";

/** Instantiates the engine's module on its memory, then runs until the session is freed. */
export function servePool(engine: Endpoint): void {
  let bindings: WasmBindings | undefined;
  engine.onMessage((message: ToPoolWorker) => {
    // A trap in here fails this worker. The page notices it; the engine waits and cannot.
    if (message.type === "run") bindings?.runPoolWorker?.();
    else void initialize(message);
  });

  async function initialize(init: Extract<ToPoolWorker, { type: "init" }>) {
    const { bindings: url, module, memory } = init;
    try {
      bindings = (await import(/* @vite-ignore */ /* webpackIgnore: true */ url)) as WasmBindings;
      await bindings.default({ module_or_path: module, memory });
      engine.post({ type: "ready" } satisfies FromPoolWorker);
    } catch (error) {
      engine.post({ type: "failed", error: toWire(error) } satisfies FromPoolWorker);
    }
  }
}
