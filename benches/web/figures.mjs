// Statistics of samples, and tables.

import { readFileSync } from "node:fs";

/** Returns the median. */
export function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const at = sorted.length >> 1;
  return sorted.length % 2 ? sorted[at] : (sorted[at - 1] + sorted[at]) / 2;
}

/** Formats samples as `median (min – max)`. */
export function spread(values) {
  const [min, max] = [Math.min(...values), Math.max(...values)];
  return `${short(median(values))} (${short(min)} – ${short(max)})`;
}

/** Formats a number with about three digits. */
export function short(value) {
  return value >= 100 ? value.toFixed(0) : value.toFixed(value >= 10 ? 1 : 2);
}

/** Returns the median of the ratios of each round, so that both values of a ratio are close in time. */
export function ratio(above, below) {
  return median(above.map((value, round) => value / below[round]));
}

/** Formats a Markdown table. */
export function table(head, rows) {
  const line = (cells) => `| ${cells.join(" | ")} |`;
  return [line(head), line(head.map(() => "---")), ...rows.map(line)].join("\n");
}

/** Returns the machine's load, since measurements on a busy machine are less reliable. */
export function load() {
  return readFileSync("/proc/loadavg", "utf8").split(" ").slice(0, 2).join(" ");
}
