//! Builds a model from a GGUF file: metadata keys become the [`Spec`], `blk.N.*` the layers.

use super::hadamard::Rotations;
use super::keys::{ACTIVATIONS, ARCHITECTURE, DLM, DRAFTERS, TRAINING, mtp_blocks};
use super::meta::Metadata;
use super::parse::{Tensors, parse};
use super::spec::spec;
use super::split::{self, Part};
use super::types::{BlockCodec, GgmlType};
use super::vocab;
use crate::format::codec::{RowOrder, decode_i2s};
use crate::format::index::{DType, File, Tensor, TensorIndex};
use crate::format::numbers::NumberCheck;
use crate::format::recipe::{
    LayerRole, MtpRole, TensorNames, TensorRole, TensorSource, assemble, assemble_mtp,
};
use crate::format::{
    Architecture, Checkpoint, DlmConfig, Linear, LoadError, LoadErrorKind as Kind, LoadOptions,
    MixerKind, MtpWeights, Rotation, Spec, families,
};
use crate::matrix::{FloatMatrix, FloatType, Matrix, Scales};
use bytes::Bytes;
use serde::de::DeserializeOwned;
use std::sync::Arc;

/// Reads a GGUF file, or the parts of a split one. Vision encoders (`mmproj`) next to it are left out.
pub(in crate::format) fn load(
    files: Vec<File>,
    options: LoadOptions,
    numbers: &mut NumberCheck<'_, '_, '_>,
) -> Result<Checkpoint, LoadError> {
    let heads: Vec<_> = files.iter().map(|file| file.bytes.first()).collect();
    let names: Vec<_> = files.iter().map(|file| file.name.clone()).collect();
    let mut parts = Vec::new();
    for ((file, head), name) in files.into_iter().zip(&heads).zip(&names) {
        let (meta, tensors) = parse(name, head, file.bytes)?;
        parts.push(Part { meta, tensors });
    }
    let (meta, Tensors { mut index, mtp }) = split::join(parts)?;
    let name = meta.file;
    let stored_types = index.types();
    narrow(&mut index)?;
    if let Some(arch) = meta.text(ARCHITECTURE)?.filter(|arch| DRAFTERS.contains(arch)) {
        let want = format!("`{ARCHITECTURE}` of a model");
        let found = format!("`{arch}`, a drafter");
        return Err(LoadError::new(Kind::UnsupportedArchitecture, name, want, found)
            .advice(families::DRAFTER));
    }
    let mut spec = spec(&meta, &mut index)?;
    spec.check(name)?;
    let mut rotations = Rotations::read(&meta, &mut spec, &index)?;
    for layer in (0..spec.layers).filter(|&l| spec.mixer(l) == MixerKind::Attention) {
        split_qkv(&spec, &|role| TensorRole::Layer(layer, role), &mut index, &mut rotations)?;
    }
    let mut source = GgufSource {
        file: name,
        index,
        names: TensorNames::gguf(spec.architecture),
        order: RowOrder::of_gguf(&spec),
        architecture: spec.architecture,
        int8: int8_activations(&meta)?,
        rotations,
        numbers,
    };
    let mut weights = assemble(&spec, &mut source)?;
    source.index.expect_empty(|_| false)?;
    let mtp = match mtp_blocks(&meta)?.filter(|_| options.mtp) {
        Some(blocks) => mtp.and_then(|index| source.mtp(&spec, blocks, index)).map(Some),
        None => Ok(None),
    };
    let (mtp, mtp_fault) = match mtp {
        Ok(mtp) => (mtp, None),
        Err(fault) => (None, Some(fault)),
    };
    (spec.mtp_layers, weights.mtp) = (usize::from(mtp.is_some()), mtp.map(Box::new));
    let text = vocab::text_parts(&meta)?;
    let generation = vocab::generation(&meta, &spec)?;
    let dlm: Option<DlmConfig> = own(&meta, DLM, "block-diffusion parameters")?;
    if let Some(dlm) = &dlm {
        dlm.check(meta.file, spec.vocab_size)?;
    }
    let training = own(&meta, TRAINING, "a statement about training")?;
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
        notes: Vec::new(),
    })
}

