/** The view of the conversation. */

import { type ChatMessage, WrinkleFreeError } from "wrinklefree";
import { BlockCard, replayText } from "./block_card.js";
import type { Chart } from "./chart.js";
import { byId, createElement, child } from "./dom.js";
import type { ModelManager } from "./model_manager.js";
import { type LinkedQuestion, questionLink } from "./link.js";
import { fittingMessages } from "./fitting.js";
import { showError, showNotice, hideError } from "./notice.js";
import { statsTexts } from "./format.js";
import type { PlaybackSpeed } from "./playback_speed.js";
import { play } from "./play.js";
import { Run } from "./run.js";
import type { Settings } from "./settings.js";

/** Parts of the page that the views share. */
export interface PageContext {
  model: ModelManager;
  settings: Settings;
  speed: PlaybackSpeed;
  chart: Chart;
}

const EMPTY_ANSWER =
  "The answer is empty: the model ended it at once. Another question, or a higher temperature, may help.";

/** The view "Chat". */
export class Chat {
  readonly #log = byId("log");
  readonly #question = byId<HTMLTextAreaElement>("question");
  readonly #block = new BlockCard(byId("block"));
  #messages: ChatMessage[] = [];
  /** Cancels the answer in progress; `null` if there is none. */
  #running: AbortController | null = null;
  /** Seed of the next answer, if a link says so. */
  #seed: number | null = null;
  /** Ends the replay in progress. */
  #skip = new AbortController();

  constructor(readonly page: PageContext) {
    byId("ask").onsubmit = (event) => {
      event.preventDefault();
      void this.#ask(this.#question.value.trim());
    };
    this.#question.onkeydown = (event) => this.#onKey(event);
    byId("stop").onclick = () => this.#running?.abort();
    byId("skip").onclick = () => this.#skip.abort();
    byId("new").onclick = () => this.clear();
    for (const chip of document.querySelectorAll<HTMLButtonElement>(
      "#chat .chips button:not(#new)",
    )) {
      chip.onclick = () => void this.#ask(chip.textContent ?? "");
    }
  }

  /** Cancels the answer in progress and the replay. */
  stop(): void {
    this.#running?.abort();
    this.#skip.abort();
  }

  /** Starts a new conversation. */
  clear(): void {
    this.stop();
    this.#messages = [];
    for (const article of this.#log.querySelectorAll("article")) article.remove();
    byId("welcome").hidden = false;
    byId("follow-ups").hidden = true;
    hideError();
    this.#question.focus();
  }

  #onKey(event: KeyboardEvent): void {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    byId<HTMLFormElement>("ask").requestSubmit();
  }

