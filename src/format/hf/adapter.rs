//! The adapter that changes drafts (`linear_spec_lora`): low-rank matrices of the output projections, as
//! PEFT writes them.

use super::{find, float, json};
use crate::format::index::{DType, File, TensorIndex};
use crate::format::numbers::NumberCheck;
use crate::format::{Linear, LoadError, LoadErrorKind as Kind, safetensors};
use crate::matrix::{FloatMatrix, FloatType, Matrix};
use bytes::Bytes;
use serde::Deserialize;

/// Name of the weights' file.
pub(super) const WEIGHTS: &str = "adapter_model.safetensors";
const CONFIG: &str = "adapter_config.json";
/// Prefix of PEFT's tensor names.
const PREFIX: &str = "base_model.model.";

/// The relevant fields of `adapter_config.json`.
#[derive(Deserialize)]
struct AdapterConfig {
    r: usize,
    lora_alpha: f64,
    #[serde(default)]
    use_rslora: bool,
    #[serde(default)]
    use_dora: bool,
    #[serde(default)]
    fan_in_fan_out: bool,
    #[serde(default)]
    bias: Option<String>,
}

/// The low-rank matrices of a model's output projections.
pub(super) struct DraftAdapter {
    index: TensorIndex,
    file: String,
    /// Number of outputs of each first matrix.
    pub(super) rank: usize,
    /// Factor of the products.
    scale: f32,
}

impl DraftAdapter {
    /// Reads the adapter; `None` without its weights.
    pub(super) fn read(files: &[File]) -> Result<Option<Self>, LoadError> {
        let Some(weights) = find(files, WEIGHTS) else { return Ok(None) };
        let Some(config) = find(files, CONFIG) else {
            return Err(LoadError::new(Kind::Missing, &weights.name, CONFIG, "no such file")
                .advice("it has the scale of the adapter's weights"));
        };
        let found: AdapterConfig = json::parse(config)?;
        let refuse = |want: &str, found: String| {
            Err(LoadError::new(Kind::UnsupportedFeature, &config.name, want, found))
        };
        let bias = found.bias.as_deref().unwrap_or("none");
        if bias != "none" {
            return refuse("`bias` none", format!("`{bias}`"));
        }
        for (name, set) in [
            ("use_rslora", found.use_rslora),
            ("use_dora", found.use_dora),
            ("fan_in_fan_out", found.fan_in_fan_out),
        ] {
            if set {
                return refuse(&format!("`{name}` false"), "true".into());
            }
        }
        let scale = (found.lora_alpha / found.r as f64) as f32;
        if !(scale.is_finite() && scale > 0.0) {
            let found = format!("r {}, lora_alpha {}", found.r, found.lora_alpha);
            return Err(LoadError::new(
                Kind::Value,
                &config.name,
                "`r` and `lora_alpha` above 0",
                found,
            ));
        }
        let index = safetensors::parse(weights)?.index;
        Ok(Some(Self { index, file: weights.name.clone(), rank: found.r, scale }))
    }

    /// Takes the matrix of this name. The second one of a layer is multiplied by the scale.
    pub(super) fn take(
        &mut self,
        name: &str,
        (rows, cols): (usize, usize),
        scaled: bool,
        numbers: &mut NumberCheck<'_, '_, '_>,
    ) -> Result<Linear, LoadError> {
        let t = self.index.need(&format!("{PREFIX}{name}"), &self.file)?;
        let DType::Float(dtype) = t.dtype else {
            return Err(t.error(Kind::UnsupportedType, "F32, F16 or BF16", t.dtype.name()));
        };
        let mut matrix = float(&t, rows, cols, dtype)?;
        if scaled {
            let values = t.floats(&[rows, cols])?;
            let scaled = values.iter().flat_map(|value| (value * self.scale).to_le_bytes());
            let bytes = Bytes::from(scaled.collect::<Vec<u8>>());
            matrix = FloatMatrix::new(rows, cols, FloatType::F32, bytes)
                .map_err(|e| LoadError::layout(&t.file, &t.name, &e))?;
        }
        Ok(Linear::new(Matrix::Float(numbers.matrix(&t, &matrix)?), None))
    }

    /// Refuses tensors that no layer has taken.
    pub(super) fn expect_empty(&self) -> Result<(), LoadError> {
        self.index.expect_empty(|_| false)
    }
}
