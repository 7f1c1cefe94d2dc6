//! Shape and constants of a model as metadata keys.

use super::container::MetaWriter;
use crate::format::gguf::keys::{ACTIVATIONS, ARCHITECTURE};
use crate::format::gguf::rope::{FACTORS, LONG_FACTORS, LONG_ROPE};
use crate::format::{
    Activation, Activations, Architecture, ExportError, LayerWeights, Linear, LinearAttention,
    MixerKind, RopeScaling, Spec, Weights, YarnScaling,
};
use crate::matrix::{Matrix, Scales};
use serde::Serialize;

/// Name of the architecture in GGUF.
pub(super) fn architecture(spec: &Spec) -> Result<&'static str, ExportError> {
    match (spec.architecture, spec.activation) {
        (Architecture::BitNet, Activation::Silu) => Ok("bitnet"),
        (Architecture::BitNet, Activation::Relu2) => Ok("bitnet-b1.58"),
        (Architecture::Llama, Activation::Silu) => Ok("llama"),
        (Architecture::Qwen2, Activation::Silu) => Ok("qwen2"),
        (Architecture::Qwen3, Activation::Silu) => Ok("qwen3"),
        (Architecture::Qwen35, Activation::Silu) => Ok("qwen35"),
        (Architecture::HunyuanDense, Activation::Silu) => Ok("hunyuan-dense"),
        (Architecture::MiniCpm, Activation::Silu) => Ok("minicpm"),
        (Architecture::NemotronDiffusion, _) => Err(ExportError::unsupported(
            "architecture",
            "a family that GGUF has a name for",
            "Nemotron-Labs-Diffusion",
            "write a packed file or a Hugging Face directory",
        )),
        (other, activation) => Err(ExportError::unsupported(
            "architecture",
            "SiLU in a family other than BitNet",
            format!("{activation:?} in {other:?}"),
            "GGUF has no name for this variant",
        )),
    }
}

/// Adds the keys of shape and constants.
pub(super) fn put_spec(
    meta: &mut MetaWriter,
    spec: &Spec,
    losses: &mut Vec<String>,
) -> Result<(), ExportError> {
    let arch = architecture(spec)?;
    let key = |name: &str| format!("{arch}.{name}");
    meta.text(ARCHITECTURE, arch);
    for (name, value) in [
        ("vocab_size", spec.vocab_size),
        ("context_length", spec.context_length),
        ("embedding_length", spec.hidden_size),
        ("block_count", spec.layers + spec.mtp_layers),
        ("feed_forward_length", spec.intermediate_size),
        ("attention.head_count", spec.heads),
        ("attention.head_count_kv", spec.kv_heads),
        ("attention.key_length", spec.head_dim),
        ("attention.value_length", spec.head_dim),
        ("rope.dimension_count", spec.rotary_dim()),
    ] {
        meta.size(&key(name), value);
    }
    meta.float(&key("attention.layer_norm_rms_epsilon"), spec.norm_eps);
    let mut float = |name: &str, value: f64| {
        if f64::from(value as f32) != value {
            losses.push(format!("`{}` {value} is rounded to f32", key(name)));
        }
        meta.float(&key(name), value as f32);
    };
    float("rope.freq_base", spec.rope.theta);
    match &spec.rope.scaling {
        None | Some(RopeScaling::Llama3(_) | RopeScaling::Divisors(_)) => {}
        Some(RopeScaling::Linear(factor)) => {
            float("rope.scaling.factor", *factor);
            meta.text(&key("rope.scaling.type"), "linear");
        }
        Some(RopeScaling::Yarn(s)) => {
            put_yarn(&mut float, s)?;
            meta.text(&key("rope.scaling.type"), "yarn");
            meta.size(&key("rope.scaling.original_context_length"), s.original_context);
        }
        Some(RopeScaling::LongRope(s)) => {
            float("rope.scaling.attn_factor", s.attention_factor);
            meta.text(&key("rope.scaling.type"), LONG_ROPE);
            meta.size(&key("rope.scaling.original_context_length"), s.original_context);
        }
    }
    if let Some(f) = spec.factors {
        meta.float(&key("embedding_scale"), f.embedding);
        meta.float(&key("residual_scale"), f.residual);
        meta.float(&key("logit_scale"), f.logit_divisor);
    }
    if spec.mtp_layers > 0 {
        meta.size(&key("nextn_predict_layers"), spec.mtp_layers);
    }
    if let Some(shape) = &spec.linear_attention {
        put_linear_attention(meta, arch, spec, shape);
    }
    Ok(())
}

