/** Numbers for people. */

import type { Stats } from "wrinklefree";

/** A number with so many decimals. */
export function number(value: number, digits = 0): string {
  const options = { minimumFractionDigits: digits, maximumFractionDigits: digits };
  return value.toLocaleString("en", options);
}

/** Tokens per second. */
export function rate(value: number): string {
  return number(value, value < 100 ? 1 : 0);
}

/** Bytes. */
export function size(bytes: number): string {
  const [unit, name] = bytes < 1e9 ? [1e6, "MB"] : [1e9, "GB"];
  return `${number(bytes / unit, 1)} ${name}`;
}

/** Milliseconds. */
export function duration(milliseconds: number): string {
  if (milliseconds < 1000) return `${number(milliseconds)} ms`;
  return `${number(milliseconds / 1000, 1)} s`;
}

/** What an answer cost. */
export function figures(stats: Stats): string[] {
  const { tokens, passes, tokensPerSecond, tokensPerPass, timeToFirstToken } = stats;
  return [
    `${number(tokens)} tokens`,
    passes === null ? "" : `${number(passes)} passes`,
    tokensPerSecond === null ? "" : `${rate(tokensPerSecond)} tok/s`,
    tokensPerPass === null ? "" : `${number(tokensPerPass, 2)} tokens per pass`,
    timeToFirstToken === null ? "" : `first after ${duration(timeToFirstToken)}`,
  ].filter(Boolean);
}
