/** The model of a command. */

import { readdirSync, statSync } from "node:fs";
import { join } from "node:path";
import type { Engine, LoadFunction } from "../engine.js";
import type { Command } from "./arguments.js";

/** Files of a Hugging Face directory that make up a model. */
const PARTS = /\.(json|safetensors|jinja)$/;

/** Loads the model that a command names, and shows the progress on a terminal. */
export async function openModel(
  load: LoadFunction,
  { models, load: options }: Command,
  signal: AbortSignal,
): Promise<Engine> {
  const source = models.length ? models.flatMap(files) : "default";
  const progress = process.stderr.isTTY ? { onProgress: show } : {};
  const engine = await load(source, { ...options, ...progress, signal });
  if (process.stderr.isTTY) process.stderr.write("\r\x1b[K");
  for (const note of engine.info().notes) console.error(`warning: ${note}`);
  return engine;
}

/** Returns the files of a directory, or the path or URL as it is. */
function files(model: string): string[] {
  if (!statSync(model, { throwIfNoEntry: false })?.isDirectory()) return [model];
  const names = readdirSync(model);
  return names.filter((name) => PARTS.test(name)).map((name) => join(model, name));
}

function show({ file, loaded, total }: { file: string; loaded: number; total: number | null }) {
  const megabytes = (bytes: number) => (bytes / 1e6).toFixed(1);
  const of = total === null ? "" : ` of ${megabytes(total)}`;
  process.stderr.write(`\r\x1b[Kloading ${file}: ${megabytes(loaded)}${of} MB`);
}
