/** Formatting of numbers. */

import type { Stats } from "wrinklefree";

/** Formats a number with this many decimals. */
export function formatNumber(value: number, digits = 0): string {
  const options = { minimumFractionDigits: digits, maximumFractionDigits: digits };
  return value.toLocaleString("en", options);
}

/** Formats a rate in tokens per second. */
export function formatRate(value: number): string {
  return formatNumber(value, value < 100 ? 1 : 0);
}

/** Formats a number of bytes. */
export function formatBytes(bytes: number): string {
  const [unit, name] = bytes < 1e9 ? [1e6, "MB"] : [1e9, "GB"];
  return `${formatNumber(bytes / unit, 1)} ${name}`;
}

/** Formats a duration in milliseconds. */
export function formatDuration(milliseconds: number): string {
  if (milliseconds < 10) return `${formatNumber(milliseconds, 1)} ms`;
  if (milliseconds < 1000) return `${formatNumber(milliseconds)} ms`;
  return `${formatNumber(milliseconds / 1000, 1)} s`;
}

/** Returns the statistics of an answer as texts. */
export function statsTexts(stats: Stats): string[] {
  const { tokens, passes, tokensPerSecond, tokensPerPass, timeToFirstToken } = stats;
  return [
    `${formatNumber(tokens)} tokens`,
    passes === null ? "" : `${formatNumber(passes)} passes`,
    tokensPerSecond === null ? "" : `${formatRate(tokensPerSecond)} tok/s`,
    tokensPerPass === null ? "" : `${formatNumber(tokensPerPass, 2)} tokens per pass`,
    timeToFirstToken === null ? "" : `first after ${formatDuration(timeToFirstToken)}`,
  ].filter(Boolean);
}
