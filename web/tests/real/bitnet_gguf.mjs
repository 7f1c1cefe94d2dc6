/**
 * A file with the keys and the vocabulary of the official GGUF of BitNet b1.58 2B-4T. Its weights are
 * small: after any text it says "Hi", and then it ends the turn. The Rust tests have the same file
 * (`native/tests/common/bitnet.rs`).
 */

const VOCAB = 128_256;
const HIDDEN = 128;
const EOT = 128_009;
const HI = 256;
const TEMPLATE =
  "{% for message in messages %}{% if loop.first %}{{ bos_token }}{% endif %}" +
  "{% if message['role'] == 'user' %}{{ 'Human: ' + message['content'] + '\\n\\nBITNETAssistant: ' " +
  "+ eos_token }}{% elif message['role'] == 'assistant' %}{{ message['content'] + eos_token }}" +
  "{% endif %}{% endfor %}";

const u32 = (n) => Buffer.from(new Uint32Array([n]).buffer);
const u64 = (n) => Buffer.from(new BigUint64Array([BigInt(n)]).buffer);
const f32s = (values) => Buffer.from(new Float32Array(values).buffer);
const text = (string) => Buffer.concat([u64(Buffer.byteLength(string)), Buffer.from(string)]);
const list = (kind, items) => Buffer.concat([u32(9), u32(kind), u64(items.length), ...items]);
const value = {
  u32: (n) => Buffer.concat([u32(4), u32(n)]),
  f32: (n) => Buffer.concat([u32(6), f32s([n])]),
  bool: (on) => Buffer.concat([u32(7), Buffer.from([Number(on)])]),
  text: (string) => Buffer.concat([u32(8), text(string)]),
};

function tokens() {
  const printable = (b) => (b > 32 && b < 127) || (b > 160 && b < 173) || b > 173;
  let other = 256;
  const bytes = Array.from({ length: 256 }, (_, b) =>
    String.fromCodePoint(printable(b) ? b : other++),
  );
  const special = new Map([
    [HI, "Hi"],
    [128_000, "<|begin_of_text|>"],
    [128_001, "<|end_of_text|>"],
    [128_006, "<|start_header_id|>"],
    [128_007, "<|end_header_id|>"],
    [EOT, "<|eot_id|>"],
  ]);
  const name = (id) => (id < 128_000 ? `w${id}` : `<|reserved_special_token_${id - 128_002}|>`);
  return Array.from({ length: VOCAB }, (_, id) => bytes[id] ?? special.get(id) ?? name(id));
}

function keys() {
  const arch = "bitnet-b1.58";
  const sizes = {
    vocab_size: VOCAB,
    context_length: 64,
    embedding_length: HIDDEN,
    feed_forward_length: HIDDEN,
    block_count: 1,
    "attention.head_count": 2,
    "attention.head_count_kv": 1,
    "rope.dimension_count": HIDDEN / 2,
  };
  return {
    "general.architecture": value.text(arch),
    ...Object.fromEntries(
      Object.entries(sizes).map(([key, n]) => [`${arch}.${key}`, value.u32(n)]),
    ),
    [`${arch}.attention.layer_norm_rms_epsilon`]: value.f32(1e-5),
    [`${arch}.rope.freq_base`]: value.f32(500_000),
    "tokenizer.ggml.model": value.text("gpt2"),
    "tokenizer.ggml.tokens": list(8, tokens().map(text)),
    "tokenizer.ggml.token_type": list(
      5,
      Array.from({ length: VOCAB }, (_, id) => u32(id < 128_000 ? 1 : 3)),
    ),
    "tokenizer.ggml.merges": list(8, [text("H i")]),
    "tokenizer.ggml.add_bos_token": value.bool(true),
    "tokenizer.ggml.bos_token_id": value.u32(128_000),
    "tokenizer.ggml.eos_token_id": value.u32(128_001),
    "tokenizer.ggml.padding_token_id": value.u32(128_001),
    "tokenizer.chat_template": value.text(TEMPLATE),
  };
}

/** Logits are products with the last token's embedding: see the Rust tests. */
function embeddings() {
  const half = { 0.125: 0x3000, 3: 0x4200, 20: 0x4d00 };
  const table = new Uint16Array(VOCAB * HIDDEN);
  for (let id = 0; id < VOCAB; id++) table[id * HIDDEN] = half[0.125];
  table.set([half[3], half[3]], HI * HIDDEN);
  table.set([0, half[20]], EOT * HIDDEN);
  return Buffer.from(table.buffer);
}

/** An I2_S matrix of zeros: codes of 1, then the scale and its padding. */
function zeros(rows) {
  const codes = Buffer.alloc((rows * HIDDEN) / 4, 0b01010101);
  return Buffer.concat([codes, f32s([1]), Buffer.alloc(28)]);
}

function tensors() {
  const norm = (name) => [`${name}.weight`, [HIDDEN], 0, f32s(Array(HIDDEN).fill(1))];
  const matrix = (name, rows) => [`${name}.weight`, [HIDDEN, rows], 36, zeros(rows)];
  return [
    ["token_embd.weight", [HIDDEN, VOCAB], 1, embeddings()],
    norm("output_norm"),
    ...["attn_norm", "ffn_norm", "attn_sub_norm", "ffn_sub_norm"].map((n) => norm(`blk.0.${n}`)),
    ...["attn_k", "attn_v"].map((name) => matrix(`blk.0.${name}`, HIDDEN / 2)),
    ...["attn_q", "attn_output", "ffn_gate", "ffn_up", "ffn_down"].map((n) =>
      matrix(`blk.0.${n}`, HIDDEN),
    ),
  ];
}

/** Returns the file's bytes. It has no `eot_token_id` and no `pre`. */
export function bitnetGguf() {
  const padded = (bytes) => Buffer.concat([bytes, Buffer.alloc((32 - (bytes.length % 32)) % 32)]);
  const [metadata, all] = [Object.entries(keys()), tensors()];
  const head = [Buffer.from("GGUF"), u32(3), u64(all.length), u64(metadata.length)];
  for (const [key, bytes] of metadata) head.push(text(key), bytes);
  const data = [];
  let offset = 0;
  for (const [name, shape, kind, bytes] of all) {
    head.push(text(name), u32(shape.length), ...shape.map(u64), u32(kind), u64(offset));
    data.push(padded(bytes));
    offset += data.at(-1).length;
  }
  return new Uint8Array(Buffer.concat([padded(Buffer.concat(head)), ...data]));
}
