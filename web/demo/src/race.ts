/** The view in which two modes answer the same prompt. */

import type { ChatMessage } from "wrinklefree";
import { BlockCard } from "./block_card.js";
import type { PageContext } from "./chat.js";
import { byId, cloneTemplate, child } from "./dom.js";
import { showError, hideError } from "./notice.js";
import { formatDuration, formatNumber, formatRate } from "./format.js";
import { type Playback, play } from "./play.js";
import { type RaceResult, verdict } from "./race_verdict.js";
import { Run } from "./run.js";

/** Milliseconds after which answers are shown live instead of as a replay. */
const REPLAY_LIMIT_MS = 2000;

/** The view "Race". */
export class Race {
  readonly #lanes = [new Lane("Left", "ar"), new Lane("Right", "iterative")] as const;
  #running: AbortController | null = null;
  #skip = new AbortController();

  constructor(readonly page: PageContext) {
    byId("lanes").append(...this.#lanes.map((lane) => lane.card));
    byId("race-form").onsubmit = (event) => {
      event.preventDefault();
      void this.#start(byId<HTMLInputElement>("race-prompt").value.trim());
    };
    byId("race-stop").onclick = () => this.stop();
  }

  /** Cancels both requests and the replay. */
  stop(): void {
    this.#running?.abort();
    this.#skip.abort();
  }

  async #start(content: string): Promise<void> {
    if (this.#running || !content) return;
    this.stop();
    hideError();
    const running = new AbortController();
    this.#running = running;
    const how = this.#together ? "Both are computing …" : "One is computing after the other …";
    this.#setRunning(true, how);
    try {
      await this.#race(content, running.signal);
    } catch (error) {
      showError(error);
      byId("race-status").textContent = "";
    }
    this.#running = null;
    this.#setRunning(false);
  }

  async #race(content: string, signal: AbortSignal): Promise<void> {
    const engine = await this.page.model.engine();
    signal.throwIfAborted();
    // Both use the same seed.
    const seed = Math.floor(Math.random() * 2 ** 32);
    const runs = this.#lanes.map((lane) => {
      const run = new Run(engine, { ...this.page.settings.forMode(lane.mode), seed, signal });
      lane.begin(run);
      return run;
    });
    const done = this.#go(runs, [{ role: "user", content }]);
    await Promise.race([done, new Promise((resolve) => setTimeout(resolve, REPLAY_LIMIT_MS))]);
    const skip = new AbortController();
    this.#skip = skip;
    const recorded = runs.every((run) => run.ended);
    if (recorded) this.#announceReplay();
    const shown = play(this.#playbacks(runs, recorded), skip.signal);
    await done;
    await shown;
    this.#showResults(runs);
  }

  async #go(runs: readonly Run[], messages: readonly ChatMessage[]): Promise<void> {
    if (this.#together) {
      await Promise.all(runs.map((run) => run.start(messages)));
    } else {
      for (const run of runs) await run.start(messages);
    }
  }

  /** True if both requests run at the same time and share the engine's passes. */
  get #together(): boolean {
    return byId<HTMLInputElement>("together").checked;
  }

  /** Returns the playbacks on a common clock: the chosen speed is that of the faster lane. */
  #playbacks(runs: readonly Run[], recorded: boolean): Playback[] {
    const rates = runs.map((run) => run.frames.length / run.duration);
    const most = Math.max(...rates);
    return this.#lanes.map((view, index) => {
      const share = (rates[index] as number) / most;
      const speed = () => (recorded ? this.page.speed.value * share : Infinity);
      return { run: runs[index] as Run, view, speed };
    });
  }

  /** Announces the replay without naming the winner. */
  #announceReplay(): void {
    const slow = Number.isFinite(this.page.speed.value);
    byId("race-status").textContent = slow ? "Slow motion: a replay of both on one clock." : "";
    byId("race-stop").textContent = "Skip";
  }

  /** Shows the measured figures and the winner. */
  #showResults(runs: readonly Run[]): void {
    for (const lane of this.#lanes) lane.showResult();
    for (const run of runs) {
      if (run.stats) this.page.chart.update(run);
      if (run.error && !run.stopped) showError(run.error);
    }
    const [left, right] = runs.map(result) as [RaceResult, RaceResult];
    const stopped = runs.some((run) => run.error);
    byId("race-status").textContent = stopped ? "Stopped." : verdict([left, right]);
  }

  #setRunning(now: boolean, says?: string): void {
    byId("race-stop").textContent = "Stop";
    byId("race-start").hidden = now;
    byId("race-stop").hidden = !now;
    if (says) byId("race-status").textContent = says;
  }
}

/** Returns the figures that decide a race. */
function result({ mode, text, duration, stats }: Run): RaceResult {
  return { mode, text, duration, passes: stats?.passes ?? 0, tokens: stats?.tokens ?? 0 };
}

/** One of the two lanes. */
class Lane {
  readonly card = cloneTemplate("lane");
  #run: Run | null = null;
  readonly #block = new BlockCard(child(this.card, ".block"));
  readonly #mode = child<HTMLSelectElement>(this.card, "select");

  constructor(name: string, mode: string) {
    this.card.ariaLabel = name;
    this.#mode.value = mode;
    this.#mode.ariaLabel = `${name} mode`;
  }

  get mode(): string {
    return this.#mode.value;
  }

  /** Resets the lane for a run. */
  begin(run: Run): void {
    this.#run = run;
    child(this.card, ".text").textContent = "";
    for (const figure of this.card.querySelectorAll("dd")) figure.textContent = "–";
  }

  /** Shows the state after a pass. */
  show(run: Run, index: number): void {
    this.#block.show(run, index);
    child(this.card, ".text").textContent = run.text.slice(0, run.frames[index]?.length);
  }

  /** Shows the measured figures. */
  showResult(): void {
    const { stats, duration } = this.#run ?? {};
    if (!stats || duration === undefined) return;
    const figures = {
      tokens: formatNumber(stats.tokens),
      passes: formatNumber(stats.passes ?? 0),
      speed: formatRate(stats.tokensPerSecond ?? 0),
      "per-pass": formatNumber(stats.tokensPerPass ?? 0, 2),
      "pass-time": stats.passes ? formatDuration(duration / stats.passes) : "–",
      time: formatDuration(duration),
    };
    for (const [name, text] of Object.entries(figures)) {
      child(this.card, `dd.${name}`).textContent = text;
    }
  }
}
