// Markdown as nodes. Text is only inserted as text, never as HTML, so a model's output cannot become a
// part of the page.

const make = (tag, ...children) => {
  const element = document.createElement(tag);
  element.append(...children);
  return element;
};

/** Marks within a line, in the order in which they are looked for. */
const MARKS = [
  [/(`{1,3})(.+?)\1(?!`)/, ([, , code]) => make("code", code.replace(/^ (.*) $/, "$1"))],
  [/\*\*(?=\S)(.+?)(?<=\S)\*\*/, ([, inner]) => make("strong", ...inline(inner))],
  [/(?<![\w*])\*(?=[^\s*])(.+?)(?<=[^\s*])\*(?!\w)/, ([, inner]) => make("em", ...inline(inner))],
  [/(?<!\w)_(?=[^\s_])(.+?)(?<=[^\s_])_(?!\w)/, ([, inner]) => make("em", ...inline(inner))],
  [/~~(?=\S)(.+?)(?<=\S)~~/, ([, inner]) => make("del", ...inline(inner))],
  [/\[([^\]]+)\]\((https?:\/\/[^\s)]+)\)/, ([, inner, url]) => link(url, inline(inner))],
  [/(?<![\w/])https?:\/\/[^\s<>()]*[^\s<>().,;:!?'"]/, ([url]) => link(url, [url])],
];

function link(url, children) {
  const anchor = make("a", ...children);
  anchor.href = url;
  anchor.target = "_blank";
  anchor.rel = "noopener noreferrer";
  return anchor;
}

/** Longest line whose marks are looked for: matching takes time with its square. */
const LONGEST = 4_000;

/** Returns the nodes of a line. */
function inline(text) {
  if (text.length > LONGEST) return [text];
  const nodes = [];
  while (text) {
    let first = null;
    for (const [pattern, build] of MARKS) {
      const match = pattern.exec(text);
      if (match && (!first || match.index < first.match.index)) first = { match, build };
    }
    if (!first) break;
    const { match, build } = first;
    if (match.index) nodes.push(text.slice(0, match.index));
    nodes.push(build(match));
    text = text.slice(match.index + match[0].length);
  }
  if (text) nodes.push(text);
  return nodes;
}

const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([^`\s]*)/;
const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)$/;
const HEADING = /^(#{1,6})\s+(\S.*)$/;
const RULE = /^ {0,3}([-*_])(\s*\1){2,}\s*$/;
const ROW = /^\s*\|.*\|\s*$/;
const RULER = /^\s*\|(\s*:?-+:?\s*\|)+\s*$/;

/** Splits a text into blocks: arrays of lines, each with its kind. */
function blocks(text) {
  const all = [];
  let block = null;
  const begin = (kind, line) => all.push((block = { kind, lines: [line] }));
  for (const line of text.split("\n")) {
    const fence = FENCE.exec(line);
    if (block?.kind === "code") {
      block.lines.push(line);
      const closes = fence?.[1].startsWith(block.fence) && !fence[2];
      if (closes) block = null;
    } else if (fence) {
      begin("code", line);
      block.fence = fence[1];
    } else if (!line.trim()) {
      // A list goes on after an empty line if an item follows.
      if (block?.kind === "list") block.lines.push(line);
      else block = null;
    } else {
      const kind = kindOf(line);
      if (block?.kind === kind && !ALONE.has(kind) && !(kind === "list" && differ(block, line))) block.lines.push(line);
      else if (block?.kind === "list" && /^\s{2,}/.test(line)) block.lines.push(line);
      else if (block?.kind === "list" && kind === "text" && block.lines.at(-1).trim()) block.lines.push(line);
      else begin(kind, line);
    }
  }
  return all;
}

/** Kinds of blocks that have one line. */
const ALONE = new Set(["heading", "rule"]);

/** True if an item begins another list: one with numbers after one without, or the other way. */
function differ({ lines: [first] }, line) {
  const [[, indent, mark], [, ownIndent, ownMark]] = [ITEM.exec(first), ITEM.exec(line)];
  return ownIndent.length <= indent.length && /\d/.test(mark) !== /\d/.test(ownMark);
}

function kindOf(line) {
  if (RULE.test(line)) return "rule";
  if (HEADING.test(line)) return "heading";
  if (ITEM.test(line)) return "list";
  if (ROW.test(line)) return "table";
  return /^ {0,3}>/.test(line) ? "quote" : "text";
}

/** Depth of quotes and lists in each other. */
const DEPTH = 8;

/** Returns the element of a block. */
function element({ kind, lines }, depth) {
  switch (kind) {
    case "code": return code(lines);
    case "rule": return make("hr");
    case "heading": {
      const [, marks, rest] = HEADING.exec(lines[0]);
      // Signs at the end are no text. A pattern for them would look for their begin at each character.
      let end = rest.length;
      while (rest[end - 1] === "#") end--;
      const text = rest.slice(0, end).trimEnd();
      // The page itself has the first level.
      return make(`h${Math.min(marks.length + 1, 6)}`, ...inline(text));
    }
    case "list": return list(lines, depth);
    case "quote": {
      const inner = lines.map((line) => line.replace(/^ {0,3}> ?/, ""));
      if (depth >= DEPTH) return paragraph(inner);
      return make("blockquote", ...blocks(inner.join("\n")).map((b) => element(b, depth + 1)));
    }
    case "table": return RULER.test(lines[1] ?? "") ? table(lines) : paragraph(lines);
    default: return paragraph(lines);
  }
}

function paragraph(lines) {
  const nodes = lines.flatMap((line, i) => [...(i ? ["\n"] : []), ...inline(line)]);
  return make("p", ...nodes);
}

/** Returns a list; deeper items are lists in their item. */
function list(lines, depth) {
  const [, , first] = ITEM.exec(lines[0]);
  const top = make(/\d/.test(first) ? "ol" : "ul");
  if (top.tagName === "OL") top.start = Number.parseInt(first, 10);
  const indent = ITEM.exec(lines[0])[1].length;
  let [item, inner] = [null, []];
  const close = () => {
    if (!item) return;
    const text = inner.map((line) => line.slice(Math.min(indent + 2, line.length - line.trimStart().length)));
    const rest = depth < DEPTH ? blocks(text.join("\n")).map((b) => element(b, depth + 1)) : [paragraph(text)];
    if (inner.some((line) => line.trim())) item.append(...rest);
    inner = [];
  };
  for (const line of lines) {
    const match = ITEM.exec(line);
    if (match && match[1].length <= indent + 1) {
      close();
      item = make("li", ...inline(match[3]));
      top.append(item);
    } else inner.push(line);
  }
  close();
  return top;
}

function table(lines) {
  const cells = (line) => line.trim().slice(1, -1).split("|").map((cell) => inline(cell.trim()));
  const row = (line, tag) => make("tr", ...cells(line).map((cell) => make(tag, ...cell)));
  const body = lines.slice(2).map((line) => row(line, "td"));
  const whole = make("table", make("thead", row(lines[0], "th")), make("tbody", ...body));
  const scrolls = make("div", whole);
  scrolls.className = "wide";
  scrolls.tabIndex = 0;
  return scrolls;
}

/** Returns a block of code with its language and a button that copies it. */
function code(lines) {
  const [, fence, language] = FENCE.exec(lines[0]);
  const closed = lines.length > 1 && lines.at(-1).trim().startsWith(fence);
  const text = lines.slice(1, closed ? -1 : undefined).join("\n");
  const [label, copy] = [make("span", language || "code"), make("button", "Copy code")];
  copy.type = "button";
  copy.onclick = () => copied(copy, text);
  const pre = make("pre", make("code", text));
  pre.tabIndex = 0;
  const figure = make("figure", make("figcaption", label, copy), pre);
  figure.className = "code";
  return figure;
}

/** Copies a text, and says so on the button. */
export async function copied(button, text) {
  const before = button.textContent;
  const done = await copyText(text);
  button.textContent = done ? "Copied" : "Cannot copy";
  setTimeout(() => (button.textContent = before), 1500);
}

async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // A page without HTTPS has no clipboard, but a selection can be copied.
    const area = make("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}

/** Shows a text in an element. Blocks that have not changed since the last time keep their nodes. */
export function render(container, text) {
  const before = container.blocks ?? [];
  const now = blocks(text).map((block) => ({ ...block, source: block.lines.join("\n") }));
  let same = 0;
  while (same < now.length && before[same]?.source === now[same].source) same++;
  while (container.children.length > same) container.lastElementChild.remove();
  container.append(...now.slice(same).map((block) => element(block, 0)));
  container.blocks = now;
}
