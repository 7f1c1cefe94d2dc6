// Memory and speed of a model of BitNet b1.58 2B-4T's shape in a tab.

import { load, short, spread, table } from "./figures.mjs";
import { prompt } from "./prompts.mjs";
import { openTab } from "./tab.mjs";

const { BENCH_THREADS = "1,2", BENCH_ROUNDS = "5", BENCH_SIMD = "auto" } = process.env;
const [PROMPT, ANSWER] = [128, 16];
const [GB, TARGET] = [1e9, 1.5];

const rows = [];
for (const threads of BENCH_THREADS.split(",").map(Number)) {
  const tab = await openTab();
  const options = { model: "/models/bitnet-2b.wf.safetensors", threads, simd: BENCH_SIMD };
  const start = performance.now();
  const { build } = await tab.call("load", "ours", "ours", options);
  const seconds = (performance.now() - start) / 1000;
  console.log(`Chromium ${tab.version}: ${build}, loaded in ${short(seconds)} s; load: ${load()}`);
  await tab.call("request", "ours", prompt(PROMPT), 2);
  const samples = [];
  for (let round = 0; round < Number(BENCH_ROUNDS); round++) {
    samples.push(await tab.call("request", "ours", prompt(PROMPT), ANSWER));
  }
  const memory = (await tab.call("about", "ours")).memoryBytes / GB;
  const peak = (await tab.peak()) / GB;
  await tab.close();
  const speeds = ["prefill", "decode"].map((figure) => spread(samples.map((s) => s[figure])));
  const verdict = `≤ ${TARGET}: ${memory <= TARGET ? "yes" : "NO"}`;
  rows.push([threads, ...speeds, short(memory), short(peak), verdict]);
}
const head = ["threads", "prefill, tok/s", "decode, tok/s", "wasm memory, GB"];
console.log(`load: ${load()}; ${BENCH_ROUNDS} rounds: median (min – max)\n`);
console.log(table([...head, "the process's peak, GB", "memory target"], rows));
