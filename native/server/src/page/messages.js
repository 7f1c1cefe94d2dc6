// The messages of a conversation, on the page and as the API takes them.

import { copied, render } from "./markdown.js";

const log = document.getElementById("log");

function make(tag, text = "", kind = "") {
  const element = document.createElement(tag);
  element.textContent = text;
  if (kind) element.className = kind;
  return element;
}

function button(text, name, act) {
  const element = make("button", text);
  element.type = "button";
  if (name) element.ariaLabel = name;
  element.onclick = () => act(element);
  return element;
}

/** Makes a change that adds lines, and scrolls to the end if it was in sight, within some lines. */
export function grow(change) {
  const follows = log.scrollHeight - log.scrollTop - log.clientHeight < 100;
  change();
  if (follows) log.scrollTop = log.scrollHeight;
}

/** A message on the page. */
export class Shown {
  /** Adds a message at the end. */
  constructor(message) {
    this.message = message;
    this.article = make("article", "", message.role);
    this.article.ariaLabel = message.role === "user" ? "You" : "Model";
    this.body = make("div", "", "text");
    this.article.append(...(message.files ?? []).map(attachment), this.body);
    this.update();
    if (message.reasoning) this.think("");
    log.append(this.article);
    log.scrollTop = log.scrollHeight;
  }

  /** Shows the message's text: an answer's as Markdown, a question's as it was typed. */
  update() {
    if (this.message.role === "assistant") render(this.body, this.message.content);
    else this.body.textContent = this.message.content;
    this.body.hidden = !this.message.content && this.message.role === "user";
  }

  /** Adds text to the answer. */
  append(text) {
    this.message.content += text;
    grow(() => this.update());
  }

  /** Shows another answer, and the thinking before it. */
  replace({ content, reasoning }) {
    this.message.content = content;
    grow(() => this.update());
    if (!reasoning || reasoning === this.message.reasoning) return;
    this.think("");
    this.message.reasoning = reasoning;
    grow(() => (this.thoughts.textContent = reasoning));
  }

  /** Adds text to the folded thinking before the answer. */
  think(text) {
    if (!this.thoughts) {
      const fold = make("details");
      this.thoughts = make("p");
      fold.append(make("summary", "Thinking"), this.thoughts);
      this.article.prepend(fold);
      this.thoughts.textContent = this.message.reasoning ?? "";
    }
    if (!text) return;
    this.message.reasoning = (this.message.reasoning ?? "") + text;
    grow(() => this.thoughts.append(text));
  }

  /** Adds what the answer cost, and what can be done with the message. */
  finish(words, actions) {
    this.footer?.remove();
    this.footer = make("footer");
    const said = words.filter(Boolean).join(" · ");
    if (said) this.footer.append(make("span", said, "figures"));
    const tools = make("span", "", "tools");
    tools.append(...Object.entries(actions).map(([text, act]) => button(text, "", act)));
    this.footer.append(tools);
    grow(() => this.article.append(this.footer));
  }

  /** Copies the message's text. */
  copy(button) {
    copied(button, this.message.content);
  }

  /** Makes the text editable; `done` gets the new one. */
  edit(done) {
    const [area, form] = [make("textarea"), make("form", "", "edit")];
    area.value = this.message.content;
    area.rows = 3;
    area.ariaLabel = "Edit your message";
    const close = () => {
      form.remove();
      this.body.hidden = this.footer.hidden = false;
    };
    const save = make("button", "Send again");
    save.type = "submit";
    form.append(area, save, button("Cancel", "", close));
    form.onsubmit = (event) => {
      event.preventDefault();
      if (area.value.trim() || this.message.files?.length) done(area.value.trim());
    };
    area.onkeydown = (event) => {
      if (event.key === "Escape") {
        event.stopPropagation();
        close();
      }
    };
    this.body.hidden = this.footer.hidden = true;
    this.article.append(form);
    area.focus();
  }

  remove() {
    this.article.remove();
  }
}

/** Shows a file of a message, folded. */
function attachment({ name, text }) {
  const fold = make("details", "", "file");
  const lines = text.split("\n").length;
  const pre = make("pre", text);
  pre.tabIndex = 0;
  fold.append(make("summary", `${name} (${lines} ${lines === 1 ? "line" : "lines"})`), pre);
  return fold;
}

/** Returns a message in the API's format: files stand before the text, each in a fence of its own. */
export function forApi({ role, content, files = [] }) {
  const fenced = ({ name, text }) => {
    const longest = Math.max(2, ...(text.match(/`+/g) ?? []).map((run) => run.length));
    const fence = "`".repeat(longest + 1);
    return `File ${name}:\n${fence}\n${text.replace(/\n$/, "")}\n${fence}`;
  };
  return { role, content: [...files.map(fenced), content].filter(Boolean).join("\n\n") };
}
