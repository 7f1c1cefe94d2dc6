// Samples into rows of a table.

import { readFileSync } from "node:fs";

export function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const at = sorted.length >> 1;
  return sorted.length % 2 ? sorted[at] : (sorted[at - 1] + sorted[at]) / 2;
}

/** `median (least – most)`. */
export function spread(values) {
  const [least, most] = [Math.min(...values), Math.max(...values)];
  return `${short(median(values))} (${short(least)} – ${short(most)})`;
}

export function short(value) {
  return value >= 100 ? value.toFixed(0) : value.toFixed(value >= 10 ? 1 : 2);
}

/** The median of the rounds' ratios: what was measured side by side is compared side by side. */
export function ratio(above, below) {
  return median(above.map((value, round) => value / below[round]));
}

export function table(head, rows) {
  const line = (cells) => `| ${cells.join(" | ")} |`;
  return [line(head), line(head.map(() => "---")), ...rows.map(line)].join("\n");
}

/** What else the machine did; a measurement on a busy machine is worth less. */
export function load() {
  return readFileSync("/proc/loadavg", "utf8").split(" ").slice(0, 2).join(" ");
}
