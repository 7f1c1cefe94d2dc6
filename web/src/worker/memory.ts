/** Estimate of the memory that a model needs. */

import { WrinkleFreeError } from "../errors.js";

/** Address space of 32-bit WebAssembly, in bytes. */
export const WASM_MEMORY_LIMIT = 2 ** 32;
/** Bytes of the engine's code, stacks, activations and first pages of keys and values. */
const ENGINE_BYTES = 64 << 20;

/** Name and size of a file. `size` is in bytes, `null` if unknown. */
export interface SizedFile {
  name: string;
  size: number | null;
}

/** Returns the bytes of wasm memory that the files need at the peak of loading. */
export function estimatePeak(files: readonly SizedFile[]): number {
  const peak = ({ name, size }: SizedFile) => (size ?? 0) * peakFactor(name);
  return files.reduce((sum, file) => sum + peak(file), ENGINE_BYTES);
}

/**
 * Returns the memory at the peak of loading, in multiples of the file's size. Loading uses the matrices
 * of a packed file in place or unpacks the tight layout, and repacks those of other files. It frees the
 * file step by step, which leaves holes. Measured with models of 0.8 GB: 1.15 and 1.29.
 */
function peakFactor(name: string): number {
  return isRepacked(name) ? 1.4 : 1.2;
}

/** Returns true if loading repacks the file's weights. */
function isRepacked(name: string): boolean {
  return /\.gguf$/.test(name) || /(?<!\.wf)\.safetensors$/.test(name);
}

/**
 * Refuses, before the download, a model that cannot fit.
 *
 * @returns a warning if the device reports less memory than the model needs. Browsers round that
 * number, so the model is loaded anyway.
 * @throws {@link WrinkleFreeError} `"too_large"`
 */
export function checkMemory(
  files: readonly SizedFile[],
  deviceGib: number | undefined,
): string | null {
  const needed = estimatePeak(files);
  if (needed > WASM_MEMORY_LIMIT) {
    const names = files.map((file) => `${file.name} (${gib(file.size ?? 0)})`).join(", ");
    const repacked = files.some((file) => isRepacked(file.name));
    const hint = repacked ? "; a file packed with `wf-run convert` needs less" : "";
    const limit = gib(WASM_MEMORY_LIMIT);
    throw new WrinkleFreeError(
      "too_large",
      `${names}: needs about ${gib(needed)} of memory, WebAssembly has ${limit}${hint}`,
    );
  }
  if (deviceGib === undefined || needed <= deviceGib * 2 ** 30) return null;
  return `the model needs about ${gib(needed)}, this device reports ${deviceGib} GiB`;
}

function gib(bytes: number): string {
  return `${(bytes / 2 ** 30).toFixed(2)} GiB`;
}
