/** The conversation. */

import { type ChatMessage, WrinkleFreeError } from "wrinklefree";
import { Block, slowly } from "./block.js";
import type { Chart } from "./chart.js";
import { at, make, part } from "./dom.js";
import type { Model } from "./model.js";
import { complain, quiet } from "./notice.js";
import { figures } from "./numbers.js";
import type { Pace } from "./pace.js";
import { play } from "./play.js";
import { Run } from "./run.js";
import type { Settings } from "./settings.js";

/** What the conversation needs of the page. */
export interface Parts {
  model: Model;
  settings: Settings;
  pace: Pace;
  chart: Chart;
}

/** The view "Chat". */
export class Chat {
  readonly #log = at("log");
  readonly #question = at<HTMLTextAreaElement>("question");
  readonly #block = new Block(at("block"));
  #messages: ChatMessage[] = [];
  /** Ends the answer that is coming; none: nothing is coming. */
  #running: AbortController | null = null;
  /** Ends slow motion. */
  #skip = new AbortController();

  constructor(readonly parts: Parts) {
    at("ask").onsubmit = (event) => {
      event.preventDefault();
      void this.#ask(this.#question.value.trim());
    };
    this.#question.onkeydown = (event) => this.#key(event);
    at("stop").onclick = () => this.#running?.abort();
    at("skip").onclick = () => this.#skip.abort();
    at("new").onclick = () => this.clear();
    for (const chip of document.querySelectorAll<HTMLButtonElement>(
      "#chat .chips button:not(#new)",
    )) {
      chip.onclick = () => void this.#ask(chip.textContent ?? "");
    }
  }

  /** Ends what is coming, or its slow motion. */
  stop(): void {
    this.#running?.abort();
    this.#skip.abort();
  }

  /** Begins a new conversation. */
  clear(): void {
    this.stop();
    this.#messages = [];
    for (const article of this.#log.querySelectorAll("article")) article.remove();
    at("welcome").hidden = false;
    at("follow-ups").hidden = true;
    quiet();
    this.#question.focus();
  }

  #key(event: KeyboardEvent): void {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    at<HTMLFormElement>("ask").requestSubmit();
  }

  async #ask(content: string): Promise<void> {
    if (this.#running || !content) return;
    this.#skip.abort();
    quiet();
    this.#question.value = "";
    const messages = this.#messages;
    messages.push({ role: "user", content });
    const asked = this.#article("user", content);
    const answer = this.#article("assistant", "");
    const text = await this.#answer(answer);
    if (text) {
      messages.push({ role: "assistant", content: text });
      return;
    }
    // Nothing came: the question may be asked again.
    messages.pop();
    asked.remove();
    answer.remove();
    if (messages !== this.#messages) return;
    at("welcome").hidden = messages.length > 0;
    this.#question.value ||= content;
  }

  /** Gives an answer; resolves as soon as it is computed, with what is shown then or later. */
  async #answer(article: HTMLElement): Promise<string> {
    const running = new AbortController();
    const messages = this.#messages;
    this.#running = running;
    this.#working(true);
    try {
      const { signal } = running;
      const { model, settings } = this.parts;
      const engine = await model.engine();
      signal.throwIfAborted();
      const run = new Run(engine, { ...settings.for(settings.mode), signal });
      void this.#show(run, article);
      await run.go(messages, () => this.parts.chart.update(run));
      // A new conversation is nothing that this one's end belongs to.
      if (messages === this.#messages) this.#close(run, article);
      return run.text;
    } catch (error) {
      complain(error);
      return "";
    } finally {
      this.#running = null;
      this.#working(false);
    }
  }

  /** What follows when all is computed. */
  #close(run: Run, article: HTMLElement): void {
    if (run.error && !run.stopped) complain(run.error);
    if (run.error instanceof WrinkleFreeError && run.error.code === "crashed") {
      this.parts.model.lost(run.error);
    }
    if (!run.stats) return;
    this.parts.chart.update(run);
    at("said").textContent = run.text;
    const notes = [
      run.stopped ? "stopped" : "",
      run.reason === "length" ? "cut at max tokens" : "",
    ];
    const words = [run.mode, ...figures(run.stats), ...notes].filter(Boolean).join(" · ");
    // Only the last answer can be replayed: recordings are large.
    for (const button of this.#log.querySelectorAll("footer button")) button.remove();
    const replay = make("button", { type: "button", textContent: "Replay" });
    replay.onclick = () => void this.#replay(run, article);
    article.append(make("footer", {}, make("span", { textContent: words }), replay));
    at("follow-ups").hidden = false;
    this.#follow();
  }

  async #replay(run: Run, article: HTMLElement): Promise<void> {
    this.#skip.abort();
    await this.#show(run, article);
  }

  /** Shows a run in the pace that was chosen. */
  async #show(run: Run, article: HTMLElement): Promise<void> {
    const skip = new AbortController();
    this.#skip = skip;
    const text = part(article, "p");
    article.ariaBusy = "true";
    const show = (of: Run, index: number) => {
      this.#block.show(of, index);
      text.textContent = of.text.slice(0, of.frames[index]?.length);
      this.#slow(of, index);
      this.#follow();
    };
    await play([{ run, screen: { show }, pace: () => this.parts.pace.value }], skip.signal);
    article.ariaBusy = "false";
    if (this.#skip === skip) this.#slow(run, Infinity);
  }

  /** Says so while what is seen lags behind. */
  #slow(run: Run, index: number): void {
    const lags = run.ended && index < run.frames.length - 1;
    at("slow").textContent = lags ? slowly(run, this.parts.pace) : "";
    at("skip").hidden = !lags;
  }

  #article(role: "user" | "assistant", content: string): HTMLElement {
    at("welcome").hidden = true;
    const article = make("article", { className: role }, make("p", { textContent: content }));
    article.ariaLabel = role === "user" ? "You" : "Model";
    this.#log.append(article);
    this.#log.scrollTop = this.#log.scrollHeight;
    return article;
  }

  /** Keeps the end in sight for those who are looking at it. */
  #follow(): void {
    const { scrollHeight, scrollTop, clientHeight } = this.#log;
    if (scrollHeight - scrollTop - clientHeight < 120) this.#log.scrollTop = scrollHeight;
  }

  #working(now: boolean): void {
    at("send").hidden = now;
    at("stop").hidden = !now;
  }
}
