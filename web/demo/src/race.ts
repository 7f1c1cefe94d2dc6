/** Two modes answer the same prompt. */

import type { ChatMessage } from "wrinklefree";
import { Block } from "./block.js";
import type { Parts } from "./chat.js";
import { at, copy, part } from "./dom.js";
import { complain, quiet } from "./notice.js";
import { duration, number, rate } from "./numbers.js";
import { type Scene, play } from "./play.js";
import { Run } from "./run.js";

/** Milliseconds after which an answer is watched as it comes, and not replayed. */
const PATIENCE = 2000;

/** The view "Race". */
export class Race {
  readonly #lanes = [new Lane("Left", "ar"), new Lane("Right", "iterative")] as const;
  #running: AbortController | null = null;
  #skip = new AbortController();

  constructor(readonly parts: Parts) {
    at("lanes").append(...this.#lanes.map((lane) => lane.card));
    at("race-form").onsubmit = (event) => {
      event.preventDefault();
      void this.#start(at<HTMLInputElement>("race-prompt").value.trim());
    };
    at("race-stop").onclick = () => this.stop();
  }

  stop(): void {
    this.#running?.abort();
    this.#skip.abort();
  }

  async #start(content: string): Promise<void> {
    if (this.#running || !content) return;
    this.stop();
    quiet();
    const running = new AbortController();
    this.#running = running;
    this.#working(true, "Both are computing …");
    try {
      await this.#race(content, running.signal);
    } catch (error) {
      complain(error);
      at("race-says").textContent = "";
    }
    this.#running = null;
    this.#working(false);
  }

  async #race(content: string, signal: AbortSignal): Promise<void> {
    const engine = await this.parts.model.engine();
    signal.throwIfAborted();
    // The same luck for both.
    const seed = Math.floor(Math.random() * 2 ** 32);
    const runs = this.#lanes.map((lane) => {
      const run = new Run(engine, { ...this.parts.settings.for(lane.mode), seed, signal });
      lane.enter(run);
      return run;
    });
    const done = this.#go(runs, [{ role: "user", content }]);
    await Promise.race([done, new Promise((resolve) => setTimeout(resolve, PATIENCE))]);
    const skip = new AbortController();
    this.#skip = skip;
    const recorded = runs.every((run) => run.ended);
    if (recorded) this.#replays();
    const shown = play(this.#scenes(runs, recorded), skip.signal);
    await done;
    await shown;
    this.#tell(runs);
  }

  async #go(runs: readonly Run[], messages: readonly ChatMessage[]): Promise<void> {
    if (this.#together) {
      await Promise.all(runs.map((run) => run.go(messages)));
    } else {
      for (const run of runs) await run.go(messages);
    }
  }

  /** Both share the engine's passes. */
  get #together(): boolean {
    return at<HTMLInputElement>("together").checked;
  }

  /** One clock for both: as many passes a second as were chosen, in the lane that had the most. */
  #scenes(runs: readonly Run[], recorded: boolean): Scene[] {
    const rates = runs.map((run) => run.frames.length / run.took);
    const most = Math.max(...rates);
    return this.#lanes.map((screen, index) => {
      const share = (rates[index] as number) / most;
      const pace = () => (recorded ? this.parts.pace.value * share : Infinity);
      return { run: runs[index] as Run, screen, pace };
    });
  }

  /** Who was first is not given away before it is seen. */
  #replays(): void {
    const slow = Number.isFinite(this.parts.pace.value);
    at("race-says").textContent = slow ? "Slow motion: a replay, one clock for both." : "";
    at("race-stop").textContent = "Skip";
  }

  /** The real figures, and who was first by the real clock. */
  #tell(runs: readonly Run[]): void {
    for (const lane of this.#lanes) lane.result();
    for (const run of runs) {
      if (run.stats) this.parts.chart.update(run);
      if (run.error && !run.stopped) complain(run.error);
    }
    at("race-says").textContent = runs.some((run) => run.error) ? "Stopped." : winner(runs);
  }

  #working(now: boolean, says?: string): void {
    at("race-stop").textContent = "Stop";
    at("race-start").hidden = now;
    at("race-stop").hidden = !now;
    if (says) at("race-says").textContent = says;
  }
}

function winner(runs: readonly Run[]): string {
  const [first, second] = [...runs].sort((a, b) => a.took - b.took) as [Run, Run];
  return `${first.mode} was first: ${duration(first.took)} against ${duration(second.took)}.`;
}

/** One of the two. */
class Lane {
  readonly card = copy("lane");
  #run: Run | null = null;
  readonly #block = new Block(part(this.card, ".block"));
  readonly #mode = part<HTMLSelectElement>(this.card, "select");

  constructor(name: string, mode: string) {
    this.card.ariaLabel = name;
    this.#mode.value = mode;
    this.#mode.ariaLabel = `${name} mode`;
  }

  get mode(): string {
    return this.#mode.value;
  }

  enter(run: Run): void {
    this.#run = run;
    part(this.card, ".text").textContent = "";
    for (const figure of this.card.querySelectorAll("dd")) figure.textContent = "–";
  }

  show(run: Run, index: number): void {
    this.#block.show(run, index);
    part(this.card, ".text").textContent = run.text.slice(0, run.frames[index]?.length);
  }

  /** The real figures. */
  result(): void {
    const { stats, took } = this.#run ?? {};
    if (!stats || took === undefined) return;
    const figures = {
      tokens: number(stats.tokens),
      passes: number(stats.passes ?? 0),
      speed: rate(stats.tokensPerSecond ?? 0),
      "per-pass": number(stats.tokensPerPass ?? 0, 2),
      time: duration(took),
    };
    for (const [name, text] of Object.entries(figures)) {
      part(this.card, `dd.${name}`).textContent = text;
    }
  }
}
