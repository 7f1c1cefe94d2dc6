//! Reads a packed file into a checkpoint, without copying a matrix.

use super::{
    FORMAT, MTP, MatrixEntry, MatrixKind, PADDING, READABLE_VERSIONS, RotationEntry, TOKENIZER,
    signs_name,
};
use crate::format::index::{DType, Tensor, TensorIndex};
use crate::format::numbers::NumberCheck;
use crate::format::recipe::{
    LayerRole, TensorNames, TensorRole, TensorSource, assemble, assemble_mtp,
};
use crate::format::safetensors::Contents;
use crate::format::{
    Checkpoint, DlmConfig, Linear, LoadError, LoadErrorKind as Kind, LoadOptions, Rotation,
    TextParts, Vocabulary,
};
use crate::matrix::{
    FloatMatrix, GroupScales, Int8Matrix, LayoutError, Matrix, Packing, Scales, SplitMatrix,
    SplitParts, TernaryMatrix,
};
use crate::ternary::one_bit;
use bytes::Bytes;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Returns true for a packed file. No other safetensors file has this format name.
pub(in crate::format) fn recognize(contents: &Contents) -> bool {
    contents.metadata.get("format").is_some_and(|f| f == FORMAT)
}

/// Reads a file whose header was parsed.
pub(in crate::format) fn load(
    name: &str,
    contents: Contents,
    options: LoadOptions,
    numbers: &mut NumberCheck<'_, '_, '_>,
) -> Result<Checkpoint, LoadError> {
    let Contents { mut index, mut metadata } = contents;
    let version = metadata.remove("version").unwrap_or_default();
    if !READABLE_VERSIONS.contains(&version.as_str()) {
        let found = format!("version `{version}`");
        return Err(LoadError::new(
            Kind::UnsupportedFeature,
            name,
            format!("a packed file of version {}", READABLE_VERSIONS.join(" or ")),
            found,
        )
        .advice("convert the original model again"));
    }
    let need = |value: Option<_>, key: &str| {
        value.ok_or_else(|| {
            LoadError::new(Kind::Missing, name, format!("`{key}` in the metadata"), "none")
        })
    };
    let mut spec: crate::format::Spec = need(json(name, &metadata, "spec")?, "spec")?;
    spec.check(name)?;
    let dlm: Option<DlmConfig> = json(name, &metadata, "dlm")?;
    if let Some(dlm) = &dlm {
        dlm.check(name, spec.vocab_size)?;
    }
    let vocabulary = index.take(TOKENIZER).map(|t| Vocabulary::Json(t.bytes));
    let matrices: BTreeMap<String, MatrixEntry> =
        json(name, &metadata, "matrices")?.unwrap_or_default();
    let entries = json(name, &metadata, "rotations")?.unwrap_or_default();
    let rotations = rotations(name, entries, &mut index)?;
    let adapter = TensorNames::PACKED.name(TensorRole::Layer(0, LayerRole::DraftDown));
    let draft_rank = matrices.get(&adapter).map(|entry| entry.rows);
    let mut source = PackedSource { file: name, index, matrices, rotations, draft_rank, numbers };
    let mut weights = assemble(&spec, &mut source)?;
    if options.mtp && spec.mtp_layers > 0 {
        weights.mtp = Some(Box::new(assemble_mtp(&spec, &mut source)?));
    }
    let skipped = spec.mtp_layers > 0 && !options.mtp;
    source.index.expect_empty(|tensor| {
        tensor.starts_with(PADDING) || (skipped && tensor.starts_with(MTP))
    })?;
    spec.mtp_layers = usize::from(weights.mtp.is_some());
    Ok(Checkpoint {
        spec,
        weights,
        text: TextParts {
            vocabulary,
            special: json(name, &metadata, "special_tokens")?.unwrap_or_default(),
            chat_template: metadata.remove("chat_template"),
            tool_template: metadata.remove("tool_template"),
        },
        generation: json(name, &metadata, "generation")?.unwrap_or_default(),
        dlm,
        training: json(name, &metadata, "training")?,
        flushed: 0,
        mtp_fault: None,
        stored_types: BTreeMap::new(),
        notes: Vec::new(),
    })
}