/// Reads whether the model was trained with 8-bit activations, which only files of this project state.
fn int8_activations(meta: &Metadata<'_>) -> Result<Option<bool>, LoadError> {
    match meta.text(ACTIVATIONS)? {
        None => Ok(None),
        Some("int8") => Ok(Some(true)),
        Some("int16") => Ok(Some(false)),
        Some(other) => {
            let want = format!("`{ACTIVATIONS}` to be int8 or int16");
            Err(LoadError::new(Kind::Value, meta.file, want, format!("`{other}`")))
        }
    }
}

/// Reads what only files of this project have, as JSON.
fn own<T: DeserializeOwned>(
    meta: &Metadata<'_>,
    key: &str,
    what: &str,
) -> Result<Option<T>, LoadError> {
    let Some(json) = meta.text(key)? else { return Ok(None) };
    serde_json::from_str(json).map(Some).map_err(|e| {
        let want = format!("`{key}` to be {what} in JSON");
        LoadError::new(Kind::Value, meta.file, want, e.to_string())
    })
}

/// Converts 64-bit floats, which no kernel multiplies, to f32.
pub(super) fn narrow(index: &mut TensorIndex) -> Result<(), LoadError> {
    let is_wide = |t: &&Tensor| t.dtype == DType::Block(GgmlType::F64);
    let wide: Vec<String> = index.iter().filter(is_wide).map(|t| t.name.clone()).collect();
    for t in wide.iter().filter_map(|name| index.take(name)).collect::<Vec<_>>() {
        let narrow = |bytes: &[u8; 8]| (f64::from_le_bytes(*bytes) as f32).to_le_bytes();
        let bytes: Vec<u8> = t.bytes.as_chunks().0.iter().flat_map(narrow).collect();
        index.insert(Tensor { dtype: DType::Float(FloatType::F32), bytes: bytes.into(), ..t })?;
    }
    Ok(())
}

/// Splits `attn_qkv` of a layer that attends: some writers store q, k and v as one matrix.
fn split_qkv(
    spec: &Spec,
    at: &dyn Fn(LayerRole) -> TensorRole,
    index: &mut TensorIndex,
    rotations: &mut Rotations,
) -> Result<(), LoadError> {
    let kv = spec.kv_heads * spec.head_dim;
    let parts = [(LayerRole::Q, spec.query_outputs()), (LayerRole::K, kv), (LayerRole::V, kv)];
    let name = |role| TensorNames::GGUF.weight(at(role));
    let Some(t) = index.take(&name(LayerRole::Qkv)) else { return Ok(()) };
    let rows = parts.iter().map(|part| part.1).sum();
    t.expect_shape(&[rows, spec.hidden_size])?;
    if t.dtype == DType::Block(GgmlType::I2S) {
        let want = "a type whose rows stand alone";
        return Err(t.error(Kind::UnsupportedType, want, t.dtype.name()));
    }
    let (row_bytes, mut at) = (t.bytes.len() / rows, 0);
    for (role, rows) in parts {
        let bytes = t.bytes.slice(at * row_bytes..(at + rows) * row_bytes);
        let (name, shape) = (name(role), vec![rows, spec.hidden_size]);
        rotations.split(&t.name, &name);
        index.insert(Tensor { name, shape, bytes, ..t.clone() })?;
        at += rows;
    }
    Ok(())
}

pub(super) struct GgufSource<'a, 'n, 'l, 'c> {
    pub(super) file: &'a str,
    pub(super) index: TensorIndex,
    pub(super) names: &'static TensorNames,
    /// Order of the rows of q and k.
    pub(super) order: RowOrder,
    pub(super) architecture: Architecture,
    /// True if the file states that the model was trained with 8-bit activations, false if it was not.
    pub(super) int8: Option<bool>,
    pub(super) rotations: Rotations,
    pub(super) numbers: &'a mut NumberCheck<'n, 'l, 'c>,
}

