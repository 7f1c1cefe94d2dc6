import { simd, threads } from "wasm-feature-detect";
import { WrinkleFreeError } from "../errors.js";
import type { Artifact, Settings } from "../protocol.js";
import { relaxedFault } from "./relaxed.js";

/** More threads than this wait for memory, not for each other. */
const MOST_THREADS = 8;

/** What this browser or Node can do. `null` where nothing is missing, else what is. */
export interface Features {
  cores: number;
  simd: string | null;
  relaxed: string | null;
  threads: string | null;
}

/** What to run, and why. */
export interface Choice {
  artifact: Artifact;
  threads: number;
  why: { threads: string; simd: string };
}

/** Looks what is there. */
export async function features(cores: number): Promise<Features> {
  return {
    cores,
    simd: (await simd()) ? null : "SIMD is not there",
    relaxed: await relaxedFault(),
    threads: (await threads()) ? null : threadsMissing(),
  };
}

function threadsMissing(): string {
  return globalThis.crossOriginIsolated === false
    ? "the page is not cross-origin isolated (it needs the headers Cross-Origin-Opener-Policy: " +
        "same-origin and Cross-Origin-Embedder-Policy: require-corp)"
    : "shared memory is not there";
}

/**
 * Chooses an artifact.
 *
 * @throws {@link WrinkleFreeError} `"unsupported_environment"` when what was asked for by name is
 * not there, or nothing is
 */
export function choose(features: Features, settings: Pick<Settings, "simd" | "threads">): Choice {
  const simd = chooseSimd(features, settings.simd);
  const threads = chooseThreads(features, settings.threads);
  return {
    artifact: `${threads.count > 1 ? "threads" : "single"}-${simd.kind}`,
    threads: threads.count,
    why: { threads: threads.why, simd: simd.why },
  };
}

function chooseSimd({ simd, relaxed }: Features, asked: Settings["simd"]) {
  if (simd) throw missing(simd);
  if (asked === "simd128") return { kind: "simd128", why: "asked for" } as const;
  if (!relaxed) return { kind: "relaxed", why: "relaxed SIMD passed the self-test" } as const;
  if (asked === "relaxed") throw missing(relaxed);
  return { kind: "simd128", why: relaxed } as const;
}

function chooseThreads({ cores, threads }: Features, asked: Settings["threads"]) {
  if (asked === 1) return { count: 1, why: "asked for" };
  if (threads && asked !== "auto") throw missing(threads);
  if (threads) return { count: 1, why: threads };
  if (asked !== "auto") return { count: asked, why: "asked for" };
  return { count: Math.min(cores, MOST_THREADS), why: `${cores} cores, at most ${MOST_THREADS}` };
}

function missing(what: string): WrinkleFreeError {
  return new WrinkleFreeError("unsupported_environment", what);
}