/// Reads the rotations that matrices refer to.
fn rotations(
    file: &str,
    entries: Vec<RotationEntry>,
    index: &mut TensorIndex,
) -> Result<Vec<Arc<Rotation>>, LoadError> {
    let mut rotations = Vec::new();
    for (i, RotationEntry { block, signs }) in entries.into_iter().enumerate() {
        let signs = match signs {
            None => None,
            Some(count) => {
                let tensor = index.need(&signs_name(i), file)?;
                let signs = tensor.vector(count)?;
                if let Some(other) = signs.iter().find(|s| s.abs() != 1.0) {
                    return Err(tensor.error(Kind::Value, "signs of 1 and -1", other.to_string()));
                }
                Some(signs)
            }
        };
        rotations.push(Arc::new(Rotation { block, signs }));
    }
    Ok(rotations)
}

fn json<T: DeserializeOwned>(
    file: &str,
    metadata: &BTreeMap<String, String>,
    key: &str,
) -> Result<Option<T>, LoadError> {
    let Some(text) = metadata.get(key) else { return Ok(None) };
    serde_json::from_str(text).map(Some).map_err(|e| {
        LoadError::new(Kind::Malformed, file, format!("`{key}` in the metadata"), e.to_string())
    })
}

struct PackedSource<'a, 'n, 'l, 'c> {
    file: &'a str,
    index: TensorIndex,
    matrices: BTreeMap<String, MatrixEntry>,
    rotations: Vec<Arc<Rotation>>,
    /// Rank of the adapter that changes drafts, if the first layer has one.
    draft_rank: Option<usize>,
    numbers: &'a mut NumberCheck<'n, 'l, 'c>,
}

impl PackedSource<'_, '_, '_, '_> {
    /// The rotation of a matrix, which must fit its width.
    fn rotation(
        &self,
        name: &str,
        entry: &MatrixEntry,
    ) -> Result<Option<Arc<Rotation>>, LoadError> {
        let Some(i) = entry.rotation else { return Ok(None) };
        let rotation = self.rotations.get(i).filter(|r| r.fits(entry.cols));
        rotation.cloned().map(Some).ok_or_else(|| {
            let want = format!("a rotation of {} inputs in `rotations`", entry.cols);
            LoadError::new(Kind::Value, self.file, want, format!("number {i}")).tensor(name)
        })
    }

    fn matrix(
        &mut self,
        name: &str,
        rows: usize,
        cols: usize,
    ) -> Result<(Matrix, MatrixEntry), LoadError> {
        let entry = self.matrices.remove(name).ok_or_else(|| {
            LoadError::new(Kind::Missing, self.file, "an entry in `matrices`", "none").tensor(name)
        })?;
        let values = self.index.need(name, self.file)?;
        if (entry.rows, entry.cols) != (rows, cols) {
            let found = format!("{} × {}", entry.rows, entry.cols);
            return Err(values.error(Kind::Shape, format!("{rows} × {cols}"), found));
        }
        let scales = match self.index.take(&format!("{name}.scales")) {
            Some(t) => Some(self.numbers.scales(&t)?),
            None => None,
        };
        let matrix = match (&entry.kind, values.dtype, scales) {
            (MatrixKind::Ternary { scale, group, tight }, DType::U8, scales) => {
                ternary(&values, (rows, cols), *tight, *scale, group.zip(scales))?
            }
            (MatrixKind::OneBit, DType::U8, Some(scales)) => {
                let scales = GroupScales::from_panels(rows, cols, one_bit::GROUP, scales);
                let codes = values.bytes.clone();
                let matrix = |scales| TernaryMatrix::from_one_bit(rows, cols, codes, scales);
                scales.and_then(|scales| matrix(Scales::Groups(scales)).map(Matrix::Ternary))
            }
            (MatrixKind::Int8 { group }, DType::I8, Some(scales)) => {
                Int8Matrix::from_panels(rows, cols, *group, values.bytes.clone(), scales)
                    .map(Matrix::Int8)
            }
            (MatrixKind::Planes { group, bits }, DType::U8, Some(scales)) => {
                let Some(packing) = Packing::in_planes(*bits) else {
                    return Err(values.error(Kind::Value, "4, 6 or 8 bits", bits.to_string()));
                };
                let mut part = |part: &str| match self.index.take(&format!("{name}{part}")) {
                    Some(t) => self.numbers.scales(&t),
                    None => Ok(Bytes::new()),
                };
                let (low, factors) = (part(".low")?, part(".factors")?);
                let high = values.bytes.clone();
                let parts = SplitParts { packing, high, low, scales, factors };
                SplitMatrix::from_parts((rows, cols, *group), parts).map(Matrix::Split)
            }
            (MatrixKind::Float, DType::Float(dtype), None) => {
                let w = FloatMatrix::new(rows, cols, dtype, values.bytes.clone())
                    .map_err(|e| LoadError::layout(self.file, name, &e))?;
                self.numbers.matrix(&values, &w).map(|w| Ok(Matrix::Float(w)))?
            }
            _ => {
                let want = format!("the tensors of {:?}", entry.kind);
                return Err(values.error(Kind::Malformed, want, values.dtype.name()));
            }
        };
        let matrix = matrix.map_err(|e| LoadError::layout(self.file, name, &e))?;
        Ok((self.numbers.scaled(matrix), entry))
    }
}