impl TensorSource for GgufSource<'_, '_, '_, '_> {
    fn linear(&mut self, role: TensorRole, rows: usize, cols: usize) -> Result<Linear, LoadError> {
        let name = self.names.name(role);
        let order = match role {
            TensorRole::Layer(_, LayerRole::Q | LayerRole::K) => self.order,
            _ => RowOrder::Same,
        };
        let t = self.index.need(&format!("{name}.weight"), self.file)?;
        t.expect_shape(&[rows, cols])?;
        let mut weight = self.decode(&t, rows, cols, order)?;
        if self.architecture == Architecture::BitNet {
            refuse_unternarized(&t, &weight)?;
        }
        if let Some(scale) = self.index.take(&format!("{name}.scale")) {
            weight = rescale(weight, scale.vector(1)?[0], &scale)?;
        }
        let weight = self.numbers.scaled(weight);
        let bias = match self.index.take(&format!("{name}.bias")) {
            None => None,
            Some(t) => {
                let stored = self.numbers.vector(&t, rows)?;
                Some((0..rows).map(|r| stored[order.source(r)]).collect())
            }
        };
        let rotation = self.rotations.of(&t.name, cols);
        let plain = rotation.is_none() && self.architecture != Architecture::Qwen35;
        let linear = if plain && self.trained_with_int8(t.dtype) {
            Linear::bitnet(weight, bias)
        } else {
            Linear::new(weight, bias)
        };
        Ok(Linear { rotation, ..linear })
    }

    fn embed(
        &mut self,
        rows: usize,
        cols: usize,
    ) -> Result<(Matrix, Option<Arc<Rotation>>), LoadError> {
        let t = self.index.need(&self.names.weight(TensorRole::Embed), self.file)?;
        t.expect_shape(&[rows, cols])?;
        Ok((self.decode(&t, rows, cols, RowOrder::Same)?, self.rotations.of(&t.name, cols)))
    }

    fn floats(&mut self, role: TensorRole, shape: &[usize]) -> Result<Vec<f32>, LoadError> {
        let t = self.index.need(&self.names.weight(role), self.file)?;
        self.numbers.floats(&t, shape)
    }

    fn has_head(&self) -> bool {
        self.has(TensorRole::Head)
    }

    fn shape(&self, role: TensorRole) -> Option<&[usize]> {
        Some(&self.index.get(&self.names.weight(role))?.shape)
    }
}

impl GgufSource<'_, '_, '_, '_> {
    /// Returns true if a matrix belongs to a model that was trained with 8-bit activations: by the file's
    /// own statement, its architecture, or a type that only programs for BitNet write. All blocks of a
    /// matrix may have the same scale in other models too.
    fn trained_with_int8(&self, dtype: DType) -> bool {
        let of_bitnet =
            matches!(dtype, DType::Block(GgmlType::I2S | GgmlType::Iq1Bn | GgmlType::Iq2Bn));
        self.int8.unwrap_or(self.architecture == Architecture::BitNet || of_bitnet)
    }

    /// Reads the block that drafts tokens from its tensors.
    fn mtp(
        &mut self,
        spec: &Spec,
        blocks: usize,
        tensors: TensorIndex,
    ) -> Result<MtpWeights, LoadError> {
        if blocks != 1 {
            let want = "one block for multi-token prediction";
            return Err(LoadError::new(
                Kind::UnsupportedFeature,
                self.file,
                want,
                blocks.to_string(),
            ));
        }
        if let Some(name) = tensors.iter().find(|t| self.rotations.drafting.contains(&t.name)) {
            return Err(name.error(
                Kind::UnsupportedFeature,
                "a block for multi-token prediction that is not rotated",
                "it in `prism.hadamard.weight_names`",
            ));
        }
        self.index = tensors;
        let at = |role| TensorRole::Mtp(spec.layers, MtpRole::Layer(role));
        split_qkv(spec, &at, &mut self.index, &mut self.rotations)?;
        let weights = assemble_mtp(spec, self)?;
        self.index.expect_empty(|_| false)?;
        Ok(weights)
    }

