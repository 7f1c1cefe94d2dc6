import { afterEach } from "vitest";
import type { Engine } from "../../../src/engine.js";
import { loader } from "../../../src/load.js";
import { platform } from "../../../src/platform/page.node.js";
import type { LoadOptions, ModelSource } from "../../../src/types.js";
import { places } from "./places.js";

export const rawLoad = loader(platform, places);
const engines: Engine[] = [];

/** An engine on stand-in artifacts, disposed after the test. */
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