fn ternary(
    codes: &Tensor,
    (rows, cols): (usize, usize),
    tight: bool,
    scale: Option<f64>,
    groups: Option<(usize, Bytes)>,
) -> Result<Result<Matrix, LayoutError>, LoadError> {
    let scales = match (scale, groups) {
        (Some(s), None) => Ok(Scales::Tensor(s as f32)),
        (None, Some((size, values))) => {
            GroupScales::from_panels(rows, cols, size, values).map(Scales::Groups)
        }
        _ => {
            return Err(codes.error(
                Kind::Malformed,
                "one scale, or a group size and scales",
                "neither or both",
            ));
        }
    };
    let new = if tight { TernaryMatrix::from_tight } else { TernaryMatrix::from_panels };
    let bytes = codes.bytes.clone();
    Ok(scales.and_then(|scales| new(rows, cols, bytes, scales).map(Matrix::Ternary)))
}

impl TensorSource for PackedSource<'_, '_, '_, '_> {
    fn linear(&mut self, role: TensorRole, rows: usize, cols: usize) -> Result<Linear, LoadError> {
        let name = TensorNames::PACKED.name(role);
        let (weight, entry) = self.matrix(&name, rows, cols)?;
        let activations = entry.activations.ok_or_else(|| {
            LoadError::new(Kind::Missing, self.file, "`activations` in `matrices`", "none")
                .tensor(&name)
        })?;
        let bias = match self.index.take(&format!("{name}.bias")) {
            Some(t) => Some(self.numbers.vector(&t, rows)?),
            None => None,
        };
        Ok(Linear { weight, bias, activations, rotation: self.rotation(&name, &entry)? })
    }

    fn embed(
        &mut self,
        rows: usize,
        cols: usize,
    ) -> Result<(Matrix, Option<Arc<Rotation>>), LoadError> {
        let (matrix, entry) = self.matrix(TensorNames::PACKED.embed, rows, cols)?;
        Ok((matrix, self.rotation(TensorNames::PACKED.embed, &entry)?))
    }

    fn floats(&mut self, role: TensorRole, shape: &[usize]) -> Result<Vec<f32>, LoadError> {
        let t = self.index.need(&TensorNames::PACKED.name(role), self.file)?;
        self.numbers.floats(&t, shape)
    }

    fn has_head(&self) -> bool {
        self.index.get(TensorNames::PACKED.head).is_some()
    }

    fn shape(&self, role: TensorRole) -> Option<&[usize]> {
        Some(&self.index.get(&TensorNames::PACKED.name(role))?.shape)
    }

    fn draft_rank(&self) -> Option<usize> {
        self.draft_rank
    }
}
