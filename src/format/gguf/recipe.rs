//! Builds a model from a GGUF file: metadata keys become the [`Spec`], `blk.N.*` the layers.

use super::meta::Metadata;
use super::parse::parse;
use super::types::{BlockCodec, GgmlType};
use super::{rope, vocab};
use crate::format::codec::{RowOrder, decode_i2s, decode_q4_k};
use crate::format::index::{DType, File, Tensor, TensorIndex};
use crate::format::numbers::NumberCheck;
use crate::format::recipe::{LayerRole, TensorNames, TensorRole, TensorSource, assemble};
use crate::format::{
    Activation, Architecture, Checkpoint, Linear, LoadError, LoadErrorKind as Kind, Spec,
};
use crate::matrix::{FloatMatrix, FloatType, Matrix, Scales};
use bytes::Bytes;

/// Reads a GGUF file.
pub(in crate::format) fn load(
    File { name, bytes }: File,
    numbers: &mut NumberCheck<'_, '_, '_>,
) -> Result<Checkpoint, LoadError> {
    let head = bytes.first();
    let (meta, mut index) = parse(&name, &head, bytes)?;
    refuse_variants(&meta)?;
    let spec = spec(&meta, &mut index)?;
    spec.check(&name)?;
    let order = match spec.architecture {
        Architecture::Llama => RowOrder::Interleaved { head_dim: spec.head_dim },
        _ => RowOrder::Same,
    };
    let bitnet = spec.architecture == Architecture::BitNet;
    let mut source = GgufSource { file: &name, index, order, bitnet, numbers };
    let weights = assemble(&spec, &mut source)?;
    source.index.expect_empty(|_| false)?;
    Ok(Checkpoint {
        spec,
        weights,
        text: vocab::text_parts(&meta)?,
        generation: vocab::generation(&meta)?,
        dlm: None,
        flushed: 0,
    })
}

fn refuse_variants(meta: &Metadata<'_>) -> Result<(), LoadError> {
    let unsupported = |want: &str, found: String| {
        LoadError::new(Kind::UnsupportedFeature, meta.file, want, found)
    };
    if let Some(key) = meta.values.keys().find(|k| k.starts_with("prism.hadamard.")) {
        return Err(unsupported("weights that are not rotated", format!("`{key}`")).advice(
            "Hadamard rotations (Prism) are not supported; \
             use a file of the same model without rotation",
        ));
    }
    if meta.size("split.count")?.is_some_and(|n| n > 1) {
        return Err(unsupported("a model in one file", "one part of a split model".into())
            .advice("merge the parts first: llama-gguf-split --merge"));
    }
    Ok(())
}

fn spec(meta: &Metadata<'_>, index: &mut TensorIndex) -> Result<Spec, LoadError> {
    const ARCH: &str = "general.architecture";
    let arch = meta.need(ARCH, meta.text(ARCH)?)?;
    let (architecture, activation) = match arch {
        "bitnet" => (Architecture::BitNet, Activation::Silu),
        "bitnet-b1.58" | "bitnet-25" => (Architecture::BitNet, Activation::Relu2),
        "llama" => (Architecture::Llama, Activation::Silu),
        "qwen2" => (Architecture::Qwen2, Activation::Silu),
        "qwen3" => (Architecture::Qwen3, Activation::Silu),
        other => {
            return Err(LoadError::new(
                Kind::UnsupportedArchitecture,
                meta.file,
                format!("`{ARCH}` to be bitnet, bitnet-b1.58, bitnet-25, llama, qwen2 or qwen3"),
                format!("`{other}`"),
            ));
        }
    };
    let key = |name: &str| format!("{arch}.{name}");
    let size = |name: &str| meta.size(&key(name));
    let need = |name: &str| meta.need(&key(name), size(name)?);
    for name in ["expert_count", "attention.sliding_window"] {
        if let Some(n) = size(name)?.filter(|&n| n > 0) {
            return Err(LoadError::new(
                Kind::UnsupportedFeature,
                meta.file,
                format!("no `{}`", key(name)),
                n.to_string(),
            ));
        }
    }
    let hidden_size = need("embedding_length")?;
    let heads = need("attention.head_count")?;
    let head_dim = match size("attention.key_length")? {
        Some(n) => n,
        None => hidden_size.checked_div(heads).unwrap_or(0),
    };
    let value_dim = size("attention.value_length")?.unwrap_or(head_dim);
    if value_dim != head_dim {
        return Err(LoadError::new(
            Kind::UnsupportedFeature,
            meta.file,
            format!("value heads of {head_dim} columns, like the key heads"),
            value_dim.to_string(),
        ));
    }
    let embed = format!("{}.weight", TensorNames::GGUF.embed);
    let rows = index.get(&embed).and_then(|t| t.shape.first().copied());
    let vocab_size = match rows {
        Some(rows) => rows,
        None => need("vocab_size")?,
    };
    let eps = key("attention.layer_norm_rms_epsilon");
    let longest = need("context_length")?;
    let rope = rope::rope(meta, arch, (head_dim, longest), index)?;
    Ok(Spec {
        architecture,
        vocab_size,
        hidden_size,
        intermediate_size: need("feed_forward_length")?,
        layers: need("block_count")?,
        heads,
        kv_heads: size("attention.head_count_kv")?.unwrap_or(heads),
        head_dim,
        context_length: rope.extended_context(longest),
        norm_eps: meta.need(&eps, meta.float(&eps)?)? as f32,
        activation,
        rope,
        rotary_dim: None,
        attention_gate: false,
        linear_attention: None,
        mixers: Vec::new(),
    })
}

struct GgufSource<'a, 'n, 'l, 'c> {
    file: &'a str,
    index: TensorIndex,
    /// Order of the rows of q and k.
    order: RowOrder,
    /// True if every matrix of a layer was trained with one scale.
    bitnet: bool,
    numbers: &'a mut NumberCheck<'n, 'l, 'c>,
}

impl TensorSource for GgufSource<'_, '_, '_, '_> {
    fn linear(&mut self, role: TensorRole, rows: usize, cols: usize) -> Result<Linear, LoadError> {
        let name = TensorNames::GGUF.name(role);
        let order = match role {
            TensorRole::Layer(_, LayerRole::Q | LayerRole::K) => self.order,
            _ => RowOrder::Same,
        };
        let t = self.index.need(&format!("{name}.weight"), self.file)?;
        t.expect_shape(&[rows, cols])?;
        let mut weight = self.decode(&t, rows, cols, order)?;
        if self.bitnet {
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
        Ok(Linear::new(weight, bias))
    }

    fn embed(&mut self, rows: usize, cols: usize) -> Result<Matrix, LoadError> {
        let t = self.index.need(&format!("{}.weight", TensorNames::GGUF.embed), self.file)?;
        t.expect_shape(&[rows, cols])?;
        self.decode(&t, rows, cols, RowOrder::Same)
    }

    fn vector(&mut self, role: TensorRole, len: usize) -> Result<Vec<f32>, LoadError> {
        let t = self.index.need(&format!("{}.weight", TensorNames::GGUF.name(role)), self.file)?;
        self.numbers.vector(&t, len)
    }

    fn has_head(&self) -> bool {
        self.index.get(&format!("{}.weight", TensorNames::GGUF.head)).is_some()
    }
}

impl GgufSource<'_, '_, '_, '_> {
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
                BlockCodec::Q4K => decode_q4_k(&t.bytes, rows, cols, order).map(Matrix::Float),
            },
            DType::U8 | DType::I8 => {
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
            "a factor beside ternary matrices only",
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
