//! Writes a checkpoint as a packed file.

use super::{
    ALIGN, FORMAT, MatrixEntry, MatrixKind, PADDING, TOKENIZER, VERSION_NO_PLANES, VERSION_PLANES,
};
use crate::format::recipe::{LayerRole, TensorNames, TensorRole};
use crate::format::{Activations, Checkpoint, LayerWeights, Linear, Mixer};
use crate::matrix::{FloatType, Matrix, Scales, SplitMatrix, SplitParts};
use crate::ternary::{BLOCK_BYTES, Layout, PANEL_ROWS, tight};
use bytes::Bytes;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Writes a checkpoint as a packed file, which [`load`](crate::format::load) reads without
/// conversion. `tokenizer_json` is stored as it is: convert a GGUF vocabulary first
/// ([`Tokenizer::to_json`](crate::text::Tokenizer::to_json)).
///
/// # Errors
/// When writing to `out` fails, or the format has no place for a tensor: `Unsupported`.
pub fn write(
    checkpoint: &Checkpoint,
    tokenizer_json: Option<&[u8]>,
    out: &mut dyn Write,
) -> io::Result<()> {
    refuse_rotation(checkpoint)?;
    let mut file = PackedWriter::default();
    file.weights(checkpoint);
    if let Some(text) = tokenizer_json {
        file.add(TOKENIZER.into(), "U8", vec![text.len()], Bytes::copy_from_slice(text));
    }
    let metadata = metadata(checkpoint, &file.matrices)?;
    let header = file.header(metadata);
    out.write_all(&(header.len() as u64).to_le_bytes())?;
    out.write_all(&header)?;
    for tensor in &file.tensors {
        out.write_all(&tensor.bytes)?;
    }
    out.flush()
}

/// Refuses what packed files have no place for.
fn refuse_rotation(c: &Checkpoint) -> io::Result<()> {
    let w = &c.weights;
    let mut linears = w.layers.iter().flat_map(LayerWeights::linears).chain(&w.head);
    let linear = w.layers.iter().any(|l| matches!(l.mixer, Mixer::Linear(_)));
    if linear || w.embed_rotation.is_some() || linears.any(|l| l.rotation.is_some()) {
        let text = "packed files cannot hold linear attention or rotated weights";
        return Err(io::Error::new(io::ErrorKind::Unsupported, text));
    }
    Ok(())
}

fn metadata(
    c: &Checkpoint,
    matrices: &BTreeMap<String, MatrixEntry>,
) -> io::Result<Map<String, Value>> {
    let mut metadata = Map::new();
    let mut put = |key: &str, text: String| metadata.insert(key.into(), text.into());
    put("format", FORMAT.into());
    let planes = matrices.values().any(|m| matches!(m.kind, MatrixKind::Planes { .. }));
    put("version", if planes { VERSION_PLANES } else { VERSION_NO_PLANES }.into());
    put("spec", serde_json::to_string(&c.spec)?);
    put("matrices", serde_json::to_string(matrices)?);
    put("generation", serde_json::to_string(&c.generation)?);
    put("special_tokens", serde_json::to_string(&c.text.special)?);
    if let Some(dlm) = &c.dlm {
        put("dlm", serde_json::to_string(dlm)?);
    }
    if let Some(template) = &c.text.chat_template {
        put("chat_template", template.clone());
    }
    if let Some(template) = &c.text.tool_template {
        put("tool_template", template.clone());
    }
    Ok(metadata)
}

struct OutTensor {
    name: String,
    dtype: &'static str,
    shape: Vec<usize>,
    bytes: Bytes,
}

#[derive(Default)]
struct PackedWriter {
    tensors: Vec<OutTensor>,
    matrices: BTreeMap<String, MatrixEntry>,
    /// Bytes of all tensors so far.
    end: usize,
}

impl PackedWriter {
    /// Adds a tensor, and padding up to the next boundary.
    fn add(&mut self, name: String, dtype: &'static str, shape: Vec<usize>, bytes: Bytes) {
        self.end += bytes.len();
        self.tensors.push(OutTensor { name, dtype, shape, bytes });
        let gap = self.end.next_multiple_of(ALIGN) - self.end;
        if gap > 0 {
            let name = format!("{PADDING}{}", self.tensors.len());
            let bytes = Bytes::from_static(&[0; ALIGN]).slice(..gap);
            self.end += gap;
            self.tensors.push(OutTensor { name, dtype: "U8", shape: vec![gap], bytes });
        }
    }

    fn vector(&mut self, name: String, values: &[f32]) {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        self.add(name, "F32", vec![values.len()], bytes.into());
    }

