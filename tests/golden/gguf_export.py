"""Compares files of `wf-run convert --to gguf` with llama.cpp.

    python gguf_export.py WF_RUN [MODEL…]     by default golden models whose rows are whole blocks

Each model is written in every type that holds it. llama.cpp (`llama-cpp-py-sync`) loads the file, and its
logits are compared with those of `wf-run logits` on the same file. Needs: llama-cpp-py-sync==0.11739,
numpy.

llama.cpp rounds activations to 8 bits in blocks of 256, so its logits of quantized matrices are some per cent
away on small random models; a wrong row order, scale or rotation gives a cosine near 0.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from peers import llama_logits, wf_logits

ROOT = Path(__file__).parent
MODELS = ["gguf-bitnet/tq2_0.gguf", "gguf-llama/f16.gguf", "gguf-qwen3/q8_0.gguf", "qwen3-groups", "qwen35-gguf-q2_0",
          "qwen35-gguf-q2_0-b128-tied", "qwen35-wrapped-f16", "qwen2", "llama-plain"]
# Those that llama.cpp has. PQ2_0, PTQ1_0 and I2_S belong to forks.
TYPES = ["TQ1_0", "TQ2_0", "Q2_0"]
LEAST = 0.97


def safetensors(path, tensors):
    header, data = {}, b""
    for name, (dtype, array) in tensors.items():
        begin = len(data)
        data += array.tobytes()
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [begin, len(data)]}
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def ternary(folder, model_type):
    """A small directory whose linear layers are ternary with one f32 scale, 8-bit activations and rows of 256."""
    hidden, wide, vocab, heads, layers = 256, 512, 160, 4, 2
    rng = np.random.default_rng(5)
    normal = lambda *shape: (rng.standard_normal(shape) * 0.5).astype(np.float32)
    tensors = {"model.embed_tokens.weight": ("F32", normal(vocab, hidden)), "model.norm.weight": ("F32", 1 + 0.1 * normal(hidden))}
    for i in range(layers):
        at = f"model.layers.{i}."
        norms = {"input_layernorm": hidden, "post_attention_layernorm": hidden}
        if model_type == "bitnet":
            norms |= {"self_attn.attn_sub_norm": hidden, "mlp.ffn_sub_norm": wide}
        for name, size in norms.items():
            tensors[f"{at}{name}.weight"] = ("F32", 1 + 0.1 * normal(size))
        for name, rows, cols in [("self_attn.q_proj", hidden, hidden), ("self_attn.k_proj", hidden, hidden),
                                 ("self_attn.v_proj", hidden, hidden), ("self_attn.o_proj", hidden, hidden),
                                 ("mlp.gate_proj", wide, hidden), ("mlp.up_proj", wide, hidden), ("mlp.down_proj", hidden, wide)]:
            codes = rng.integers(0, 3, (4, rows // 4, cols), dtype=np.uint8)
            packed = codes[0] | codes[1] << 2 | codes[2] << 4 | codes[3] << 6
            tensors[f"{at}{name}.weight"] = ("U8", packed)
            tensors[f"{at}{name}.weight_scale"] = ("F32", np.array([0.0617 + 0.001 * i], np.float32))
    folder.mkdir()
    config = dict(model_type=model_type, vocab_size=vocab, hidden_size=hidden, intermediate_size=wide, num_hidden_layers=layers,
                  num_attention_heads=heads, num_key_value_heads=heads, max_position_embeddings=128, rms_norm_eps=1e-5,
                  hidden_act="silu", rope_theta=10000.0, tie_word_embeddings=True, eos_token_id=2,
                  quantization_config=dict(quant_method="bitnet", linear_class="autobitlinear", quantization_mode="offline"))
    (folder / "config.json").write_text(json.dumps(config))
    safetensors(folder / "model.safetensors", tensors)
    return folder


def cosine(a, b):
    return min(float(x @ y / np.sqrt((x @ x) * (y @ y))) for x, y in zip(a.astype(np.float64), b.astype(np.float64)))


def compare(wf_run, model, kind, folder):
    """The smallest cosine of a position; None where the type does not hold the model or llama.cpp does not know it."""
    file = folder / "model.gguf"
    done = subprocess.run([wf_run, "convert", "--force", "--type", kind, model, file], capture_output=True, text=True)
    if done.returncode:
        print(f"{model.parent.name}/{model.name} {kind}: {done.stderr.strip().splitlines()[-1][:150]}")
        return None
    report = subprocess.run([wf_run, "inspect", "--json", file], capture_output=True, check=True)
    vocab = json.loads(report.stdout)["spec"]["vocab_size"]
    ids = folder / "ids.npy"
    np.save(ids, np.arange(1, 49) * 7919 % vocab)
    ours, why = wf_logits(wf_run, file, ids)
    assert ours is not None, why
    theirs, why = llama_logits(file, ids)
    if theirs is None:
        print(f"{model.parent.name}/{model.name} {kind}: llama.cpp: {why}")
        return None
    found = cosine(ours, theirs)
    print(f"{model.parent.name}/{model.name} {kind}: cosine {found:.5f}")
    return found


def main():
    wf_run, *models = sys.argv[1:]
    found = []
    with tempfile.TemporaryDirectory() as folder:
        made = [ternary(Path(folder) / f"ternary-{name}", name) for name in ("llama", "bitnet")]
        for model in models or made + [ROOT / "models" / name for name in MODELS]:
            found += [compare(wf_run, Path(model), kind, Path(folder)) for kind in TYPES]
    found = [value for value in found if value is not None]
    assert found and min(found) > LEAST, found
    print(f"{len(found)} files agree")


main()
