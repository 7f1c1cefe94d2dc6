import { describe, expect, test } from "vitest";
import { choose } from "../../src/worker/artifact_choice.js";
import { relaxedSimdFault } from "../../src/worker/relaxed_simd.js";

const all = { cores: 4, simd: null, relaxed: null, threads: null };
const auto = { simd: "auto", threads: "auto" } as const;

describe("the artifact", () => {
  test("is the best available one", () => {
    expect(choose(all, auto)).toMatchObject({ artifact: "threads-relaxed", threads: 4 });
    expect(choose({ ...all, cores: 64 }, auto).threads).toBe(8);
    expect(choose({ ...all, cores: 1 }, auto).artifact).toBe("single-relaxed");
  });

  test("reports the missing features", () => {
    const choice = choose({ ...all, relaxed: "miscomputes", threads: "not isolated" }, auto);
    expect(choice).toMatchObject({
      artifact: "single-simd128",
      why: { simd: "miscomputes", threads: "not isolated" },
    });
  });

  test("is the requested one, or an error", () => {
    expect(choose(all, { simd: "simd128", threads: 2 }).artifact).toBe("threads-simd128");
    expect(choose(all, { simd: "relaxed", threads: 1 }).artifact).toBe("single-relaxed");
    const missing = expect.objectContaining({ code: "unsupported_environment", message: "no" });
    expect(() => choose({ ...all, relaxed: "no" }, { ...auto, simd: "relaxed" })).toThrow(missing);
    expect(() => choose({ ...all, threads: "no" }, { ...auto, threads: 2 })).toThrow(missing);
    expect(() => choose({ ...all, simd: "no" }, auto)).toThrow(missing);
  });
});

describe("the self-test of relaxed SIMD", () => {
  /** Creates a fake module whose dot products have an error that depends on the call's number. */
  const engine = (error: (call: number) => number) => () => {
    const memory = new WebAssembly.Memory({ initial: 1 });
    let calls = 0;
    const f = (end: number) => dots(memory.buffer, end, error(calls++));
    return { exports: { m: memory, f } } as unknown as WebAssembly.Instance;
  };
  const valid = () => true;

  test.each([
    ["correct", () => 0, null],
    [
      "wrong before optimization",
      (call: number) => Number(call < 5),
      "relaxed SIMD miscomputes dot products",
    ],
    ["wrong after optimization", (call: number) => Number(call > 5), /after optimization/],
  ])("%s", async (_, error, fault) => {
    const found = await relaxedSimdFault(engine(error), valid);
    if (fault === null) expect(found).toBeNull();
    else expect(found).toMatch(fault);
  });

  test("runs in this Node", async () => {
    // The result depends on Node's version.
    expect([null, expect.stringContaining("relaxed SIMD")]).toContainEqual(
      await relaxedSimdFault(),
    );
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
