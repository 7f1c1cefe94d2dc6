// Both engines have one interface, in the page. A request is one prompt and its answer. Speeds are
// each engine's own figures and exclude the transfer of results to the page.

const EOS = 2;
const engines = new Map();

const open = {
  async ours({ model, threads, simd }) {
    const { load } = await import("/dist/index.js");
    const engine = await load(model, { threads, simd, cache: false });
    return {
      async request(prompt, maxTokens) {
        const [start, answer] = [performance.now(), {}];
        const bias = { logitBias: { [EOS]: -1e9 } };
        const options = { raw: true, maxTokens, temperature: 0, decodeMode: "ar", ...bias };
        for await (const part of engine.stream(prompt, options)) {
          answer.first ??= performance.now() - start;
          answer.stats = part.stats;
        }
        const { stats } = answer;
        return {
          prompt: stats.promptTokens - stats.cachedTokens,
          tokens: stats.tokens,
          prefill: stats.prefillTokensPerSecond,
          decode: stats.tokensPerSecond,
          first: answer.first,
        };
      },
      about() {
        const { artifact, simd, threads, memoryBytes } = engine.info();
        return { build: `${artifact}, ${simd}`, threads, memoryBytes };
      },
    };
  },

  async theirs({ model, threads }) {
    const { Wllama } = await import("/wllama/index.js");
    const engine = new Wllama({ default: "/wllama/wasm/wllama.wasm" });
    const file = await (await fetch(model)).blob();
    // On the CPU, with one sequence.
    await engine.loadModel([file], { n_threads: threads, n_gpu_layers: 0, n_parallel: 1 });
    return {
      async request(prompt, max_tokens) {
        const [start, answer] = [performance.now(), {}];
        const rules = { temperature: 0, cache_prompt: false, logit_bias: { [EOS]: -1e9 } };
        const body = { prompt, max_tokens, ...rules, timings_per_token: true };
        for await (const part of await engine.createCompletion({ ...body, stream: true })) {
          answer.first ??= performance.now() - start;
          answer.timings = part.timings ?? answer.timings;
        }
        const { timings } = answer;
        return {
          prompt: timings.prompt_n,
          tokens: timings.predicted_n,
          prefill: timings.prompt_per_second,
          decode: timings.predicted_per_second,
          first: answer.first,
        };
      },
      about() {
        const build = `llama.cpp ${Wllama.getLibllamaVersion()}`;
        return { build, threads: engine.getNumThreads() };
      },
    };
  },
};

/** Loads an engine under a name. Returns its description. */
export async function load(name, which, options) {
  const engine = await open[which](options);
  engines.set(name, engine);
  return engine.about();
}

/** Runs one request and returns its figures. */
export function request(name, prompt, maxTokens) {
  return engines.get(name).request(prompt, maxTokens);
}

/** Returns an engine's current description. */
export function about(name) {
  return engines.get(name).about();
}
