import { expect, test } from "vitest";
import { checkMemory, estimate } from "../../src/worker/memory.js";

const GIB = 2 ** 30;
const file = (name: string, gib: number) => ({ name, size: gib * GIB });

test("packed files need less than others", () => {
  const engine = estimate([]);
  expect(estimate([file("m.wf.safetensors", 1)]) - engine).toBeCloseTo(1.2 * GIB);
  expect(estimate([file("m.gguf", 1)]) - engine).toBeCloseTo(1.4 * GIB);
  expect(estimate([file("model-00001-of-00002.safetensors", 1)]) - engine).toBeCloseTo(1.4 * GIB);
  expect(estimate([{ name: "m.gguf", size: null }])).toBe(engine);
});

test("what cannot fit is refused by name and number", () => {
  expect(() => checkMemory([file("m.gguf", 2.9)], undefined)).toThrow(
    "m.gguf (2.90 GiB): needs about 4.12 GiB of memory, WebAssembly has 4.00 GiB; packed with",
  );
  expect(() => checkMemory([file("m.wf.safetensors", 4)], undefined)).toThrow(
    expect.objectContaining({ code: "too_large" }),
  );
});

test("a small device is told of, not refused", () => {
  expect(checkMemory([file("m.wf.safetensors", 1)], 1)).toContain("this device says it has 1 GiB");
  expect(checkMemory([file("m.wf.safetensors", 1)], 8)).toBeNull();
});
