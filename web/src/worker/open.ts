import { openStore } from "../cache/open.js";
import type { Session, SessionInfo, Upload } from "../glue.js";
import type { WorkerPlatform } from "../platform/platform.js";
import type { Places, Settings, ToWorker } from "../protocol.js";
import type { EngineInfo, LoadedFile, Progress } from "../types.js";
import { type Running, go, start } from "./artifact.js";
import { type Choice, choose, features } from "./choose.js";
import { checkMemory } from "./memory.js";
import { Meter } from "./meter.js";
import { type FoundFile, find, receive } from "./receive.js";

/** An open model. */
export interface Opened {
  session: Session;
  info: EngineInfo;
}

type Load = Extract<ToWorker, { type: "load" }>;

/** Chooses an artifact, brings the files into its memory and opens them. */
export async function open(
  { files, settings, places }: Load,
  platform: WorkerPlatform,
  signal: AbortSignal,
  tell: (progress: Progress) => void,
): Promise<Opened> {
  const found = await Promise.all(files.map((file) => find(file, platform, signal)));
  const notes: string[] = [];
  const low = checkMemory(found, deviceMemory());
  if (low) notes.push(low);
  const { choice, running } = await startBest(settings, places, platform);
  const { store, why } = await openStore(settings.cache);
  const context = {
    ...{ Upload: running.glue.Upload, store, sha256: settings.sha256, signal },
    meter: new Meter(total(found), tell),
    note: (text: string) => notes.push(text),
  };
  const received = await inTurn(found, (file) => receive(file, context));
  const session = openSession(
    running,
    received.map(({ upload }) => upload),
    settings,
    choice,
  );
  const loaded = received.map(({ loaded }) => loaded);
  return { session, info: described(session, choice, loaded, { cache: why, notes }) };
}

/** Some phones refuse to reserve shared memory; they still run one thread. */
async function startBest(settings: Settings, places: Places, platform: WorkerPlatform) {
  const there = await features(platform.cores);
  const choice = choose(there, settings);
  try {
    return { choice, running: await start(choice, places, platform) };
  } catch (error) {
    const refused = error instanceof RangeError && settings.threads === "auto";
    if (!refused || choice.threads === 1) throw error;
    const single = choose({ ...there, threads: `no shared memory: ${error.message}` }, settings);
    return { choice: single, running: await start(single, places, platform) };
  }
}

/** GiB, where the browser tells. */
function deviceMemory(): number | undefined {
  return (globalThis.navigator as { deviceMemory?: number } | undefined)?.deviceMemory;
}

function total(files: readonly FoundFile[]): number | null {
  const known = files.every((file) => file.size !== null);
  return known ? files.reduce((sum, file) => sum + (file.size ?? 0), 0) : null;
}

async function inTurn<T, R>(all: readonly T[], what: (one: T) => Promise<R>): Promise<R[]> {
  const results: R[] = [];
  for (const one of all) results.push(await what(one));
  return results;
}

function openSession(
  { glue, helpers }: Running,
  uploads: Upload[],
  { name, context, kv }: Settings,
  { threads }: Choice,
): Session {
  const session = glue.Session.open(uploads, JSON.stringify({ name, threads, context, kv }));
  go(helpers);
  return session;
}

function described(
  session: Session,
  choice: Choice,
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
    artifact: choice.artifact,
    artefact: choice.artifact,
    why: { ...choice.why, cache },
    notes,
    files,
  };
}