/// Adds the factors of YaRN that differ from the paper's.
fn put_yarn(float: &mut impl FnMut(&str, f64), s: &YarnScaling) -> Result<(), ExportError> {
    let paper = YarnScaling::new(s.factor, s.original_context);
    if s.truncate != paper.truncate {
        return Err(ExportError::unsupported(
            "RoPE scaling",
            "YaRN that rounds its dimensions",
            "`truncate` false",
            "GGUF has no key for it",
        ));
    }
    if s.query_beta != 0.0 {
        return Err(ExportError::unsupported(
            "RoPE scaling",
            "queries that do not grow with their position",
            format!("`llama_4_scaling_beta` {}", s.query_beta),
            "no GGUF architecture that this runtime writes has them",
        ));
    }
    float("rope.scaling.factor", s.factor);
    for (name, value, usual) in [
        ("yarn_beta_fast", s.beta_fast, paper.beta_fast),
        ("yarn_beta_slow", s.beta_slow, paper.beta_slow),
        ("attn_factor", s.attention_factor / paper.attention_factor, 1.0),
    ] {
        if value != usual {
            float(&format!("rope.scaling.{name}"), value);
        }
    }
    Ok(())
}

fn put_linear_attention(meta: &mut MetaWriter, arch: &str, spec: &Spec, shape: &LinearAttention) {
    let key = |name: &str| format!("{arch}.{name}");
    for (name, value) in [
        ("ssm.conv_kernel", shape.conv_kernel),
        ("ssm.state_size", shape.key_dim),
        ("ssm.group_count", shape.key_heads),
        ("ssm.time_step_rank", shape.value_heads),
        ("ssm.inner_size", shape.value_width()),
    ] {
        meta.size(&key(name), value);
    }
    // Pairs of dimensions for time, height, width; for text they have the same position.
    let pairs = spec.rotary_dim() / 2;
    let (height, width) = ((pairs + 1) / 3, pairs / 3);
    let sections = [pairs - height - width, height, width, 0].map(|n| n as i32);
    meta.integers(&key("rope.dimension_sections"), &sections);
    let kinds: Vec<MixerKind> = (0..spec.layers).map(|layer| spec.mixer(layer)).collect();
    let every = kinds.iter().position(|&kind| kind == MixerKind::Attention).map(|n| n + 1);
    match every.filter(|&n| MixerKind::at_interval(spec.layers, n) == kinds) {
        Some(n) => meta.size(&key("full_attention_interval"), n),
        None => {
            let linear: Vec<bool> = kinds.iter().map(|&kind| kind == MixerKind::Linear).collect();
            meta.bools(&key("attention.recurrent_layers"), &linear);
        }
    }
}

/// Adds the activations of ternary matrices with one scale, where the model has any: the type of a matrix
/// does not tell them.
pub(super) fn put_activations(meta: &mut MetaWriter, weights: &Weights) {
    let layers = weights.layers.iter().flat_map(LayerWeights::linears);
    let one_scale = |linear: &&Linear| match &linear.weight {
        Matrix::Ternary(m) => matches!(m.scales(), Scales::Tensor(_)),
        _ => false,
    };
    let mut found = layers.filter(one_scale).map(|linear| linear.activations).peekable();
    if found.peek().is_some() {
        let int8 = found.any(|activations| activations == Activations::Int8);
        meta.text(ACTIVATIONS, if int8 { "int8" } else { "int16" });
    }
}

/// Adds what only files of this project have, as JSON.
pub(super) fn put_json(meta: &mut MetaWriter, key: &str, value: &impl Serialize) {
    let json = serde_json::to_string(value).expect("numbers and texts are JSON");
    meta.text(key, &json);
}

/// Names and values of the tensors that hold divisors of the rotary frequencies.
pub(super) fn divisors(spec: &Spec) -> Vec<(&'static str, Vec<f32>)> {
    match &spec.rope.scaling {
        Some(RopeScaling::Divisors(divisors)) => vec![(FACTORS, divisors.clone())],
        Some(RopeScaling::Llama3(s)) => {
            vec![(FACTORS, s.divisors(spec.rope.theta, spec.rotary_dim()))]
        }
        Some(RopeScaling::LongRope(s)) => {
            LONG_FACTORS.into_iter().zip([s.long.clone(), s.short.clone()]).collect()
        }
        _ => Vec::new(),
    }
}
