//! `config.json` and `generation_config.json` of a model.

use super::weights::WeightsFile;
use crate::format::hf::nemotron;
use crate::format::{
    Activation, Architecture, Checkpoint, ExportError, GenerationDefaults, LinearAttention,
    Llama3Scaling, MixerKind, RopeScaling, Spec, YarnScaling,
};
use serde_json::{Map, Value, json};

/// Model type and class of a family.
fn family(architecture: Architecture) -> (&'static str, &'static str) {
    match architecture {
        Architecture::BitNet => ("bitnet", "BitNetForCausalLM"),
        Architecture::Llama => ("llama", "LlamaForCausalLM"),
        Architecture::Qwen2 => ("qwen2", "Qwen2ForCausalLM"),
        Architecture::Qwen3 => ("qwen3", "Qwen3ForCausalLM"),
        Architecture::Qwen35 => ("qwen3_5_text", "Qwen3_5ForCausalLM"),
        Architecture::HunyuanDense => ("hunyuan_v1_dense", "HunYuanDenseV1ForCausalLM"),
        Architecture::MiniCpm => ("minicpm", "MiniCPMForCausalLM"),
        Architecture::NemotronDiffusion => (nemotron::MODEL_TYPE, nemotron::CLASS),
    }
}

/// `config.json`.
pub(super) fn config(
    checkpoint: &Checkpoint,
    weights: &WeightsFile<'_>,
) -> Result<Value, ExportError> {
    let Checkpoint { spec, generation, .. } = checkpoint;
    let (model_type, class) = family(spec.architecture);
    let mut config = Map::new();
    let mut put = |key: &str, value: Value| config.insert(key.into(), value);
    put("architectures", json!([class]));
    put("model_type", model_type.into());
    put("vocab_size", spec.vocab_size.into());
    put("hidden_size", spec.hidden_size.into());
    put("intermediate_size", spec.intermediate_size.into());
    put("num_hidden_layers", spec.layers.into());
    put("num_attention_heads", spec.heads.into());
    put("num_key_value_heads", spec.kv_heads.into());
    put("head_dim", spec.head_dim.into());
    put("max_position_embeddings", spec.context_length.into());
    put("rms_norm_eps", shortest(spec.norm_eps));
    let activation = match spec.activation {
        Activation::Silu => "silu",
        Activation::Relu2 => "relu2",
    };
    put("hidden_act", activation.into());
    put("tie_word_embeddings", checkpoint.weights.head.is_none().into());
    put("torch_dtype", weights.dtype().into());
    if let Some(id) = generation.bos {
        put("bos_token_id", id.into());
    }
    if let Some(ids) = ids(&generation.eos) {
        put("eos_token_id", ids);
    }
    if !matches!(spec.architecture, Architecture::Qwen2 | Architecture::Qwen35) {
        put("attention_bias", weights.attention_bias().into());
        put("mlp_bias", weights.mlp_bias().into());
    }
    if let Some(quantization) = weights.quantization() {
        put("quantization_config", quantization);
    }
    if spec.architecture == Architecture::HunyuanDense {
        put("use_qk_norm", weights.head_norms().into());
    }
    if let Some(f) = spec.factors {
        let depth = f64::from(f.residual) * (spec.layers as f64).sqrt();
        let base = spec.hidden_size as f64 / f64::from(f.logit_divisor);
        put("scale_emb", shortest(f.embedding));
        put("scale_depth", depth.into());
        put("dim_model_base", base.into());
    }
    if let Some(training) = &checkpoint.training {
        put("wrinklefree_training", json!(training));
    }
    config.extend(rope(spec));
    if spec.architecture == Architecture::NemotronDiffusion {
        config.extend(nemotron::fields(checkpoint.dlm.as_ref()));
    }
    if let Some(shape) = &spec.linear_attention {
        config.extend(linear_attention(spec, shape));
    }
    Ok(config.into())
}

/// One id, or a list of several.
fn ids(ids: &[u32]) -> Option<Value> {
    match ids {
        [] => None,
        [id] => Some((*id).into()),
        ids => Some(ids.into()),
    }
}

/// The number with the digits of an f32, not those of its f64.
fn shortest(value: f32) -> Value {
    serde_json::from_str(&value.to_string()).unwrap_or_else(|_| value.into())
}

