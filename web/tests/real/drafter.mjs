// The files of a small random drafter (DFlash), as a Hugging Face directory has them.

const [FF, HEADS, KV, DIM] = [40, 4, 2, 8];

/** Returns a function that gives numbers around 0, the same for the same seed. */
function noise(seed) {
  return () => {
    seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0;
    return seed / 2 ** 32 - 0.5;
  };
}

/** Returns the bytes of a safetensors file with these tensors, by name and shape. */
function safetensors(shapes, next) {
  const parts = [];
  const header = {};
  let end = 0;
  for (const [name, shape] of Object.entries(shapes)) {
    const values = Float32Array.from({ length: shape.reduce((a, b) => a * b) }, next);
    header[name] = { dtype: "F32", shape, data_offsets: [end, end + values.byteLength] };
    parts.push(Buffer.from(values.buffer));
    end += values.byteLength;
  }
  const json = JSON.stringify(header);
  const text = Buffer.from(json.padEnd(Math.ceil(json.length / 8) * 8));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(text.length));
  return Buffer.concat([length, text, ...parts]);
}

/** Returns the files of a drafter for a model of these sizes, which reads the states after these layers. */
export function drafter({ vocab_size, hidden_size: hidden }, taps) {
  const config = {
    ...{ architectures: ["DFlashDraftModel"], model_type: "qwen3", vocab_size },
    ...{ hidden_size: hidden, intermediate_size: FF, num_hidden_layers: 1, hidden_act: "silu" },
    ...{ num_attention_heads: HEADS, num_key_value_heads: KV, head_dim: DIM, block_size: 5 },
    ...{ max_position_embeddings: 512, rms_norm_eps: 1e-6, rope_theta: 1e6 },
    dflash_config: { target_layer_ids: taps, mask_token_id: 4 },
  };
  const layer = {
    input_layernorm: [hidden],
    post_attention_layernorm: [hidden],
    "self_attn.q_norm": [DIM],
    "self_attn.k_norm": [DIM],
    "self_attn.q_proj": [HEADS * DIM, hidden],
    "self_attn.k_proj": [KV * DIM, hidden],
    "self_attn.v_proj": [KV * DIM, hidden],
    "self_attn.o_proj": [hidden, HEADS * DIM],
    "mlp.gate_proj": [FF, hidden],
    "mlp.up_proj": [FF, hidden],
    "mlp.down_proj": [hidden, FF],
  };
  const names = Object.entries(layer).map(([name, shape]) => [`layers.0.${name}.weight`, shape]);
  const shapes = {
    "fc.weight": [hidden, taps.length * hidden],
    "hidden_norm.weight": [hidden],
    "norm.weight": [hidden],
    ...Object.fromEntries(names),
  };
  return {
    "config.json": Buffer.from(JSON.stringify(config)),
    "model.safetensors": safetensors(shapes, noise(7)),
  };
}
