"""Compares GGUF files in PQ2_0 of `wf-run convert` with what `boostr` reads: python boostr.py WF_RUN READER

A small Llama with ternary layers is written. Its tensors must be those that were made, bit for bit, and
the logits of both programs must agree: `wf-run` rounds the activations of such a model to 8 bits, and the
reader does not.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

HIDDEN, WIDE, VOCAB, HEADS, LAYERS = 256, 512, 160, 4, 2
# Exact in f16, so that the blocks hold it. Another scale goes into a tensor of its own, which is ours.
SCALES = [0.0625, 0.046875]
LEAST = 0.97
MATRICES = {
    "attn_q": ("self_attn.q_proj", HIDDEN, HIDDEN), "attn_k": ("self_attn.k_proj", HIDDEN, HIDDEN),
    "attn_v": ("self_attn.v_proj", HIDDEN, HIDDEN), "attn_output": ("self_attn.o_proj", HIDDEN, HIDDEN),
    "ffn_gate": ("mlp.gate_proj", WIDE, HIDDEN), "ffn_up": ("mlp.up_proj", WIDE, HIDDEN),
    "ffn_down": ("mlp.down_proj", HIDDEN, WIDE),
}
CONFIG = dict(
    model_type="llama", architectures=["LlamaForCausalLM"], vocab_size=VOCAB, hidden_size=HIDDEN,
    intermediate_size=WIDE, num_hidden_layers=LAYERS, num_attention_heads=HEADS, num_key_value_heads=HEADS,
    max_position_embeddings=128, rms_norm_eps=1e-5, hidden_act="silu", rope_theta=10000.0,
    tie_word_embeddings=True, eos_token_id=2,
)
BITNET = dict(quant_method="bitnet", linear_class="autobitlinear", quantization_mode="offline")


def safetensors(path, tensors):
    header, data = {}, b""
    for name, (dtype, array) in tensors.items():
        end = len(data) + array.nbytes
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [len(data), end]}
        data += array.tobytes()
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def paired(weights):
    """Rows of a query or key matrix as GGUF orders them: the halves of a head interleaved."""
    return weights.reshape(HEADS, 2, HIDDEN // HEADS // 2, -1).swapaxes(1, 2).reshape(weights.shape)


def model(folder):
    """Writes a directory, and returns its tensors by their names in GGUF."""
    rng = np.random.default_rng(5)
    normal = lambda *shape: (rng.standard_normal(shape) * 0.5).astype(np.float32)
    tensors, named = {}, {}

    def plain(theirs, name, values):
        tensors[theirs] = ("F32", values)
        named[name] = values

    # f16 holds the embedding exactly.
    plain("model.embed_tokens.weight", "token_embd.weight", normal(VOCAB, HIDDEN).astype(np.float16).astype(np.float32))
    plain("model.norm.weight", "output_norm.weight", 1 + 0.1 * normal(HIDDEN))
    for i, scale in enumerate(SCALES):
        plain(f"model.layers.{i}.input_layernorm.weight", f"blk.{i}.attn_norm.weight", 1 + 0.1 * normal(HIDDEN))
        plain(f"model.layers.{i}.post_attention_layernorm.weight", f"blk.{i}.ffn_norm.weight", 1 + 0.1 * normal(HIDDEN))
        for ours, (theirs, rows, cols) in MATRICES.items():
            codes = rng.integers(0, 3, (4, rows // 4, cols), dtype=np.uint8)
            at = f"model.layers.{i}.{theirs}"
            tensors[f"{at}.weight"] = ("U8", codes[0] | codes[1] << 2 | codes[2] << 4 | codes[3] << 6)
            tensors[f"{at}.weight_scale"] = ("F32", np.array([scale], np.float32))
            weights = (codes.reshape(rows, cols).astype(np.float32) - 1) * np.float32(scale)
            named[f"blk.{i}.{ours}.weight"] = paired(weights) if ours in ("attn_q", "attn_k") else weights
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({**CONFIG, "quantization_config": BITNET}))
    safetensors(folder / "model.safetensors", tensors)
    return named


def cosine(a, b):
    return min(float(x @ y / np.sqrt((x @ x) * (y @ y))) for x, y in zip(a.astype(np.float64), b.astype(np.float64)))


def main(wf_run, reader):
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        want = model(folder / "model")
        file, out, config = folder / "model.gguf", folder / "read", folder / "plain.json"
        out.mkdir()
        config.write_text(json.dumps(CONFIG))
        subprocess.run([wf_run, "convert", "--type", "PQ2_0", folder / "model", file], check=True)
        ids = ",".join(str(i * 7919 % VOCAB) for i in range(1, 49))
        subprocess.run([reader, file, config, ids, out], check=True)
        for name, values in want.items():
            found = np.fromfile(out / name, "<f4").reshape(values.shape)
            assert np.array_equal(found, values), f"{name}: {np.abs(found - values).max()} apart"
        print(f"{len(want)} tensors are equal")
        npy = folder / "logits.npy"
        subprocess.run([wf_run, "logits", "-m", file, "--tokens", ids, "-o", npy], check=True)
        ours = np.load(npy)
        found = cosine(ours, np.fromfile(out / "logits", "<f4").reshape(ours.shape))
        print(f"cosine of logits at least {found:.5f}")
        assert found > LEAST


main(*sys.argv[1:])
