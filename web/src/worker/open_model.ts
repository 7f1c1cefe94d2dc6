/** Loading of a model in the worker. */

import { following } from "../abort.js";
import { openStore } from "../cache/open.js";
import type { Session, SessionInfo, Upload } from "../bindings.js";
import type { WorkerPlatform } from "../platform/platform.js";
import type { AssetUrls, LoadSettings, ToWorker } from "../protocol.js";
import type { EngineInfo, LoadedFile, Progress } from "../types.js";
import { type StartedArtifact, runPoolWorkers, startArtifact } from "./artifact.js";
import { type ArtifactChoice, choose, detectFeatures } from "./artifact_choice.js";
import { checkMemory } from "./memory.js";
import { ProgressReporter } from "./progress_reporter.js";
import { type LocatedFile, type ReceivedFile, locate, receive } from "./receive.js";

/** A loaded model and its description. */
export interface OpenModel {
  session: Session;
  info: EngineInfo;
}

/** Maximum number of files that are read at the same time. */
const PARALLEL_FILES = 4;

type LoadMessage = Extract<ToWorker, { type: "load" }>;

/** Chooses an artifact, reads the files into its memory and opens a session on them. */
export async function openModel(
  { files, drafter, settings, assets }: LoadMessage,
  platform: WorkerPlatform,
  signal: AbortSignal,
  onProgress: (progress: Progress) => void,
): Promise<OpenModel> {
  const { headers } = settings;
  const all = [...files, ...drafter];
  const located = await Promise.all(all.map((file) => locate(file, platform, signal, headers)));
  const notes: string[] = [];
  const memoryNote = checkMemory(located, deviceMemory());
  if (memoryNote) notes.push(memoryNote);
  const { choice, started } = await startBestArtifact(settings, assets, platform);
  const { store, why } = await openStore(settings.cache);
  const stop = following(signal);
  const context = {
    ...{ Upload: started.bindings.Upload, store, sha256: settings.sha256, signal: stop.signal },
    progress: new ProgressReporter(totalSize(located), onProgress),
    addNote: (text: string) => void notes.push(text),
  };
  const received = await inParallel(located, (file) => receive(file, context), stop);
  const uploads = received.map(({ upload }) => upload);
  const own = uploads.splice(0, files.length);
  const session = openSession(started, [own, uploads], settings, choice);
  const loaded = received.map(({ loaded }) => loaded);
  const info = engineInfo(session, choice, loaded, { cache: cacheState(why, received), notes });
  if (!info.chat) info.notes.push(noTemplate(info.name));
  return { session, info };
}

/** Returns the cache in use, or why it does not keep all files. */
function cacheState(why: string, files: readonly ReceivedFile[]): string {
  const faults = files.flatMap(({ loaded, cacheFault }) =>
    cacheFault === null ? [] : [`off for ${loaded.name}: ${cacheFault}`],
  );
  return faults.length ? faults.join("; ") : why;
}

/** Starts the best artifact; falls back to one thread, since some phones refuse shared memory. */
async function startBestArtifact(
  settings: LoadSettings,
  assets: AssetUrls,
  platform: WorkerPlatform,
) {
  const available = await detectFeatures(platform.cores);
  const choice = choose(available, settings);
  try {
    return { choice, started: await startArtifact(choice, assets, platform) };
  } catch (error) {
    const refused = error instanceof RangeError && settings.threads === "auto";
    if (!refused || choice.threads === 1) throw error;
    const threads = `no shared memory: ${error.message}`;
    const single = choose({ ...available, threads }, settings);
    return { choice: single, started: await startArtifact(single, assets, platform) };
  }
}

/** Returns the note that prompts are continued as they are. */
function noTemplate(name: string): string {
  return (
    `${name} has no chat template: a prompt is continued as it is, and messages are refused; the ` +
    "option chatTemplate sets a template"
  );
}

/** Returns the device's memory in GiB, if the browser reports it. */
function deviceMemory(): number | undefined {
  return (globalThis.navigator as { deviceMemory?: number } | undefined)?.deviceMemory;
}

function totalSize(files: readonly LocatedFile[]): number | null {
  const known = files.every((file) => file.size !== null);
  return known ? files.reduce((sum, file) => sum + (file.size ?? 0), 0) : null;
}

/**
 * Runs an action on all items, a few at a time, and returns the results in order. An error aborts the
 * actions in progress and is thrown when they have ended, so that nothing writes to the cache any more.
 */
async function inParallel<T, R>(
  items: readonly T[],
  action: (item: T) => Promise<R>,
  stop: AbortController,
): Promise<R[]> {
  const results = new Array<R>(items.length);
  let next = 0;
  const run = async () => {
    while (next < items.length && !stop.signal.aborted) {
      const index = next++;
      try {
        results[index] = await action(items[index] as T);
      } catch (error) {
        stop.abort(error);
      }
    }
  };
  await Promise.all(Array.from({ length: PARALLEL_FILES }, run));
  stop.signal.throwIfAborted();
  return results;
}

function openSession(
  { bindings, poolWorkers }: StartedArtifact,
  [model, drafter]: [Upload[], Upload[]],
  { name, context, kv, text, mtp, draftLayout: draft_layout }: LoadSettings,
  { threads }: ArtifactChoice,
): Session {
  const options = { name, threads, context, kv, mtp, draft_layout, ...text };
  const session = bindings.Session.open(model, drafter, JSON.stringify(options));
  runPoolWorkers(poolWorkers);
  return session;
}

function engineInfo(
  session: Session,
  choice: ArtifactChoice,
  files: LoadedFile[],
  { cache, notes }: { cache: string; notes: string[] },
): EngineInfo {
  const info = JSON.parse(session.info()) as SessionInfo;
  return {
    name: info.name,
    architecture: info.architecture,
    parameters: info.parameters,
    layers: info.layers,
    hiddenSize: info.hidden_size,
    vocabSize: info.vocab_size,
    contextLength: info.context_length,
    context: info.context,
    weightsBytes: info.weights_bytes,
    subnormalWeights: info.subnormal_weights,
    endTokens: info.end_tokens,
    kvBytes: info.kv_bytes,
    kvTypes: info.kv_types,
    attention: info.attention,
    memoryBytes: info.memory_bytes,
    simd: info.simd,
    threads: info.threads,
    decodeModes: info.decode_modes,
    defaultDecodeMode: info.default_decode_mode,
    chat: info.chat,
    blockSize: info.block_size,
    maskTokenId: info.mask_token_id,
    drafter: info.drafter,
    artifact: choice.artifact,
    artefact: choice.artifact,
    why: { ...choice.why, cache },
    notes: [...notes, ...info.notes],
    files,
  };
}
