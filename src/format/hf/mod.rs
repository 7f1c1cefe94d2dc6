//! A Hugging Face directory: `config.json`, safetensors in one file or in shards, tokenizer and
//! generation files.

mod adapter;
mod config;
mod drafter;
mod fields;
mod json;
mod nemotron;
mod qwen35;
mod rope;
mod sentencepiece;
mod speculators;
mod text;
mod write;

pub(super) use drafter::load_drafter;
pub use write::HfDirectory;

use super::codec::{RowOrder, decode_hf_packed, quantize_absmean};
use super::index::{DType, File, Tensor, TensorIndex};
use super::numbers::NumberCheck;
use super::recipe::{LayerRole, TensorNames, TensorRole, TensorSource, assemble, assemble_mtp};
use super::{
    Architecture, Checkpoint, Linear, LoadError, LoadErrorKind as Kind, LoadOptions, MtpWeights,
    Rotation, Spec, safetensors,
};
use crate::matrix::{FloatMatrix, FloatType, Matrix};
use adapter::DraftAdapter;
use config::Quantization;
use fields::Config;
use std::collections::BTreeSet;
use std::sync::Arc;

const CONFIG: &str = "config.json";
const WEIGHTS: &str = "model.safetensors";
const SHARDS: &str = "model.safetensors.index.json";
/// Largest number of file names in a message.
const SHOWN: usize = 12;

/// Files of a model, for messages.
const WANTED: &str = "config.json with model.safetensors (or model.safetensors.index.json and its \
                      shards), one .gguf file, or one packed file";

/// Finds a file by its name without folders.
fn find<'a>(files: &'a [File], name: &str) -> Option<&'a File> {
    files.iter().find(|f| f.base() == name)
}

/// Lists file names for a message.
fn list(files: &[File]) -> String {
    let names: Vec<&str> = files.iter().take(SHOWN).map(File::base).collect();
    match files.len() {
        0 => "no files".into(),
        n if n > SHOWN => format!("{} and {} more", names.join(", "), n - SHOWN),
        _ => names.join(", "),
    }
}

/// Reads the files of a directory.
pub(super) fn load(
    files: Vec<File>,
    options: LoadOptions,
    numbers: &mut NumberCheck<'_, '_, '_>,
) -> Result<Checkpoint, LoadError> {
    let Some(config_file) = find(&files, CONFIG) else {
        return Err(LoadError::new(Kind::NotAModel, "model", WANTED, list(&files)));
    };
    let name = config_file.name.as_str();
    let config = json::parse::<Config>(config_file)?.text_model(name)?;
    let mut spec = config.spec(name)?;
    spec.check(name)?;
    let dlm = match find(&files, "dlm_config.json") {
        Some(file) => Some((&file.name, json::parse(file)?)),
        None => config.dlm().map(|dlm| (&config_file.name, dlm)),
    };
    if let Some((file, dlm)) = &dlm {
        dlm.check(file, spec.vocab_size)?;
    }
    let dlm = dlm.map(|(_, dlm)| dlm);
    let (index, weights_file) = tensors(&files)?;
    let adapter = if config.nemotron() { DraftAdapter::read(&files)? } else { None };
    let (quantization, stored_types) = (config.quantization(name)?, index.types());
    let (text, generation) = (text::text_parts(&files)?, text::generation(&files, &config)?);
    // Now each tensor holds its own bytes, and taking a tensor can free them.
    drop(files);
    let wrapped = index.get(&TensorNames::HF_WRAPPED.weight(TensorRole::Embed)).is_some();
    let mut source = HfSource {
        file: &weights_file,
        index,
        names: match (wrapped, config.one_bit()) {
            (true, _) => &TensorNames::HF_WRAPPED,
            (false, true) => &TensorNames::HF_ONE_BIT,
            (false, false) => TensorNames::hf(spec.architecture),
        },
        architecture: spec.architecture,
        config: &config,
        quantization,
        adapter,
        numbers,
    };
    if config.has_head_norms() {
        source.expect(TensorRole::Layer(0, LayerRole::QNorm))?;
    }
    let mut weights = assemble(&spec, &mut source)?;
    let hybrid = spec.architecture == Architecture::Qwen35;
    let (mtp, mtp_fault) = match source.mtp(&spec, options.mtp && hybrid) {
        Ok(mtp) => (mtp, None),
        Err(fault) => (None, Some(fault)),
    };
    (spec.mtp_layers, weights.mtp) = (usize::from(mtp.is_some()), mtp.map(Box::new));
    source.index.expect_empty(|name| {
        name.ends_with(".rotary_emb.inv_freq")
            || (hybrid && qwen35::ignored(name))
            || (config.nemotron() && nemotron::ignored(name))
            || (weights.head.is_none() && name == source.names.weight(TensorRole::Head))
    })?;
    source.adapter.as_ref().map_or(Ok(()), DraftAdapter::expect_empty)?;
    let training = config.training.clone();
    Ok(Checkpoint {
        spec,
        weights,
        text,
        generation,
        dlm,
        training,
        flushed: 0,
        mtp_fault,
        stored_types,
        notes: config.notes(),
    })
}