/// The rotary embedding, as `transformers` 4 and 5 read it.
fn rope(spec: &Spec) -> Map<String, Value> {
    let theta = spec.rope.theta;
    let mut scaling = match &spec.rope.scaling {
        None => json!({"rope_type": "default"}),
        Some(RopeScaling::Linear(factor)) => json!({"rope_type": "linear", "factor": factor}),
        Some(RopeScaling::Llama3(s)) => llama3_json(s),
        Some(RopeScaling::Divisors(_)) => llama3(spec).map_or(Value::Null, |s| llama3_json(&s)),
        Some(RopeScaling::Yarn(s)) => yarn_json(s),
        Some(RopeScaling::LongRope(s)) => json!({
            "rope_type": "longrope",
            "factor": spec.context_length as f64 / s.original_context as f64,
            "original_max_position_embeddings": s.original_context,
            "long_factor": s.long,
            "short_factor": s.short,
            "attention_factor": s.attention_factor,
        }),
    };
    let mut fields = Map::new();
    if spec.architecture == Architecture::Qwen35 {
        let pairs = spec.rotary_dim() / 2;
        let (height, width) = ((pairs + 1) / 3, pairs / 3);
        scaling["rope_theta"] = theta.into();
        scaling["partial_rotary_factor"] = (spec.rotary_dim() as f64 / spec.head_dim as f64).into();
        scaling["mrope_interleaved"] = true.into();
        scaling["mrope_section"] = json!([pairs - height - width, height, width]);
        fields.insert("rope_parameters".into(), scaling);
        return fields;
    }
    fields.insert("rope_theta".into(), theta.into());
    if spec.rope.scaling.is_some() {
        fields.insert("rope_scaling".into(), scaling);
    }
    fields
}

fn yarn_json(s: &YarnScaling) -> Value {
    let mut yarn = json!({
        "rope_type": "yarn",
        "factor": s.factor,
        "original_max_position_embeddings": s.original_context,
        "beta_fast": s.beta_fast,
        "beta_slow": s.beta_slow,
        "attention_factor": s.attention_factor,
        "truncate": s.truncate,
    });
    if s.query_beta != 0.0 {
        yarn["llama_4_scaling_beta"] = s.query_beta.into();
    }
    yarn
}

fn llama3_json(s: &Llama3Scaling) -> Value {
    json!({
        "rope_type": "llama3",
        "factor": s.factor,
        "low_freq_factor": s.low_freq_factor,
        "high_freq_factor": s.high_freq_factor,
        "original_max_position_embeddings": s.original_context,
    })
}

/// The rule of Llama 3 that gives the model's divisors, if one does. All published models have these
/// factors of frequencies.
pub(super) fn llama3(spec: &Spec) -> Option<Llama3Scaling> {
    let Some(RopeScaling::Divisors(divisors)) = &spec.rope.scaling else { return None };
    let factor = divisors.iter().copied().fold(1f32, f32::max);
    let near = |a: &f32, b: &f32| (a - b).abs() <= 1e-5 * b;
    (4..21).find_map(|power| {
        let rule = Llama3Scaling {
            factor: factor.into(),
            low_freq_factor: 1.0,
            high_freq_factor: 4.0,
            original_context: 1 << power,
        };
        let computed = rule.divisors(spec.rope.theta, spec.rotary_dim());
        computed.iter().zip(divisors).all(|(a, b)| near(a, b)).then_some(rule)
    })
}

fn linear_attention(spec: &Spec, shape: &LinearAttention) -> Map<String, Value> {
    let name = |layer: usize| match spec.mixer(layer) {
        MixerKind::Attention => "full_attention",
        MixerKind::Linear => "linear_attention",
    };
    let layers: Vec<&str> = (0..spec.layers).map(name).collect();
    let fields = json!({
        "mtp_num_hidden_layers": spec.mtp_layers,
        "layer_types": layers,
        "linear_conv_kernel_dim": shape.conv_kernel,
        "linear_key_head_dim": shape.key_dim,
        "linear_value_head_dim": shape.value_dim,
        "linear_num_key_heads": shape.key_heads,
        "linear_num_value_heads": shape.value_heads,
        "attention_bias": false,
        "attn_output_gate": true,
        "mamba_ssm_dtype": "float32",
    });
    match fields {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

/// `generation_config.json`.
pub(super) fn generation(defaults: &GenerationDefaults) -> Value {
    let mut config = Map::new();
    let mut put = |key: &str, value: Option<Value>| {
        value.map(|value| config.insert(key.into(), value));
    };
    put("bos_token_id", defaults.bos.map(Into::into));
    put("eos_token_id", ids(&defaults.eos));
    // `transformers` refuses to sample at temperature 0, and has another name for taking the most likely token.
    put("do_sample", defaults.temperature.map(|temperature| (temperature > 0.0).into()));
    put("temperature", defaults.temperature.filter(|&t| t > 0.0).map(shortest));
    put("top_p", defaults.top_p.map(shortest));
    put("top_k", defaults.top_k.map(Into::into));
    put("repetition_penalty", defaults.repetition_penalty.map(shortest));
    config.into()
}
