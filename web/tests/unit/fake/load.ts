import { afterEach } from "vitest";
import type { Engine } from "../../../src/engine.js";
import { createLoad } from "../../../src/load.js";
import { platform } from "../../../src/platform/page.node.js";
import type { LoadOptions, ModelSource } from "../../../src/types.js";
import { places } from "./assets.js";

export const rawLoad = createLoad(platform, places);
const engines: Engine[] = [];

/** Loads an engine on fake artifacts. It is disposed after the test. */
export async function load(
  source: ModelSource = new Blob(["a model"]),
  options: LoadOptions = {},
): Promise<Engine> {
  const engine = await rawLoad(source, { threads: 1, ...options });
  engines.push(engine);
  return engine;
}

afterEach(async () => {
  for (const engine of engines.splice(0)) await engine.dispose();
});