/// Reads all tensors of the directory. Also returns the file to name when one is missing.
fn tensors(files: &[File]) -> Result<(TensorIndex, String), LoadError> {
    let mut index = TensorIndex::default();
    let mut add = |file: &File| -> Result<(), LoadError> {
        let mut contents = safetensors::parse(file)?.index;
        for tensor in contents.drain() {
            index.insert(tensor)?;
        }
        Ok(())
    };
    if let Some(shards) = find(files, SHARDS) {
        let json::ShardIndex { weight_map } = json::parse(shards)?;
        let names: BTreeSet<&str> = weight_map.values().map(String::as_str).collect();
        for name in names {
            let file = find(files, name).ok_or_else(|| {
                LoadError::new(
                    Kind::Missing,
                    &shards.name,
                    format!("the shard {name}"),
                    list(files),
                )
                .advice("the download may be incomplete")
            })?;
            add(file)?;
        }
        return match weight_map.iter().find(|(tensor, _)| index.get(tensor).is_none()) {
            None => Ok((index, shards.name.clone())),
            Some((tensor, shard)) => {
                Err(LoadError::new(Kind::Missing, shard, "it in the file", "other tensors")
                    .tensor(tensor))
            }
        };
    }
    // Other forms of the same weights may lie next to `WEIGHTS`. Without it, all files are read.
    if let Some(file) = find(files, WEIGHTS) {
        add(file)?;
        return Ok((index, file.name.clone()));
    }
    let is_weights = |f: &&File| f.base().ends_with(".safetensors") && f.base() != adapter::WEIGHTS;
    let weights = || files.iter().filter(is_weights);
    let Some(first) = weights().next() else {
        let pickle = files.iter().any(|file| file.base().ends_with(".bin"));
        return Err(LoadError::new(Kind::NotAModel, "model", WANTED, list(files)).advice(
            if pickle {
                "pickles (.bin) are not read; use the GGUF file of the same model, or its safetensors"
            } else {
                "the directory has no weights"
            },
        ));
    };
    for file in weights() {
        add(file)?;
    }
    Ok((index, first.name.clone()))
}

struct HfSource<'a, 'n, 'l, 'c> {
    /// Name of the weights' file, or of the list of shards.
    file: &'a str,
    index: TensorIndex,
    names: &'static TensorNames,
    architecture: Architecture,
    config: &'a Config,
    quantization: Option<Quantization>,
    adapter: Option<DraftAdapter>,
    numbers: &'a mut NumberCheck<'n, 'l, 'c>,
}

impl HfSource<'_, '_, '_, '_> {
    /// Reads the block that drafts tokens, if it is `wanted` and the files have one.
    fn mtp(&mut self, spec: &Spec, wanted: bool) -> Result<Option<MtpWeights>, LoadError> {
        if !wanted || !self.index.iter().any(|t| qwen35::drafts(&t.name)) {
            return Ok(None);
        }
        self.config.check_mtp(CONFIG)?;
        let weights = assemble_mtp(spec, self)?;
        self.index.expect_empty(|name| !qwen35::drafts(name))?;
        Ok(Some(weights))
    }

    /// Refuses files without the weights of this role.
    fn expect(&self, role: TensorRole) -> Result<(), LoadError> {
        let name = self.names.weight(role);
        match self.index.get(&name) {
            Some(_) => Ok(()),
            None => Err(self.index.missing(&name, self.file)),
        }
    }

    /// Decodes `weight` with its `weight_scale`.
    fn packed(
        &mut self,
        name: &str,
        t: &Tensor,
        rows: usize,
        cols: usize,
    ) -> Result<Matrix, LoadError> {
        t.expect_shape(&[rows / 4, cols])?;
        if !rows.is_multiple_of(4) {
            return Err(t.error(Kind::Shape, "a multiple of four rows", format!("{rows} rows")));
        }
        let scale = self.index.need(&format!("{name}.weight_scale"), self.file)?;
        let value = match scale.shape[..] {
            [] => scale.with_shape(vec![1]).vector(1)?[0],
            _ => scale.vector(1)?[0],
        };
        let multiply = self.quantization.as_ref().is_some_and(|q| q.multiply);
        let value = if multiply { value } else { 1.0 / value };
        decode_hf_packed(&t.bytes, rows, cols, value)
            .map(|w| self.numbers.scaled(Matrix::Ternary(w)))
            .map_err(|e| LoadError::layout(&scale.file, &scale.name, &e))
    }

