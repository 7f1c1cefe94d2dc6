/** The result of a race in words: who was faster, and why. */

import { formatDuration, formatNumber } from "./format.js";

/** What a run of a race has measured. */
export interface RaceResult {
  mode: string;
  text: string;
  /** Milliseconds. */
  duration: number;
  /** Number of forward passes. */
  passes: number;
  /** Number of tokens. */
  tokens: number;
}

/** Share of repeated words from which a text counts as broken. Good stories have about 0.01. */
const BROKEN = 0.08;

/** Returns the share of words that repeat one of the two words before them, from 0 to 1. */
export function repetition(text: string): number {
  const words = text.toLowerCase().match(/[\p{L}\p{N}']+/gu) ?? [];
  const repeats = words.filter((word, at) => words.slice(Math.max(at - 2, 0), at).includes(word));
  return words.length ? repeats.length / words.length : 0;
}

/** Returns what is wrong with a text, or `null` if it may win. */
export function textFault(text: string): string | null {
  if (!text.trim()) return "its answer is empty";
  const share = repetition(text);
  return share < BROKEN
    ? null
    : `its text is broken (${formatNumber(100 * share)} % repeated words)`;
}

/** Returns one to three sentences: the winner, the reason, and a text that does not count. */
export function verdict([left, right]: readonly [RaceResult, RaceResult]): string {
  const faults = [left, right].flatMap((run) => {
    const fault = textFault(run.text);
    return fault ? [`${run.mode} does not count: ${fault}.`] : [];
  });
  const [first, second] = left.duration <= right.duration ? [left, right] : [right, left];
  const times = `${formatDuration(first.duration)} against ${formatDuration(second.duration)}`;
  const won = textFault(first.text)
    ? `${first.mode} ended first: ${times}.`
    : `${first.mode} was first: ${times}.`;
  return [won, reason(first, second), ...faults].filter(Boolean).join(" ");
}

/** Explains the times by the number of passes and the time of a pass, for as many tokens. */
function reason(first: RaceResult, second: RaceResult): string {
  if (![first, second].every(({ passes, tokens }) => passes > 0 && tokens > 0)) return "";
  const [fewer, more] = first.passes <= second.passes ? [first, second] : [second, first];
  const passes = `${fewer.mode} needs ${times(more.passes / fewer.passes)} fewer passes`;
  const slower = fewer.duration / fewer.passes / (more.duration / more.passes);
  if (slower <= 1.05) return `${passes}, and they take no longer.`;
  return `${passes}, but each takes ${times(slower)} as long, because it computes a whole block.`;
}

function times(factor: number): string {
  return `${formatNumber(factor, 1)} ×`;
}
