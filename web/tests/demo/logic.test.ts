// The page's decisions without a page: verdicts of races, conversations that are too long, links, colors.

import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { fittingMessages } from "../../demo/src/fitting.js";
import { linkedQuestion, questionLink } from "../../demo/src/link.js";
import { repetition, verdict } from "../../demo/src/race_verdict.js";

const GOOD = "Pip was a small fox. He was strong and a little proud. One day he met a bird.";
const BROKEN = "Pip was was a fox fox. He the the the was small small and and proud.";

describe("a race", () => {
  const ar = { mode: "ar", text: GOOD, duration: 54, passes: 100, tokens: 100 };
  const iterative = { mode: "iterative", text: GOOD, duration: 198, passes: 40, tokens: 100 };

  test("names the winner and says why", () => {
    expect(verdict([ar, iterative])).toBe(
      "ar was first: 54 ms against 198 ms. iterative needs 2.5 × fewer passes, but each takes " +
        "9.2 × as long, because it computes a whole block.",
    );
    expect(
      verdict([
        { ...ar, duration: 5000 },
        { ...iterative, duration: 2000 },
      ]),
    ).toBe(
      "iterative was first: 2.0 s against 5.0 s. iterative needs 2.5 × fewer passes, and they take " +
        "no longer.",
    );
  });

  test("is not won by a broken or an empty text", () => {
    const greedy = { mode: "greedy", text: BROKEN, duration: 20, passes: 8, tokens: 100 };
    const broken = verdict([ar, greedy]);
    expect(broken).toMatch(/^greedy ended first: 20 ms against 54 ms\./);
    expect(broken).toMatch(
      /greedy does not count: its text is broken \(\d\d % repeated words\)\.$/,
    );
    const empty = { ...greedy, text: " ", passes: 1, tokens: 0 };
    expect(verdict([empty, ar])).toBe(
      "greedy ended first: 20 ms against 54 ms. greedy does not count: its answer is empty.",
    );
  });

  test("texts are judged by the words that they repeat", () => {
    expect(repetition(GOOD)).toBeLessThan(0.08);
    expect(repetition(BROKEN)).toBeGreaterThan(0.2);
    expect(repetition("")).toBe(0);
  });
});

test("a conversation that is too long goes on without its oldest exchanges", async () => {
  // Each message has 100 tokens.
  const engine = {
    info: () => ({ chat: true, context: 512 }),
    countTokens: async (messages: unknown[]) => 100 * messages.length,
  } as never;
  const messages = Array.from({ length: 9 }, (_, index) => ({
    role: index % 2 ? "assistant" : "user",
    content: String(index),
  }));
  const fitting = await fittingMessages(engine, messages);
  expect(fitting.map(({ content }) => content)).toEqual(["8"]);
  expect(await fittingMessages(engine, messages.slice(0, 2))).toHaveLength(2);
  const long = { info: () => ({ chat: true, context: 8 }), countTokens: async () => 99 } as never;
  expect(await fittingMessages(long, messages)).toHaveLength(1);
});

describe("a link", () => {
  const page = "https://page.example/demo/?old=1#race";

  test("carries prompt, mode and seed there and back", () => {
    for (const question of [
      { prompt: "Tell me a story & more?", mode: "iterative", seed: 4294967295 },
      { prompt: "täglich 🦊", mode: null, seed: null },
    ]) {
      const link = questionLink(page, question);
      expect(link).toMatch(/^https:\/\/page\.example\/demo\/\?q=/);
      expect(linkedQuestion(link)).toEqual(question);
    }
  });

  test("with nonsense in it asks what can be asked", () => {
    const of = (query: string) => linkedQuestion(`https://page.example/?${query}`);
    expect(of("")).toBeNull();
    expect(of("q=%20")).toBeNull();
    expect(of("q=a&mode=<b>&seed=-1")).toEqual({ prompt: "a", mode: null, seed: null });
    expect(of(`q=${"a".repeat(9999)}`)?.prompt).toHaveLength(2000);
  });
});

describe("the guesses in the cells", () => {
  const css = readFileSync(new URL("../../demo/style.css", import.meta.url), "utf8");

  test.each(["light", "dark"])("can be read in %s, from unsure to sure", (theme) => {
    const [guess, unsure, sure] = ["guess", "unsure", "sure"].map((name) => color(name, theme));
    for (const share of [0, 0.25, 0.5, 0.75, 1]) {
      const cell = unsure!.map((from, at) => from + (sure![at]! - from) * share);
      expect(contrast(guess!, cell), `${theme} ${share}`).toBeGreaterThan(4.5);
    }
  });

  function color(name: string, theme: string): number[] {
    const [, light, dark] = new RegExp(`--${name}: light-dark\\((#\\w+), (#\\w+)\\)`).exec(css)!;
    const hex = theme === "light" ? light! : dark!;
    return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
  }

  /** Contrast as WCAG 2 defines it. */
  function contrast(a: number[], b: number[]): number {
    const [dark, light] = [luminance(a), luminance(b)].sort((x, y) => x - y) as [number, number];
    return (light + 0.05) / (dark + 0.05);
  }

  function luminance(rgb: number[]): number {
    const [r, g, b] = rgb.map((value) => {
      const share = value / 255;
      return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    }) as [number, number, number];
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  }
});