    fn bias(
        &mut self,
        role: TensorRole,
        name: &str,
        rows: usize,
    ) -> Result<Option<Vec<f32>>, LoadError> {
        let name = format!("{name}.bias");
        let wanted = match role {
            TensorRole::Layer(_, role) => self.config.has_bias(role),
            TensorRole::Draft(_) => self.index.get(&name).is_some(),
            _ => false,
        };
        match (wanted, self.index.take(&name)) {
            (true, Some(t)) => self.numbers.vector(&t, rows).map(Some),
            (true, None) => self.index.need(&name, self.file).map(|_| None),
            (false, None) => Ok(None),
            (false, Some(t)) => {
                Err(t.error(Kind::Unexpected, "no bias, as the configuration says", "a bias"))
            }
        }
    }
}

fn float(t: &Tensor, rows: usize, cols: usize, dtype: FloatType) -> Result<FloatMatrix, LoadError> {
    t.expect_shape(&[rows, cols])?;
    FloatMatrix::new(rows, cols, dtype, t.bytes.clone())
        .map_err(|e| LoadError::layout(&t.file, &t.name, &e))
}

impl TensorSource for HfSource<'_, '_, '_, '_> {
    fn linear(&mut self, role: TensorRole, rows: usize, cols: usize) -> Result<Linear, LoadError> {
        let name = self.names.name(role);
        if let (Some(adapter), TensorRole::Layer(_, LayerRole::DraftDown | LayerRole::DraftUp)) =
            (&mut self.adapter, role)
        {
            let up = matches!(role, TensorRole::Layer(_, LayerRole::DraftUp));
            return adapter.take(&format!("{name}.weight"), (rows, cols), up, self.numbers);
        }
        let t = self.index.need(&format!("{name}.weight"), self.file)?;
        let in_layer = matches!(role, TensorRole::Layer(..));
        let covered = self.quantization.as_ref().is_some_and(|q| q.covers(&name));
        let quantized = in_layer && (covered || t.dtype == DType::U8);
        let weight = match t.dtype {
            DType::U8 if in_layer => self.packed(&name, &t, rows, cols)?,
            DType::Float(dtype) => {
                let master = float(&t, rows, cols, dtype)?;
                if quantized {
                    // The mean shows whether a weight is not finite.
                    let error = |e| match master.first_not_finite() {
                        Some(number) => t.not_finite(&number),
                        None => LoadError::layout(&t.file, &t.name, &e),
                    };
                    quantize_absmean(&master, RowOrder::Same).map(Matrix::Ternary).map_err(error)?
                } else {
                    self.numbers.matrix(&t, &master).map(Matrix::Float)?
                }
            }
            other => {
                let want =
                    if in_layer { "F32, F16, BF16 or packed U8" } else { "F32, F16 or BF16" };
                return Err(t.error(Kind::UnsupportedType, want, other.name()));
            }
        };
        let bias = self.bias(role, &name, rows)?;
        // The layers that a configuration quantizes round their inputs to 8 bits too.
        Ok(if quantized { Linear::bitnet(weight, bias) } else { Linear::new(weight, bias) })
    }

    fn embed(
        &mut self,
        rows: usize,
        cols: usize,
    ) -> Result<(Matrix, Option<Arc<Rotation>>), LoadError> {
        let t = self.index.need(&self.names.weight(TensorRole::Embed), self.file)?;
        match t.dtype {
            DType::Float(dtype) => {
                let w = float(&t, rows, cols, dtype)?;
                Ok((self.numbers.matrix(&t, &w).map(Matrix::Float)?, None))
            }
            other => Err(t.error(Kind::UnsupportedType, "F32, F16 or BF16", other.name())),
        }
    }

    fn floats(&mut self, role: TensorRole, shape: &[usize]) -> Result<Vec<f32>, LoadError> {
        let t = self.index.need(&self.names.weight(role), self.file)?;
        if self.architecture != Architecture::Qwen35 {
            return self.numbers.floats(&t, shape);
        }
        let mut values = self.numbers.floats(&t, &qwen35::stored_shape(role, shape))?;
        values.iter_mut().for_each(qwen35::from_stored(role));
        Ok(values)
    }

    fn has_head(&self) -> bool {
        let there = self.index.get(&self.names.weight(TensorRole::Head)).is_some();
        self.config.has_head(there)
    }

    fn shape(&self, role: TensorRole) -> Option<&[usize]> {
        Some(&self.index.get(&self.names.weight(role))?.shape)
    }

    fn draft_rank(&self) -> Option<usize> {
        self.adapter.as_ref().map(|adapter| adapter.rank)
    }
}

impl Config {
    /// Returns true if linear layers of this role have a bias in this family and configuration.
    fn has_bias(&self, role: LayerRole) -> bool {
        let (family, attention) = (self.qwen2(), self.attention_bias.unwrap_or(false));
        match role {
            LayerRole::Q | LayerRole::K | LayerRole::V => family || attention,
            LayerRole::O => !family && attention,
            LayerRole::Gate | LayerRole::Up | LayerRole::Down => self.mlp_bias.unwrap_or(false),
            _ => false,
        }
    }
}