    fn matrix(&mut self, name: String, matrix: &Matrix, activations: Option<Activations>) {
        let (rows, cols) = (matrix.rows(), matrix.cols());
        let panels = rows.div_ceil(PANEL_ROWS);
        let scales_name = format!("{name}.scales");
        let blocks = |bytes: &Bytes, block| vec![panels, bytes.len() / block / panels, block];
        let kind = match matrix {
            Matrix::Ternary(m) => {
                let codes = m.codes().clone();
                let tight = m.layout() == Layout::Tight;
                let block = if tight { tight::BYTES } else { BLOCK_BYTES };
                self.add(name.clone(), "U8", blocks(&codes, block), codes);
                match m.scales() {
                    Scales::Tensor(s) => {
                        MatrixKind::Ternary { scale: Some(f64::from(*s)), group: None, tight }
                    }
                    Scales::Groups(g) => {
                        let shape = vec![panels, g.groups(), PANEL_ROWS];
                        self.add(scales_name, "F16", shape, g.bytes().clone());
                        MatrixKind::Ternary { scale: None, group: Some(g.size()), tight }
                    }
                }
            }
            Matrix::Int8(m) => {
                let values = m.values().clone();
                self.add(name.clone(), "I8", blocks(&values, BLOCK_BYTES), values);
                let shape = vec![panels, m.view().groups(), PANEL_ROWS];
                self.add(scales_name, "F32", shape, m.scales().clone());
                MatrixKind::Int8 { group: m.view().group() }
            }
            Matrix::Split(m) => self.planes(&name, m),
            Matrix::Float(m) => {
                let dtype = match m.dtype() {
                    FloatType::F32 => "F32",
                    FloatType::F16 => "F16",
                    FloatType::Bf16 => "BF16",
                };
                self.add(name.clone(), dtype, vec![rows, cols], m.data().clone());
                MatrixKind::Float
            }
        };
        self.matrices.insert(name, MatrixEntry { rows, cols, kind, activations });
    }

    /// Adds the tensors of a matrix in planes.
    fn planes(&mut self, name: &str, m: &SplitMatrix) -> MatrixKind {
        let SplitParts { packing, high, low, scales, factors } = m.parts().clone();
        let panels = m.view().rows().div_ceil(PANEL_ROWS);
        let mut add = |part: &str, dtype, bytes: Bytes, lane: usize, size: usize| {
            if !bytes.is_empty() {
                let shape = vec![panels, bytes.len() / size / lane / panels, lane];
                self.add(format!("{name}{part}"), dtype, shape, bytes);
            }
        };
        add("", "U8", high, BLOCK_BYTES, 1);
        add(".low", "U8", low, BLOCK_BYTES, 1);
        match factors.is_empty() {
            true => add(".scales", "F32", scales, PANEL_ROWS, size_of::<f32>()),
            false => add(".scales", "I8", scales, PANEL_ROWS, 1),
        }
        add(".factors", "F32", factors, PANEL_ROWS, size_of::<f32>());
        MatrixKind::Planes { group: m.view().group(), bits: packing.bits() }
    }

    fn linear(&mut self, role: TensorRole, linear: &Linear) {
        let name = TensorNames::PACKED.name(role);
        let bias = format!("{name}.bias");
        self.matrix(name, &linear.weight, Some(linear.activations));
        if let Some(values) = &linear.bias {
            self.vector(bias, values);
        }
    }

    /// All weights in the order in which a forward pass reads them.
    fn weights(&mut self, c: &Checkpoint) {
        let w = &c.weights;
        let name = |role| TensorNames::PACKED.name(role);
        self.matrix(name(TensorRole::Embed), &w.embed, None);
        for (i, layer) in w.layers.iter().enumerate() {
            self.layer(i, layer);
        }
        self.vector(name(TensorRole::FinalNorm), &w.final_norm);
        if let Some(head) = &w.head {
            self.linear(TensorRole::Head, head);
        }
    }

    fn layer(&mut self, i: usize, layer: &LayerWeights) {
        let at = |role| TensorRole::Layer(i, role);
        let name = |role| TensorNames::PACKED.name(at(role));
        let optional = |file: &mut Self, role, values: &Option<Vec<f32>>| {
            if let Some(values) = values {
                file.vector(name(role), values);
            }
        };
        self.vector(name(LayerRole::AttnNorm), &layer.mixer_norm);
        if let Mixer::Attention(w) = &layer.mixer {
            self.linear(at(LayerRole::Q), &w.q);
            self.linear(at(LayerRole::K), &w.k);
            self.linear(at(LayerRole::V), &w.v);
            optional(self, LayerRole::QNorm, &w.q_norm);
            optional(self, LayerRole::KNorm, &w.k_norm);
            optional(self, LayerRole::AttnSubNorm, &w.sub_norm);
            self.linear(at(LayerRole::O), &w.o);
        }
        self.vector(name(LayerRole::FfnNorm), &layer.ffn_norm);
        self.linear(at(LayerRole::Gate), &layer.gate);
        self.linear(at(LayerRole::Up), &layer.up);
        optional(self, LayerRole::FfnSubNorm, &layer.ffn_sub_norm);
        self.linear(at(LayerRole::Down), &layer.down);
    }

    /// The header, padded so that the data behind it start on a boundary.
    fn header(&self, metadata: Map<String, Value>) -> Vec<u8> {
        let mut header = Map::new();
        header.insert("__metadata__".into(), metadata.into());
        let mut at = 0;
        for t in &self.tensors {
            let end = at + t.bytes.len();
            let entry = json!({ "dtype": t.dtype, "shape": t.shape, "data_offsets": [at, end] });
            header.insert(t.name.clone(), entry);
            at = end;
        }
        let mut text = Value::Object(header).to_string().into_bytes();
        let padded = (text.len() + 8).next_multiple_of(ALIGN) - 8;
        text.resize(padded, b' ');
        text
    }
}
