import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { AnswerView } from "../../src/cli/answer.js";
import { Conversation } from "../../src/cli/conversation.js";
import { WrinkleFreeError } from "../../src/errors.js";
import type { Part } from "../../src/types.js";

const signal = new AbortController().signal;
let out: string;
let notes: string;

beforeEach(() => {
  [out, notes] = ["", ""];
  vi.spyOn(process.stdout, "write").mockImplementation((text) => ((out += text), true));
  vi.spyOn(process.stderr, "write").mockImplementation((text) => ((notes += text), true));
  vi.spyOn(console, "error").mockImplementation((text) => void (notes += `${text}\n`));
});
afterEach(() => vi.restoreAllMocks());

function part(fields: Partial<Part>): Part {
  return { text: "", reasoning: "", tokens: [], finishReason: null, stats: {}, ...fields } as Part;
}

/** An engine that says how many messages it was sent, and refuses more than five. */
function engine(parts?: Part[], chat = true) {
  return {
    info: () => ({ chat, name: "m" }),
    async *stream(messages: { content: string }[]) {
      if (messages.length > 5) throw new WrinkleFreeError("context_length_exceeded", "too long");
      if (messages.at(-1)?.content === "crash") throw new WrinkleFreeError("crashed", "trap");
      yield* parts ?? [part({ text: `${messages.length}`, finishReason: "stop" })];
    },
  } as never;
}

describe("a conversation in the terminal", () => {
  test("goes on after a message that is too long, which counts as not said", async () => {
    const chat = new Conversation(engine(), {});
    for (const line of ["a", "b", "c", "d", "e", "/reset", "f"]) {
      expect(await chat.take(line, signal)).toBe(true);
    }
    expect(out).toBe("1\n3\n5\n1\n");
    expect(notes.match(/error: too long \(\/reset starts a new conversation/g)).toHaveLength(2);
  });

  test("follows its commands", async () => {
    const chat = new Conversation(engine(), {});
    await chat.take("/regen", signal);
    expect(notes).toContain("there is no answer yet");
    for (const line of ["/system Be brief.", "a", "/regen", "/reset", "b", "/system", "c"]) {
      await chat.take(line, signal);
    }
    expect(out).toBe("2\n2\n2\n1\n");
    await chat.take("/sing", signal);
    expect(notes).toContain("there is no /sing: /help lists commands");
    expect(await chat.take("/quit", signal)).toBe(false);
    await chat.take("  ", signal);
    expect(out).toBe("2\n2\n2\n1\n");
  });

  test("ends after a crash, and needs a chat template", async () => {
    const chat = new Conversation(engine(), {});
    await expect(chat.take("crash", signal)).rejects.toMatchObject({ code: "crashed" });
    expect(() => new Conversation(engine([], false), {})).toThrow("m has no chat template");
  });

  test("folds thinking and shows it on demand", async () => {
    const parts = [part({ reasoning: "6 times " }), part({ reasoning: "7" }), part({ text: "42" })];
    const chat = new Conversation(engine(parts), {});
    await chat.take("a", signal);
    expect([out, notes]).toEqual(["42\n", "(thinking …)\n"]);
    await chat.take("/thinking", signal);
    expect(notes).toContain("6 times 7");
  });
});

describe("an answer", () => {
  const shown = (...parts: Part[]) => {
    const view = new AnswerView("shown");
    parts.forEach((one) => view.show(one));
    view.end();
  };

  test("is apart from the thinking before it", () => {
    shown(part({ reasoning: "hm" }), part({ text: "42", finishReason: "stop" }));
    expect(out).toBe("42\n");
    expect(notes).toBe("hm\n\n");
  });

  test("that is empty says why", () => {
    const stats = { tokens: 9 } as Part["stats"];
    shown(part({ reasoning: "hm" }), part({ finishReason: "length", stats }));
    expect(out).toBe("");
    expect(notes).toContain(
      "(no answer: the thinking took all 9 tokens; --max-tokens N allows more",
    );
    shown(part({ finishReason: "stop" }));
    expect(notes).toContain("(no answer: the model ended the text at once)");
  });
});
