import { WrinkleFreeError } from "../errors.js";

/** What 32-bit WebAssembly can address, in bytes. */
export const LIMIT = 2 ** 32;
/** The engine's code, stacks, activations and the first pages of keys and values, in bytes. */
const ENGINE = 64 << 20;

/** A file as far as its memory goes. `size` in bytes; `null`: not known. */
export interface Sized {
  name: string;
  size: number | null;
}

/** Bytes of wasm memory that the files need at the peak of loading. */
export function estimate(files: readonly Sized[]): number {
  return ENGINE + files.reduce((sum, file) => sum + (file.size ?? 0) * growth(file.name), 0);
}

/**
 * Memory at the peak, in sizes of the file. Matrices of packed files are used where they lie, or unpacked
 * from the tight layout; those of others are packed while loading. Either way the file's memory goes
 * piece by piece, but leaves holes: measured with models of 0.8 GB, 1.15 and 1.29.
 */
function growth(name: string): number {
  return foreign(name) ? 1.4 : 1.2;
}

/** Whether loading packs a file's weights. */
function foreign(name: string): boolean {
  return /\.gguf$/.test(name) || /(?<!\.wf)\.safetensors$/.test(name);
}

/**
 * Refuses before the download what cannot fit.
 *
 * @returns what to tell of a device that says it has little memory; browsers round that number,
 * so it decides nothing
 * @throws {@link WrinkleFreeError} `"too_large"`
 */
export function checkMemory(files: readonly Sized[], deviceGib: number | undefined): string | null {
  const needed = estimate(files);
  if (needed > LIMIT) {
    const names = files.map((file) => `${file.name} (${gib(file.size ?? 0)})`).join(", ");
    const packed = files.some((file) => foreign(file.name));
    const hint = packed ? "; packed with `wf-run convert` it needs less" : "";
    throw new WrinkleFreeError(
      "too_large",
      `${names}: needs about ${gib(needed)} of memory, WebAssembly has ${gib(LIMIT)}${hint}`,
    );
  }
  if (deviceGib === undefined || needed <= deviceGib * 2 ** 30) return null;
  return `the model needs about ${gib(needed)}, this device says it has ${deviceGib} GiB`;
}

function gib(bytes: number): string {
  return `${(bytes / 2 ** 30).toFixed(2)} GiB`;
}
