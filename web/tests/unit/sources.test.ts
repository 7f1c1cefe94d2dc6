import { describe, expect, test } from "vitest";
import { modelFiles } from "../../src/sources.js";

const resolve = (url: string | URL) => new URL(url, "https://page.example/app/").href;
const files = (source: Parameters<typeof modelFiles>[0]) =>
  modelFiles(source, resolve, "https://cdn.example/1a2b.safetensors");
const url = (url: string) => ({ from: "url", url });

describe("the files of a model", () => {
  test("one URL, relative to the page", () => {
    expect(files("m/a%20b.gguf?x=1")).toEqual([
      {
        name: "a b.gguf",
        folder: "m",
        segments: [url("https://page.example/app/m/a%20b.gguf?x=1")],
      },
    ]);
  });

  test("the model in the package", () => {
    expect(files("default")).toMatchObject([{ name: "default.wf.safetensors" }]);
  });

  test("a directory's files", () => {
    const all = [
      "config.json",
      new File(["x"], "tokenizer.json"),
      "model-00001-of-00002.safetensors",
    ];
    expect(files(all).map((file) => file.name)).toEqual([
      "config.json",
      "tokenizer.json",
      "model-00001-of-00002.safetensors",
    ]);
  });

  test("parts of a split file are sorted", () => {
    const parts = [10, 2, 1, 9, 8, 7, 6, 5, 4, 3].map((n) => `m.gguf.part${n}`);
    const [file, ...others] = files(parts);
    expect(others).toEqual([]);
    expect(file?.name).toBe("m.gguf");
    expect(file?.segments[9]).toEqual(url("https://page.example/app/m.gguf.part10"));
  });

  test.each([
    [[], "empty"],
    [["a/m.gguf", "b/m.gguf"], "the same name"],
    [["m.part1", "m.part3"], "m.part2 is missing"],
    ["https://[", "is not a URL"],
    [5 as never, "a file must be a URL"],
  ])("%j is refused", (source, message) => {
    expect(() => files(source)).toThrow(expect.objectContaining({ code: "bad_source" }));
    expect(() => files(source)).toThrow(message);
  });
});
