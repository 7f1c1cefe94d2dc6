// The package in a tab against `wf-run bench` on AVX2, alternating, on the same file, on one thread.

import { execFileSync } from "node:child_process";
import { load, ratio, short, spread, table } from "./figures.mjs";
import { prompt } from "./prompts.mjs";
import { openTab } from "./tab.mjs";

const { BENCH_HOME, WF_RUN, BENCH_ROUNDS = "5", BENCH_SIMD = "auto" } = process.env;
const [PROMPT, ANSWER] = [128, 32];
const TARGET = 2.5;

/** Runs `wf-run bench` once. */
function native() {
  const model = ["--model", `${BENCH_HOME}/models/small.gguf`];
  const tests = ["-p", `${PROMPT}`, "-n", `${ANSWER}`, "-r", "1", "-t", "1", "-o", "json"];
  const env = { PATH: process.env.PATH, WF_ISA: "avx2" };
  const results = JSON.parse(execFileSync(WF_RUN, ["bench", ...model, ...tests], { env }));
  const [prefill, decode] = results.map((result) => result.tokens_per_second);
  return { prefill, decode };
}

/** Runs the same two tests in the tab. Answers start with an empty context in both. */
async function web() {
  const { prefill } = await tab.call("request", "ours", prompt(PROMPT), 1);
  // The speed does not include the first token.
  const { decode } = await tab.call("request", "ours", prompt(2), ANSWER + 1);
  return { prefill, decode };
}

const tab = await openTab();
const options = { model: "/models/small.gguf", threads: 1, simd: BENCH_SIMD };
const about = await tab.call("load", "ours", "ours", options);
console.log(`in Chromium ${tab.version}: ${about.build}; native: avx2; load before: ${load()}`);
await web();
const rounds = [];
for (let round = 0; round < Number(BENCH_ROUNDS); round++) {
  rounds.push({ web: await web(), native: native() });
}
await tab.close();
console.log(`load after: ${load()}; ${BENCH_ROUNDS} rounds: median (min – max), median of ratios\n`);

const rows = ["prefill", "decode"].map((figure) => {
  const [ours, theirs] = ["web", "native"].map((place) => rounds.map((r) => r[place][figure]));
  const times = ratio(theirs, ours);
  const verdict = `≤ ${TARGET}: ${times <= TARGET ? "yes" : "NO"}`;
  return [`${figure}, tok/s`, spread(ours), spread(theirs), `${short(times)} ×`, verdict];
});
console.log(table(["1 thread", "in the tab", "native", "native is faster", "target"], rows));