  async #ask(content: string): Promise<void> {
    if (this.#running || !content) return;
    this.#skip.abort();
    hideError();
    this.#question.value = "";
    const messages = this.#messages;
    messages.push({ role: "user", content });
    const asked = this.#appendMessage("user", content);
    const answer = this.#appendMessage("assistant", "");
    const run = await this.#answer(answer);
    if (run?.text || run?.reasoning) {
      const reasoning = run.reasoning ? { reasoning_content: run.reasoning } : {};
      messages.push({ role: "assistant", content: run.text, ...reasoning });
      return;
    }
    // There was no answer, so the question is put back into the input.
    messages.pop();
    asked.remove();
    answer.remove();
    if (messages !== this.#messages) return;
    if (run && !run.error) showNotice(EMPTY_ANSWER);
    byId("welcome").hidden = messages.length > 0;
    this.#question.value ||= content;
  }

  /** Generates an answer. Resolves when it is computed; showing it may take longer. */
  async #answer(article: HTMLElement): Promise<Run | null> {
    const running = new AbortController();
    const messages = this.#messages;
    this.#running = running;
    this.#setRunning(true);
    try {
      const { signal } = running;
      const { model, settings } = this.page;
      const engine = await model.engine();
      signal.throwIfAborted();
      const seed = this.#seed ?? Math.floor(Math.random() * 2 ** 32);
      this.#seed = null;
      const fitting = await fittingMessages(engine, messages);
      const run = new Run(engine, { ...settings.forMode(settings.mode), seed, signal });
      run.forgotten = messages.length - fitting.length;
      void this.#show(run, article);
      await run.start(fitting, () => this.page.chart.update(run));
      // A new conversation may have begun in the meantime.
      if (messages === this.#messages) this.#finish(run, article);
      return run;
    } catch (error) {
      showError(error);
      return null;
    } finally {
      this.#running = null;
      this.#setRunning(false);
    }
  }

  /** Shows the statistics, the errors and the replay button of a computed answer. */
  #finish(run: Run, article: HTMLElement): void {
    if (run.error && !run.stopped) showError(run.error);
    if (run.error instanceof WrinkleFreeError && run.error.code === "crashed") {
      this.page.model.engineCrashed(run.error);
    }
    if (!run.stats) return;
    this.page.chart.update(run);
    byId("announcement").textContent = run.text;
    const notes = [
      run.stopped ? "stopped" : "",
      run.reason === "length" ? "cut at max tokens" : "",
      run.forgotten ? `without the oldest ${run.forgotten} messages` : "",
    ];
    const words = [run.mode, ...statsTexts(run.stats), ...notes].filter(Boolean).join(" · ");
    // Recordings are large, so only the last answer can be replayed.
    for (const button of this.#log.querySelectorAll("footer button")) button.remove();
    const replay = createElement("button", { type: "button", textContent: "Replay" });
    replay.onclick = () => void this.#replay(run, article);
    const figures = createElement("span", { textContent: words });
    article.append(createElement("footer", {}, figures, replay, this.#linkButton(run)));
    byId("follow-ups").hidden = false;
    this.#scrollToEnd();
  }

  /** Returns a button that copies a link to this question, mode and seed. */
  #linkButton(run: Run): HTMLButtonElement {
    const button = createElement("button", { type: "button", textContent: "Copy link" });
    const { mode } = run;
    const prompt = run.question;
    button.onclick = async () => {
      const link = questionLink(location.href, { prompt, mode, seed: run.options.seed ?? null });
      history.replaceState(null, "", link);
      // Without the permission the link is in the address bar.
      const copied = await navigator.clipboard?.writeText(link).then(
        () => true,
        () => false,
      );
      button.textContent = copied ? "Copied" : "Link is in the address bar";
    };
    return button;
  }

  /** Asks the question of a link: its answer is the same wherever the same model runs. */
  askLinked({ prompt, mode, seed }: LinkedQuestion): void {
    if (mode) this.page.settings.selectMode(mode);
    this.#seed = seed;
    void this.#ask(prompt);
  }

  async #replay(run: Run, article: HTMLElement): Promise<void> {
    this.#skip.abort();
    await this.#show(run, article);
  }

  /** Shows a run at the chosen speed. */
  async #show(run: Run, article: HTMLElement): Promise<void> {
    const skip = new AbortController();
    this.#skip = skip;
    const text = child(article, ".answer");
    article.ariaBusy = "true";
    const show = (of: Run, index: number) => {
      this.#block.show(of, index);
      text.textContent = of.text.slice(0, of.frames[index]?.length);
      showThinking(article, of.reasoning.slice(0, of.frames[index]?.thought));
      this.#showReplayNotice(of, index);
      this.#scrollToEnd();
    };
    await play([{ run, view: { show }, speed: () => this.page.speed.value }], skip.signal);
    article.ariaBusy = "false";
    if (this.#skip === skip) this.#showReplayNotice(run, Infinity);
  }

  /** Shows a notice while the replay lags the computed answer. */
  #showReplayNotice(run: Run, index: number): void {
    const lags = run.ended && index < run.frames.length - 1;
    byId("slow").textContent = lags ? replayText(run, this.page.speed) : "";
    byId("skip").hidden = !lags;
  }

  #appendMessage(role: "user" | "assistant", content: string): HTMLElement {
    byId("welcome").hidden = true;
    const article = createElement(
      "article",
      { className: role },
      createElement("p", { className: "answer", textContent: content }),
    );
    article.ariaLabel = role === "user" ? "You" : "Model";
    this.#log.append(article);
    this.#log.scrollTop = this.#log.scrollHeight;
    return article;
  }

  /** Scrolls to the end, unless the user has scrolled up. */
  #scrollToEnd(): void {
    const { scrollHeight, scrollTop, clientHeight } = this.#log;
    if (scrollHeight - scrollTop - clientHeight < 120) this.#log.scrollTop = scrollHeight;
  }

  #setRunning(now: boolean): void {
    byId("send").hidden = now;
    byId("stop").hidden = !now;
  }
}

/** Shows the reasoning before an answer, folded. */
function showThinking(article: HTMLElement, text: string): void {
  if (!text) return;
  let details = article.querySelector("details");
  if (!details) {
    const summary = createElement("summary", { textContent: "Thinking" });
    details = createElement("details", {}, summary, createElement("div"));
    article.prepend(details);
  }
  child(details, "div").textContent = text;
}
