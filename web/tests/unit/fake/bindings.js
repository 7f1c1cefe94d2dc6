// A fake artifact: it repeats the prompt's words, one per forward pass.

let shared;

export default async function init({ memory }) {
  shared = memory ?? new WebAssembly.Memory({ initial: 1, maximum: 2, shared: true });
  return { memory: shared };
}

const TRAP = 2;

/** Blocks as a real pool worker does: until the session is freed, or until it traps. */
export function runPoolWorker() {
  const words = new Int32Array(shared.buffer);
  Atomics.wait(words, 0, 0);
  if (Atomics.load(words, 0) === TRAP) throw new WebAssembly.RuntimeError("unreachable");
}

/** Makes a pool worker trap, then waits for it forever. */
function trapPoolWorker() {
  const words = new Int32Array(shared.buffer);
  Atomics.store(words, 0, TRAP);
  Atomics.notify(words, 0);
  Atomics.wait(words, 0, TRAP);
}

function refusal(code, message) {
  return Object.assign(new Error(message), { code });
}

export class Upload {
  #chunks = [];
  #at = 0;

  constructor(name, size) {
    this.name = name;
    this.size = size;
  }

  write(chunk) {
    this.#at += chunk.length;
    if (this.size && this.#at > this.size) throw refusal("bad_request", `${this.name}: too long`);
    this.#chunks.push(chunk.slice());
  }

  bytes() {
    return Buffer.concat(this.#chunks);
  }

  sha256() {
    return process
      .getBuiltinModule("node:crypto")
      .createHash("sha256")
      .update(this.bytes())
      .digest("hex");
  }

  free() {
    this.freed = true;
  }
}

export class Session {
  #running = new Map();
  #events = [];
  #ids = 100;

  static open(files, drafter, options) {
    if (files[0].bytes().toString() === "no model") {
      throw refusal("not_a_model", `${files[0].name}: not a model`);
    }
    return new Session(files, drafter, JSON.parse(options));
  }

  constructor(files, drafter, options) {
    this.files = files;
    this.drafter = drafter;
    this.options = options;
  }

  info() {
    const sizes = this.files.map((file) => file.bytes().length);
    return JSON.stringify({
      name: this.options.name,
      architecture: "fake",
      chat: this.files[0].bytes().toString().startsWith("chat"),
      weights_bytes: sizes.reduce((a, b) => a + b, 0),
      subnormal_weights: 0,
      end_tokens: [],
      notes: [],
      drafter: this.drafter.map(({ name }) => name).join() || null,
      simd: "simd128",
      threads: this.options.threads,
      decode_modes: ["ar"],
      default_decode_mode: this.options.mtp ? "verify" : "ar",
      context: this.options.context ?? 128,
      kv_types: { keys: this.options.kv.keys ?? "f32", values: this.options.kv.values ?? "f32" },
      attention: this.options.kv.attention ?? "dense",
    });
  }

  submit(request) {
    const { prompt, messages, temperature = 0, ...options } = JSON.parse(request);
    if (temperature < 0) throw refusal("bad_decoding_parameter", "temperature: below 0");
    const text = prompt ?? messages.map((message) => message.content).join(" ");
    const id = this.#ids++;
    this.#running.set(id, { words: text.split(" "), at: 0, ...options });
    return id;
  }

  cancel(id) {
    const running = this.#running.get(id);
    if (running) this.#end(id, running, "cancelled");
  }

  step() {
    for (const [id, running] of this.#running) this.#advance(id, running);
    const events = this.#events;
    this.#events = [];
    return JSON.stringify({ ran: true, prefill_rows: 0, decode_rows: this.#running.size, events });
  }

  #advance(id, running) {
    const word = running.words[running.at % running.words.length];
    if (word === "trap") throw new WebAssembly.RuntimeError("unreachable");
    if (word === "pool-trap") trapPoolWorker();
    if (word === "overflow") return this.#end(id, running, "model_error");
    // A pass of 20 ms.
    if (word === "slow") Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 20);
    running.at += 1;
    const scores = running.logprobs === undefined ? {} : { logprob: -1, top: [[7, -1]] };
    const output = this.#output(running, word);
    this.#events.push({ type: "token", id, token: running.at, ...output, ...scores });
    if (running.watch) {
      this.#events.push({ type: "slots", id, slots: [{ state: "masked", text: "" }] });
    }
    const limit = running.max_tokens ?? running.words.length;
    if (running.at >= limit) this.#end(id, running, running.max_tokens ? "length" : "stop");
  }

  /** Returns what a word says: text, reasoning, the beginning of a call, or its arguments. */
  #output(running, word) {
    const [, kind, rest] = /^(think|call|with):(.*)$/.exec(word) ?? [];
    if (kind === "think") return { text: "", reasoning: `${rest} ` };
    if (kind === undefined) return { text: `${word} ` };
    if (kind === "call") running.call = (running.call ?? -1) + 1;
    const name = kind === "call" ? { name: rest } : {};
    const more = kind === "call" ? "" : rest;
    return { text: "", calls: [{ index: running.call, ...name, arguments: more }] };
  }

  #end(id, running, reason) {
    const { words, at } = running;
    this.#running.delete(id);
    const [prompt_tokens, generated_tokens] = [words.length, at];
    const counts = { prompt_tokens, generated_tokens, passes: at, cached_tokens: 1 };
    this.#events.push({
      type: "end",
      id,
      reason,
      text: running.call === undefined ? "." : "",
      ...counts,
    });
  }

  tokenize(text, special) {
    return Uint32Array.of(...[...text].map((c) => c.charCodeAt(0)), ...(special ? [0] : []));
  }

  encode(request) {
    const { prompt, messages, tokens } = JSON.parse(request);
    if (tokens) return Uint32Array.from(tokens);
    const text = prompt ?? messages.map((message) => message.content).join(" ");
    return Uint32Array.from(text.split(" "), (_, index) => index);
  }

  detokenize(ids) {
    return `<${ids.join()}>`;
  }

  free() {
    const words = new Int32Array(shared.buffer);
    Atomics.store(words, 0, 1);
    Atomics.notify(words, 0);
  }
}
