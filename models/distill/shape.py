"""Shapes of models, read from and written to `config.json`."""
from dataclasses import dataclass

FAMILIES = ("llama", "qwen2", "qwen3", "bitnet")
ACTIVATIONS = {"silu": "silu", "swish": "silu", "relu2": "relu2"}


@dataclass(frozen=True)
class Shape:
    """Sizes and constants of a decoder, by the names of `config.json`."""
    family: str
    vocab: int
    hidden: int
    ff: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    activation: str = "silu"
    epsilon: float = 1e-5
    theta: float = 10_000.0
    context: int = 2048
    tied: bool = True

    @property
    def biases(self) -> bool:
        """True if q, k and v have biases."""
        return self.family == "qwen2"

    @property
    def head_norms(self) -> bool:
        """True if queries and keys are normalized per head."""
        return self.family == "qwen3"


def read(config: dict, file: str) -> Shape:
    """Returns the shape in a `config.json`. What this code does not compute is refused."""
    def need(key):
        if config.get(key) is None:
            raise SystemExit(f"{file}: no field `{key}`")
        return config[key]

    family = need("model_type")
    if family not in FAMILIES[:3]:
        raise SystemExit(f"{file}: `model_type` is {family}; this training reads {', '.join(FAMILIES[:3])}")
    for scaling in (config.get("rope_scaling"), config.get("rope_parameters")):
        kind = (scaling or {}).get("rope_type") or (scaling or {}).get("type") or "default"
        if kind != "default":
            raise SystemExit(f"{file}: RoPE scaling `{kind}` is not supported; train without it")
    for field in ("attention_bias", "mlp_bias"):
        if config.get(field) and family != "qwen2":
            raise SystemExit(f"{file}: `{field}` is not supported")
    if config.get("quantization_config"):
        raise SystemExit(f"{file}: the model is quantized; start from its original weights")
    if config.get("use_sliding_window") or (config.get("sliding_window") and family == "llama"):
        raise SystemExit(f"{file}: sliding windows are not supported")
    if config.get("hidden_act", "silu") not in ACTIVATIONS:
        raise SystemExit(f"{file}: `hidden_act` {config['hidden_act']} is not silu or relu2")
    heads, hidden = need("num_attention_heads"), need("hidden_size")
    theta = config.get("rope_theta") or (config.get("rope_parameters") or {}).get("rope_theta")
    return Shape(
        family, need("vocab_size"), hidden, need("intermediate_size"), need("num_hidden_layers"),
        heads, config.get("num_key_value_heads") or heads, config.get("head_dim") or hidden // heads,
        ACTIVATIONS[config.get("hidden_act", "silu")], config.get("rms_norm_eps", 1e-6),
        float(theta or 10_000.0), need("max_position_embeddings"),
        config.get("tie_word_embeddings", False))


def write(shape: Shape, ternary: bool) -> dict:
    """Returns the model's part of `config.json`. Ternary models without biases and head norms are
    BitNet's architecture, which `transformers` reads; others are their family's with sub-norms more,
    which `wf-run` reads."""
    family = "bitnet" if ternary and shape.family == "llama" else shape.family
    name = {"llama": "Llama", "qwen2": "Qwen2", "qwen3": "Qwen3", "bitnet": "BitNet"}[family]
    return {
        "architectures": [f"{name}ForCausalLM"], "model_type": family, "vocab_size": shape.vocab,
        "hidden_size": shape.hidden, "intermediate_size": shape.ff,
        "num_hidden_layers": shape.layers, "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads, "head_dim": shape.head_dim,
        "hidden_act": shape.activation, "rms_norm_eps": shape.epsilon,
        "rope_theta": shape.theta, "max_position_embeddings": shape.context,
        "tie_word_embeddings": shape.tied,
    }
