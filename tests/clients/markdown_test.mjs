// Markdown of the page at `/`: lines of any form take time that grows with their length, not with its square.

import assert from "node:assert/strict";
import { test } from "node:test";

/** An element as far as Markdown needs one. */
class Element {
  children = [];
  dataset = {};
  classList = { add() {}, toggle() {} };
  constructor(tag) {
    this.tag = tag;
  }
  append(...children) {
    this.children.push(...children);
  }
  replaceChildren(...children) {
    this.children = children;
  }
  addEventListener() {}
  setAttribute() {}
  get text() {
    return this.children.map((child) => child.text ?? String(child)).join("");
  }
}

globalThis.document = { createElement: (tag) => new Element(tag) };
const { render } = await import("../../native/server/src/page/markdown.js");

/** The rendered text and the milliseconds that it took. */
function rendered(text) {
  const container = new Element("div");
  const begin = performance.now();
  render(container, text);
  return { container, time: performance.now() - begin };
}

const LENGTH = 200_000;
const shapes = {
  "signs of headings": `# ${"#".repeat(LENGTH)}x`,
  "signs and spaces of headings": `# a${" #".repeat(LENGTH / 2)} x`,
  "spaces after a heading": `#${" ".repeat(LENGTH)}`,
  "spaces in a heading": `# a${" ".repeat(LENGTH)}b`,
  "rules that are none": `-${" -".repeat(LENGTH / 2)}x`,
  "rows of a table": `|${" :-- |".repeat(LENGTH / 6)}x\n|${" :-- |".repeat(LENGTH / 6)}x`,
  "marks without an end": "*_`~[".repeat(LENGTH / 5),
  "many lines": "> ".repeat(LENGTH / 2),
  "items in each other": Array.from({ length: 400 }, (_, i) => `${" ".repeat(i)}- a`).join("\n"),
};

for (const [name, text] of Object.entries(shapes)) {
  test(`${name} are rendered in time`, () => {
    const { container, time } = rendered(text);
    assert.ok(container.children.length > 0 || !text.trim());
    assert.ok(time < 500, `${time.toFixed(0)} ms`);
  });
}

test("a heading loses the signs at its end", () => {
  const { container } = rendered("## A # title ##");
  assert.equal(container.children[0].tag, "h3");
  assert.equal(container.text, "A # title");
});
