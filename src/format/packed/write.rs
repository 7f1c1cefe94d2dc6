//! Writes a checkpoint as a packed file.

use super::{
    ALIGN, FORMAT, MatrixEntry, MatrixKind, PADDING, RotationEntry, TOKENIZER, VERSION_MTP,
    VERSION_NO_PLANES, VERSION_ONE_BIT, VERSION_PLANES, VERSION_ROTATIONS, VERSION_TIGHT_GROUPS,
    signs_name,
};
use crate::format::recipe::{TensorNames, TensorRole, TensorSink, disassemble};
use crate::format::{Activations, Architecture, Checkpoint, Linear, Rotation};
use crate::matrix::{FloatType, Matrix, Scales, SplitMatrix, SplitParts};
use crate::ternary::{BLOCK_BYTES, Layout, PANEL_ROWS, tight};
use bytes::Bytes;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io::{self, Write};
use std::sync::Arc;

/// Writes a checkpoint as a packed file, which [`load`](crate::format::load) reads without
/// conversion. `tokenizer_json` is stored as it is: convert a GGUF vocabulary first
/// ([`Tokenizer::to_json`](crate::text::Tokenizer::to_json)).
///
/// # Errors
/// When writing to `out` fails.
pub fn write(
    checkpoint: &Checkpoint,
    tokenizer_json: Option<&[u8]>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut file = PackedWriter::default();
    let Ok(()) = disassemble(&checkpoint.weights, &mut file);
    if let Some(text) = tokenizer_json {
        file.add(TOKENIZER.into(), "U8", vec![text.len()], Bytes::copy_from_slice(text));
    }
    let metadata = metadata(checkpoint, &file)?;
    let header = file.header(metadata);
    out.write_all(&(header.len() as u64).to_le_bytes())?;
    out.write_all(&header)?;
    for tensor in &file.tensors {
        out.write_all(&tensor.bytes)?;
    }
    out.flush()
}

fn metadata(c: &Checkpoint, file: &PackedWriter) -> io::Result<Map<String, Value>> {
    let mut metadata = Map::new();
    let mut put = |key: &str, text: String| metadata.insert(key.into(), text.into());
    put("format", FORMAT.into());
    put("version", version(c, file).into());
    put("spec", serde_json::to_string(&c.spec)?);
    put("matrices", serde_json::to_string(&file.matrices)?);
    if !file.rotations.is_empty() {
        let entry = |r: &Arc<Rotation>| RotationEntry {
            block: r.block,
            signs: r.signs.as_ref().map(Vec::len),
        };
        let entries: Vec<RotationEntry> = file.rotations.iter().map(entry).collect();
        put("rotations", serde_json::to_string(&entries)?);
    }
    put("generation", serde_json::to_string(&c.generation)?);
    put("special_tokens", serde_json::to_string(&c.text.special)?);
    if let Some(dlm) = &c.dlm {
        put("dlm", serde_json::to_string(dlm)?);
    }
    if let Some(training) = &c.training {
        put("training", serde_json::to_string(training)?);
    }
    if let Some(template) = &c.text.chat_template {
        put("chat_template", template.clone());
    }
    if let Some(template) = &c.text.tool_template {
        put("tool_template", template.clone());
    }
    Ok(metadata)
}

/// The oldest version that can hold the model.
fn version(c: &Checkpoint, file: &PackedWriter) -> &'static str {
    let planes = |m: &MatrixEntry| matches!(m.kind, MatrixKind::Planes { .. });
    let tight_groups =
        |m: &MatrixEntry| matches!(m.kind, MatrixKind::Ternary { group: Some(_), tight: true, .. });
    let one_bit = |m: &MatrixEntry| m.kind == MatrixKind::OneBit;
    if file.matrices.values().any(one_bit) {
        VERSION_ONE_BIT
    } else if c.weights.mtp.is_some() {
        VERSION_MTP
    } else if file.matrices.values().any(tight_groups) {
        VERSION_TIGHT_GROUPS
    } else if c.spec.architecture == Architecture::Qwen35 || !file.rotations.is_empty() {
        VERSION_ROTATIONS
    } else if file.matrices.values().any(planes) {
        VERSION_PLANES
    } else {
        VERSION_NO_PLANES
    }
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
    rotations: Vec<Arc<Rotation>>,
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

    /// Adds a rotation, unless there is an equal one, and returns its index.
    fn rotation(&mut self, rotation: &Arc<Rotation>) -> usize {
        let known = self.rotations.iter().position(|r| r == rotation);
        known.unwrap_or_else(|| {
            let i = self.rotations.len();
            if let Some(signs) = &rotation.signs {
                self.vector(signs_name(i), signs);
            }
            self.rotations.push(rotation.clone());
            i
        })
    }

    fn matrix(
        &mut self,
        name: String,
        matrix: &Matrix,
        activations: Option<Activations>,
        rotation: Option<&Arc<Rotation>>,
    ) {
        let rotation = rotation.map(|r| self.rotation(r));
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
                        match m.layout() {
                            Layout::OneBit => MatrixKind::OneBit,
                            _ => MatrixKind::Ternary { scale: None, group: Some(g.size()), tight },
                        }
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
        self.matrices.insert(name, MatrixEntry { rows, cols, kind, activations, rotation });
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
        if factors.is_empty() {
            add(".scales", "F32", scales, PANEL_ROWS, size_of::<f32>())
        } else {
            add(".scales", "I8", scales, PANEL_ROWS, 1)
        }
        add(".factors", "F32", factors, PANEL_ROWS, size_of::<f32>());
        MatrixKind::Planes { group: m.view().group(), bits: packing.bits() }
    }

    /// The header, padded so that the data after it start on a boundary.
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

impl<'a> TensorSink<'a> for PackedWriter {
    type Error = Infallible;

    fn embed(
        &mut self,
        role: TensorRole,
        matrix: &'a Matrix,
        rotation: Option<&'a Arc<Rotation>>,
    ) -> Result<(), Infallible> {
        // The embeddings of a drafting block are read as a linear layer.
        let activations = match role {
            TensorRole::Embed => None,
            _ => Some(Linear::new(matrix.clone(), None).activations),
        };
        self.matrix(TensorNames::PACKED.name(role), matrix, activations, rotation);
        Ok(())
    }

    fn linear(&mut self, role: TensorRole, linear: &'a Linear) -> Result<(), Infallible> {
        let name = TensorNames::PACKED.name(role);
        let bias = format!("{name}.bias");
        let (activations, rotation) = (Some(linear.activations), linear.rotation.as_ref());
        self.matrix(name, &linear.weight, activations, rotation);
        if let Some(values) = &linear.bias {
            self.vector(bias, values);
        }
        Ok(())
    }

    fn floats(
        &mut self,
        role: TensorRole,
        shape: &[usize],
        values: &'a [f32],
    ) -> Result<(), Infallible> {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        self.add(TensorNames::PACKED.name(role), "F32", shape.to_vec(), bytes.into());
        Ok(())
    }
}
