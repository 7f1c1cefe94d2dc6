/**
 * Self-test of relaxed SIMD. Validating the instruction is not enough: one version of V8 computed the
 * dot product wrong until its optimizing compiler took over.
 *
 * The kernels rely on `i32x4.relaxed_dot_i8x16_i7x16_add_s` with 8-bit first and 7-bit second
 * operands, where the specification allows one result only.
 */

/**
 * Module that computes one dot product for each case in memory:
 *
 * ```wat
 * (module (memory (export "m") 1)
 *   (func (export "f") (param $end i32) (local $at i32)
 *     (loop $next
 *       (v128.store offset=48 (local.get $at)
 *         (i32x4.relaxed_dot_i8x16_i7x16_add_s
 *           (v128.load (local.get $at))
 *           (v128.load offset=16 (local.get $at))
 *           (v128.load offset=32 (local.get $at))))
 *       (local.set $at (i32.add (local.get $at) (i32.const 64)))
 *       (br_if $next (i32.lt_u (local.get $at) (local.get $end))))))
 * ```
 * (assembled with `local.tee` for the last two lines)
 */
const MODULE = new Uint8Array([
  ...[0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 96, 1, 127, 0, 3, 2, 1, 0, 5, 3, 1, 0, 1, 7, 9, 2, 1],
  ...[109, 2, 0, 1, 102, 0, 0, 10, 49, 1, 47, 1, 1, 127, 3, 64, 32, 1, 32, 1, 253, 0, 4, 0, 32, 1],
  ...[253, 0, 4, 16, 32, 1, 253, 0, 4, 32, 253, 147, 2, 253, 11, 4, 48, 32, 1, 65, 192, 0, 106, 34],
  ...[1, 32, 0, 73, 13, 0, 11, 11],
]);

/** Number of cases in the module's page of memory: two operands, the addend and the result. */
const CASES = 1024;
/** Number of runs after which every engine's optimizing compiler has taken over. */
const ROUNDS = 400;

/** Returns the reason why relaxed SIMD cannot be used, or `null` if it can. */
export async function relaxedSimdFault(
  instantiate: (module: Uint8Array<ArrayBuffer>) => WebAssembly.Instance = instance,
  validate: (module: Uint8Array<ArrayBuffer>) => boolean = WebAssembly.validate,
): Promise<string | null> {
  if (!validate(MODULE)) return "relaxed SIMD is not available";
  const { m, f } = instantiate(MODULE).exports as {
    m: WebAssembly.Memory;
    f(end: number): void;
  };
  const miscomputes = () => {
    f(CASES * 64);
    return hasWrongResult(m.buffer);
  };
  fill(m.buffer);
  if (miscomputes()) return "relaxed SIMD miscomputes dot products";
  for (let round = 0; round < ROUNDS; round++) f(CASES * 64);
  // Engines replace the code with its optimized version between tasks.
  await new Promise((resolve) => setTimeout(resolve));
  return miscomputes() ? "relaxed SIMD miscomputes dot products after optimization" : null;
}

function instance(module: Uint8Array<ArrayBuffer>): WebAssembly.Instance {
  return new WebAssembly.Instance(new WebAssembly.Module(module));
}

/** Fills the cases with all 8-bit and 7-bit values; the first case has the extremes. */
function fill(memory: ArrayBuffer): void {
  const bytes = new Int8Array(memory);
  const sums = new Int32Array(memory);
  for (let at = 0; at < CASES; at++) {
    for (let k = 0; k < 16; k++) {
      bytes[at * 64 + k] = at === 0 ? -128 : at * 37 + k * 101;
      bytes[at * 64 + 16 + k] = at === 0 ? 127 : (at * 53 + k * 29) & 127;
    }
    for (let lane = 0; lane < 4; lane++) sums[at * 16 + 8 + lane] = (at - 500) * (lane + 1) * 1000;
  }
}

/** Compares the results with scalar arithmetic. */
function hasWrongResult(memory: ArrayBuffer): boolean {
  const bytes = new Int8Array(memory);
  const sums = new Int32Array(memory);
  for (let lane = 0; lane < CASES * 4; lane++) {
    const [at, own] = [lane >> 2, lane & 3];
    let sum = sums[at * 16 + 8 + own] as number;
    for (let k = own * 4; k < own * 4 + 4; k++) {
      sum += (bytes[at * 64 + k] as number) * (bytes[at * 64 + 16 + k] as number);
    }
    if (sum !== sums[at * 16 + 12 + own]) return true;
  }
  return false;
}
