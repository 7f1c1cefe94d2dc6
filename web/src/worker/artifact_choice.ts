/** Choice of the artifact that this browser or Node can run. */

import { simd, threads } from "wasm-feature-detect";
import { WrinkleFreeError } from "../errors.js";
import type { Artifact, LoadSettings } from "../protocol.js";
import { relaxedSimdFault } from "./relaxed_simd.js";

/** Maximum number of automatic threads: more are limited by memory bandwidth. */
const MAX_AUTO_THREADS = 8;

/** Features of this browser or Node. `null` means available; a string is the reason why not. */
export interface Features {
  cores: number;
  simd: string | null;
  relaxed: string | null;
  threads: string | null;
}

/** The artifact to run, with reasons. */
export interface ArtifactChoice {
  artifact: Artifact;
  threads: number;
  why: { threads: string; simd: string };
}

/** Detects the features. */
export async function detectFeatures(cores: number): Promise<Features> {
  return {
    cores,
    simd: (await simd()) ? null : "WebAssembly SIMD is not available",
    relaxed: await relaxedSimdFault(),
    threads: (await threads()) ? null : threadsProblem(),
  };
}

function threadsProblem(): string {
  return globalThis.crossOriginIsolated === false
    ? "the page is not cross-origin isolated (it needs the headers Cross-Origin-Opener-Policy: " +
        "same-origin and Cross-Origin-Embedder-Policy: require-corp)"
    : "shared memory is not available";
}

/**
 * Chooses an artifact.
 *
 * @throws {@link WrinkleFreeError} `"unsupported_environment"` if a requested feature, or SIMD, is
 * not available
 */
export function choose(
  features: Features,
  settings: Pick<LoadSettings, "simd" | "threads">,
): ArtifactChoice {
  const simd = chooseSimd(features, settings.simd);
  const threads = chooseThreads(features, settings.threads);
  return {
    artifact: `${threads.count > 1 ? "threads" : "single"}-${simd.kind}`,
    threads: threads.count,
    why: { threads: threads.why, simd: simd.why },
  };
}

function chooseSimd({ simd, relaxed }: Features, requested: LoadSettings["simd"]) {
  if (simd) throw unsupported(simd);
  if (requested === "simd128") return { kind: "simd128", why: "requested" } as const;
  if (!relaxed) return { kind: "relaxed", why: "relaxed SIMD passed the self-test" } as const;
  if (requested === "relaxed") throw unsupported(relaxed);
  return { kind: "simd128", why: relaxed } as const;
}

function chooseThreads({ cores, threads }: Features, requested: LoadSettings["threads"]) {
  if (requested === 1) return { count: 1, why: "requested" };
  if (threads && requested !== "auto") throw unsupported(threads);
  if (threads) return { count: 1, why: threads };
  if (requested !== "auto") return { count: requested, why: "requested" };
  const why = `${cores} cores, at most ${MAX_AUTO_THREADS}`;
  return { count: Math.min(cores, MAX_AUTO_THREADS), why };
}

function unsupported(reason: string): WrinkleFreeError {
  return new WrinkleFreeError("unsupported_environment", reason);
}