    fn decode(
        &mut self,
        t: &Tensor,
        rows: usize,
        cols: usize,
        order: RowOrder,
    ) -> Result<Matrix, LoadError> {
        let layout = |error| LoadError::layout(&t.file, &t.name, &error);
        let matrix = match t.dtype {
            DType::Float(dtype) => {
                let w = float(t, rows, cols, dtype, order).map_err(layout)?;
                return self.numbers.matrix(t, &w).map(Matrix::Float);
            }
            DType::Block(kind) => match kind.codec() {
                BlockCodec::Int8(b) => b.decode(&t.bytes, rows, cols, order),
                BlockCodec::Ternary(b) => {
                    b.decode(&t.bytes, rows, cols, order).map(Matrix::Ternary)
                }
                BlockCodec::I2S => {
                    refuse_code_3(t)?;
                    decode_i2s(&t.bytes, rows, cols, order).map(Matrix::Ternary)
                }
                BlockCodec::RowScaled(b) => {
                    b.decode(&t.bytes, rows, cols, order).map(Matrix::Ternary)
                }
                BlockCodec::Rounded(b) => b.decode(&t.bytes, rows, cols, order).map(Matrix::Float),
                BlockCodec::F64 => return Err(t.error(Kind::UnsupportedType, "F32", "F64")),
            },
            DType::U8 | DType::I8 | DType::I64 | DType::Bool => {
                return Err(t.error(Kind::UnsupportedType, "a matrix type", t.dtype.name()));
            }
        };
        matrix.map_err(layout)
    }
}

/// Refuses BitNet master weights that were quantized directly to TQ1_0 or TQ2_0. That scales by the
/// largest weight of each block, unlike BitNet's training, and so gives a useless model.
fn refuse_unternarized(t: &Tensor, weight: &Matrix) -> Result<(), LoadError> {
    let coarse = matches!(t.dtype, DType::Block(GgmlType::Tq1_0 | GgmlType::Tq2_0));
    match weight {
        Matrix::Ternary(m) if coarse && matches!(m.scales(), Scales::Groups(_)) => Err(t
            .error(
                Kind::Value,
                "one scale for the matrix, as in BitNet's training",
                "one per block",
            )
            .advice(
                "the file was made from weights that were not ternarized first; \
                 convert the original weights",
            )),
        _ => Ok(()),
    }
}

/// Refuses the fourth code of I2_S: some readers take it as 0, others as +2.
fn refuse_code_3(t: &Tensor) -> Result<(), LoadError> {
    let codes = &t.bytes[..t.bytes.len() - crate::format::codec::I2S_TRAILER];
    match codes.iter().position(|b| b & b >> 1 & 0x55 != 0) {
        None => Ok(()),
        Some(at) => Err(t.error(
            Kind::Malformed,
            format!("{} codes from 0 to 2", GgmlType::I2S.name()),
            format!("the code 3 in byte {at}"),
        )),
    }
}

/// A float matrix: a view where the rows keep their order, otherwise a copy.
fn float(
    t: &Tensor,
    rows: usize,
    cols: usize,
    dtype: FloatType,
    order: RowOrder,
) -> Result<FloatMatrix, crate::matrix::LayoutError> {
    if order == RowOrder::Same {
        return FloatMatrix::new(rows, cols, dtype, t.bytes.clone());
    }
    let n = cols * dtype.size();
    let mut data = Vec::with_capacity(t.bytes.len());
    for row in 0..rows {
        let at = order.source(row) * n;
        data.extend_from_slice(&t.bytes[at..at + n]);
    }
    FloatMatrix::new(rows, cols, dtype, Bytes::from(data))
}

/// Multiplies the scale of a ternary matrix by a factor, which some converters store in a separate
/// tensor.
fn rescale(weight: Matrix, factor: f32, t: &Tensor) -> Result<Matrix, LoadError> {
    let Matrix::Ternary(m) = &weight else {
        return Err(t.error(
            Kind::UnsupportedFeature,
            "a factor next to ternary matrices only",
            weight.kind(),
        ));
    };
    let Scales::Tensor(s) = m.scales() else {
        return Err(t.error(Kind::UnsupportedFeature, "one scale for the matrix", weight.kind()));
    };
    m.with_scale(s * factor)
        .map(Matrix::Ternary)
        .map_err(|e| LoadError::layout(&t.file, &t.name, &e))
}
