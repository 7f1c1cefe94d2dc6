import { expect, test } from "vitest";
import { checkMemory, estimatePeak } from "../../src/worker/memory.js";

const GIB = 2 ** 30;
const file = (name: string, gib: number) => ({ name, size: gib * GIB });

test("packed files need less memory than others", () => {
  const engine = estimatePeak([]);
  expect(estimatePeak([file("m.wf.safetensors", 1)]) - engine).toBeCloseTo(1.2 * GIB);
  expect(estimatePeak([file("m.gguf", 1)]) - engine).toBeCloseTo(1.4 * GIB);
  expect(estimatePeak([file("model-00001-of-00002.safetensors", 1)]) - engine).toBeCloseTo(
    1.4 * GIB,
  );
  expect(estimatePeak([{ name: "m.gguf", size: null }])).toBe(engine);
});

test("a model that cannot fit is refused with its sizes", () => {
  expect(() => checkMemory([file("m.gguf", 2.9)], undefined)).toThrow(
    "m.gguf (2.90 GiB): needs about 4.12 GiB of memory, WebAssembly has 4.00 GiB; a file packed with",
  );
  expect(() => checkMemory([file("m.wf.safetensors", 4)], undefined)).toThrow(
    expect.objectContaining({ code: "too_large" }),
  );
});

test("a small device gets a warning", () => {
  expect(checkMemory([file("m.wf.safetensors", 1)], 1)).toContain("this device reports 1 GiB");
  expect(checkMemory([file("m.wf.safetensors", 1)], 8)).toBeNull();
});
