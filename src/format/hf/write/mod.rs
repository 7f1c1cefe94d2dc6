//! Writer of directories as `transformers` reads them.

mod config;
mod weights;

use crate::format::{
    Checkpoint, ExportError, LayerWeights, RopeScaling, Spec, TextParts, ValueOrder,
};
use serde_json::{Map, Value, json};
use std::io::Write;
use weights::WeightsFile;

/// A Hugging Face directory of a model. It refers to the model's weights and encodes them while they are
/// written.
///
/// Ternary matrices with one scale for 8-bit activations are packed as those of BitNet
/// (`autobitlinear`); all other matrices become floats. Ternary ones stay exact, int8 is rounded to f16.
pub struct HfDirectory<'a> {
    files: Vec<(&'static str, Vec<u8>)>,
    weights: WeightsFile<'a>,
}

impl<'a> HfDirectory<'a> {
    /// Name of the file that [`Self::write_weights`] writes.
    pub const WEIGHTS: &'static str = super::WEIGHTS;

    /// Plans a directory. The value heads of linear attention must be in Hugging Face's order
    /// ([`Checkpoint::with_value_order`]).
    ///
    /// # Errors
    /// When a directory cannot hold the model; the error names the part.
    pub fn new(
        checkpoint: &'a Checkpoint,
        tokenizer_json: Option<&str>,
    ) -> Result<Self, ExportError> {
        check(&checkpoint.spec)?;
        refuse_adapter(checkpoint)?;
        let weights = WeightsFile::new(checkpoint)?;
        let mut files = vec![
            (super::CONFIG, pretty(&config::config(checkpoint, &weights)?)),
            ("generation_config.json", pretty(&config::generation(&checkpoint.generation))),
        ];
        if let Some(dlm) = &checkpoint.dlm {
            files.push(("dlm_config.json", pretty(&json!(dlm))));
        }
        if let Some(text) = tokenizer_json {
            files.push(("tokenizer.json", text.as_bytes().to_vec()));
        }
        let (tokenizer_config, template) = tokenizer_config(&checkpoint.text);
        files.push(("tokenizer_config.json", pretty(&tokenizer_config)));
        files.extend(template.map(|text| ("chat_template.jinja", text.as_bytes().to_vec())));
        Ok(Self { files, weights })
    }

    /// Names and contents of all files but the weights.
    #[must_use]
    pub fn files(&self) -> &[(&'static str, Vec<u8>)] {
        &self.files
    }

    /// Number of bytes of the weights' file.
    #[must_use]
    pub fn weights_bytes(&self) -> u64 {
        self.weights.bytes()
    }

    /// Writes the weights' file, a tensor at a time.
    ///
    /// # Errors
    /// When writing fails, or a weight is too large for f16.
    pub fn write_weights(&self, out: &mut dyn Write) -> Result<(), ExportError> {
        self.weights.write(out)
    }
}

fn check(spec: &Spec) -> Result<(), ExportError> {
    let tiled = spec
        .linear_attention
        .as_ref()
        .is_some_and(|shape| shape.values_per_key() > 1 && shape.value_order == ValueOrder::Tiled);
    if tiled {
        return Err(ExportError::unsupported(
            "linear attention",
            "value heads in grouped order",
            "tiled order",
            "convert them with `Checkpoint::with_value_order`",
        ));
    }
    match &spec.rope.scaling {
        Some(RopeScaling::Divisors(_)) if config::llama3(spec).is_none() => {
            Err(ExportError::unsupported(
                "RoPE scaling",
                "a rule that config.json has",
                "divisors that are not Llama 3's",
                "only GGUF and packed files hold them",
            ))
        }
        _ => Ok(()),
    }
}

/// Refuses an adapter for drafts, whose directory this writer does not make.
fn refuse_adapter(checkpoint: &Checkpoint) -> Result<(), ExportError> {
    let attention =
        |layer: &LayerWeights| layer.mixer.attention()?.draft_adapter.as_ref().map(|_| ());
    match checkpoint.weights.layers.iter().find_map(attention) {
        None => Ok(()),
        Some(()) => Err(ExportError::unsupported(
            "adapter",
            "weights without an adapter for drafts",
            "`linear_spec_lora`",
            "write a packed file, or convert a directory without that folder",
        )),
    }
}

/// `tokenizer_config.json`, and the template where it has a file of its own.
fn tokenizer_config(text: &TextParts) -> (Value, Option<&str>) {
    let mut config = Map::new();
    config.insert("tokenizer_class".into(), "PreTrainedTokenizerFast".into());
    config.insert("clean_up_tokenization_spaces".into(), false.into());
    config.extend(text.special.iter().map(|(name, token)| (name.clone(), token.clone().into())));
    let template = text.chat_template.as_deref();
    let Some(tools) = &text.tool_template else { return (config.into(), template) };
    let named = [("default", template), ("tool_use", Some(tools.as_str()))];
    let named = named.into_iter().filter_map(|(name, text)| Some((name, text?)));
    let all = named.map(|(name, text)| json!({"name": name, "template": text})).collect();
    config.insert("chat_template".into(), Value::Array(all));
    (config.into(), None)
}

fn pretty(value: &Value) -> Vec<u8> {
    let mut text = serde_json::to_vec_pretty(value).expect("a value is JSON");
    text.push(b'\n');
    text
}
