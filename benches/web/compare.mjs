// The package against llama.cpp's wasm in the same tab, alternating, on the same file.

import { load, ratio, short, spread, table } from "./figures.mjs";
import { prompt } from "./prompts.mjs";
import { openTab } from "./tab.mjs";

const { BENCH_THREADS = "1,2", BENCH_ROUNDS = "5", BENCH_SIMD = "auto" } = process.env;
const THREADS = BENCH_THREADS.split(",").map(Number);
const ROUNDS = Number(BENCH_ROUNDS);
const [PROMPT, ANSWER] = [128, 32];
const TARGETS = { prefill: 5, decode: 5 };

const tab = await openTab();
const names = THREADS.flatMap((threads) => ["ours", "theirs"].map((which) => ({ which, threads })));
const samples = new Map();
for (const { which, threads } of names) {
  const name = `${which} ${threads}`;
  const options = { model: "/models/small.gguf", threads, simd: BENCH_SIMD };
  const about = await tab.call("load", name, which, options);
  console.log(`${name} threads: ${about.build}, ${about.threads} running`);
  await tab.call("request", name, prompt(PROMPT), 4);
  samples.set(name, []);
}
console.log(`Chromium ${tab.version}, isolated: ${tab.isolated}; load before: ${load()}`);

for (let round = 0; round < ROUNDS; round++) {
  for (const threads of THREADS) {
    const text = prompt(PROMPT);
    for (const which of ["ours", "theirs"]) {
      const sample = await tab.call("request", `${which} ${threads}`, text, ANSWER);
      if (sample.prompt !== PROMPT || sample.tokens !== ANSWER) {
        throw new Error(`${which}: ${sample.prompt} and ${sample.tokens} tokens`);
      }
      samples.get(`${which} ${threads}`).push(sample);
    }
  }
}
await tab.close();
console.log(`load after: ${load()}; ${ROUNDS} rounds: median (min – max), medians of ratios\n`);

const of = (which, threads, figure) => samples.get(`${which} ${threads}`).map((s) => s[figure]);
const rows = [];
for (const threads of THREADS) {
  for (const [figure, unit] of [["prefill", "tok/s"], ["decode", "tok/s"], ["first", "ms"]]) {
    const [ours, theirs] = [of("ours", threads, figure), of("theirs", threads, figure)];
    const times = figure === "first" ? ratio(theirs, ours) : ratio(ours, theirs);
    const target = threads === 1 && TARGETS[figure];
    const verdict = target ? `≥ ${target}: ${times >= target ? "yes" : "NO"}` : "";
    const cells = [spread(ours), spread(theirs), `${short(times)} ×`, verdict];
    rows.push([threads, `${figure}, ${unit}`, ...cells]);
  }
}
console.log(table(["threads", "", "wrinklefree", "wllama", "ours is faster", "target"], rows));

for (const threads of THREADS.filter((count) => count > 1 && THREADS.includes(1))) {
  for (const figure of ["prefill", "decode"]) {
    const [ours, theirs] = ["ours", "theirs"].map((which) =>
      ratio(of(which, threads, figure), of(which, 1, figure)),
    );
    const verdict = `> 1: ${ours > 1 ? "yes" : "NO"}`;
    const both = `ours ${short(ours)} × (${verdict}), wllama ${short(theirs)} ×`;
    console.log(`${figure}, ${threads} threads : 1 thread: ${both}`);
  }
}
