"""Writes a checkpoint as a Hugging Face BitNet directory: packed ternary weights, W = t * scale."""
import argparse
from pathlib import Path

import tokens
from checkpoint import load
from model import LM
from presets import Model

from bitnet import export as directory
from bitnet.ternary import EPSILON, eight_bits

NORMS = {
    "input_norm": "input_layernorm", "post_norm": "post_attention_layernorm",
    "attention_norm": "self_attn.attn_sub_norm", "ff_norm": "mlp.ffn_sub_norm",
}
MATRICES = {
    "qkv": ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"], "o": ["self_attn.o_proj"],
    "gate_up": ["mlp.gate_proj", "mlp.up_proj"], "down": ["mlp.down_proj"],
}


def tensors(model: LM) -> dict:
    """All tensors, by the names that `transformers` gives them."""
    out = {
        "model.embed_tokens.weight": eight_bits(model.embedding.weight).bfloat16(),
        "model.norm.weight": model.final_norm,
    }
    for number, layer in enumerate(model.layers):
        place = f"model.layers.{number}."
        for ours, theirs in NORMS.items():
            out[f"{place}{theirs}.weight"] = getattr(layer, ours)
        for ours, theirs in MATRICES.items():
            names = [place + name for name in theirs]
            out |= directory.packed(names, getattr(layer, ours).weight)
    return out


def configs(c: Model) -> dict:
    """The directory's JSON files."""
    return {
        "config.json": {
            "architectures": ["BitNetForCausalLM"], "model_type": "bitnet", "vocab_size": c.vocab,
            "hidden_size": c.hidden, "intermediate_size": c.ff, "num_hidden_layers": c.layers,
            "num_attention_heads": c.heads, "num_key_value_heads": c.heads, "hidden_act": "relu2",
            "max_position_embeddings": c.context, "rms_norm_eps": EPSILON, "rope_theta": c.theta,
            "tie_word_embeddings": True, "bos_token_id": tokens.BOS, "eos_token_id": tokens.EOS,
            "torch_dtype": "bfloat16", "bd_size": c.block, "mask_token_id": tokens.MASK,
            "quantization_config": directory.QUANTIZATION,
        },
        "dlm_config.json": directory.diffusion(c.block, tokens.SPECIAL[tokens.MASK], tokens.MASK),
        "generation_config.json": {"bos_token_id": tokens.BOS, "eos_token_id": tokens.EOS},
        "tokenizer_config.json": tokens.config(c.context),
    }


def export(model: LM, tokenizer: Path, out: Path):
    """Writes the directory."""
    directory.write(out, tensors(model), tokenizer, configs(model.config))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint", type=Path, help="final.pt, or a master file")
    parser.add_argument("out", type=Path)
    parser.add_argument("--tokenizer", type=Path, help="default: next to the checkpoint")
    args = parser.parse_args()
    tokenizer = args.tokenizer or args.checkpoint.with_name("tokenizer.json")
    export(load(args.checkpoint), tokenizer, args.out)


if __name__ == "__main__":
    main()
