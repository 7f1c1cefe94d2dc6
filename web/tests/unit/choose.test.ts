import { describe, expect, test } from "vitest";
import { choose } from "../../src/worker/choose.js";
import { relaxedFault } from "../../src/worker/relaxed.js";

const all = { cores: 4, simd: null, relaxed: null, threads: null };
const auto = { simd: "auto", threads: "auto" } as const;

describe("the artifact", () => {
  test("is the best that runs", () => {
    expect(choose(all, auto)).toMatchObject({ artifact: "threads-relaxed", threads: 4 });
    expect(choose({ ...all, cores: 64 }, auto).threads).toBe(8);
    expect(choose({ ...all, cores: 1 }, auto).artifact).toBe("single-relaxed");
  });

  test("says what is missing", () => {
    const choice = choose({ ...all, relaxed: "miscomputes", threads: "not isolated" }, auto);
    expect(choice).toMatchObject({
      artifact: "single-simd128",
      why: { simd: "miscomputes", threads: "not isolated" },
    });
  });

  test("is the one asked for, or an error", () => {
    expect(choose(all, { simd: "simd128", threads: 2 }).artifact).toBe("threads-simd128");
    expect(choose(all, { simd: "relaxed", threads: 1 }).artifact).toBe("single-relaxed");
    const missing = expect.objectContaining({ code: "unsupported_environment", message: "no" });
    expect(() => choose({ ...all, relaxed: "no" }, { ...auto, simd: "relaxed" })).toThrow(missing);
    expect(() => choose({ ...all, threads: "no" }, { ...auto, threads: 2 })).toThrow(missing);
    expect(() => choose({ ...all, simd: "no" }, auto)).toThrow(missing);
  });
});

describe("the self-test of relaxed SIMD", () => {
  /** An engine whose dot products have this error, by the number of the call. */
  const engine = (error: (call: number) => number) => () => {
    const memory = new WebAssembly.Memory({ initial: 1 });
    let calls = 0;
    const f = (end: number) => dots(memory.buffer, end, error(calls++));
    return { exports: { m: memory, f } } as unknown as WebAssembly.Instance;
  };
  const valid = () => true;

  test.each([
    ["right", () => 0, null],
    [
      "wrong before it is optimized",
      (call: number) => Number(call < 5),
      "relaxed SIMD miscomputes dot products",
    ],
    ["wrong once it is optimized", (call: number) => Number(call > 5), /once it is optimized/],
  ])("%s", async (_, error, fault) => {
    const found = await relaxedFault(engine(error), valid);
    if (fault === null) expect(found).toBeNull();
    else expect(found).toMatch(fault);
  });

  test("the module is valid, or relaxed SIMD is not there", async () => {
    // Whatever this Node can do, it must come to an answer.
    expect([null, expect.stringContaining("relaxed SIMD")]).toContainEqual(await relaxedFault());
  });
});

function dots(memory: ArrayBuffer, end: number, error: number): void {
  const [bytes, sums] = [new Int8Array(memory), new Int32Array(memory)];
  for (let at = 0; at < end; at += 64) {
    for (let lane = 0; lane < 4; lane++) {
      let sum = (sums[at / 4 + 8 + lane] as number) + error;
      for (let k = lane * 4; k < lane * 4 + 4; k++) {
        sum += (bytes[at + k] as number) * (bytes[at + 16 + k] as number);
      }
      sums[at / 4 + 12 + lane] = sum;
    }
  }
}
