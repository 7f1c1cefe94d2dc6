//! `model.safetensors` of a directory.

use super::super::qwen35;
use crate::format::codec::encode_hf_packed;
use crate::format::recipe::{LayerRole, TensorNames, TensorRole, TensorSink, disassemble};
use crate::format::{Activations, Architecture, Checkpoint, ExportError, Linear, Rotation};
use crate::matrix::{FloatType, Matrix, Scales, TernaryMatrix};
use bytes::Bytes;
use half::{bf16, f16};
use serde_json::{Map, Value, json};
use std::io::Write;
use std::sync::Arc;

/// Alignment of the data, in bytes.
const ALIGNMENT: usize = 8;

/// Contents of a tensor.
enum Data<'a> {
    Floats(Vec<f32>),
    /// Codes of four rows in a byte.
    Packed(&'a TernaryMatrix),
    Matrix(&'a Matrix, FloatType),
}

struct OutTensor<'a> {
    name: String,
    shape: Vec<usize>,
    data: Data<'a>,
}

/// The weights of a directory.
pub(super) struct WeightsFile<'a> {
    architecture: Architecture,
    tensors: Vec<OutTensor<'a>>,
    /// Linear layers that are not packed.
    plain: Vec<String>,
    packed: bool,
    attention_bias: bool,
    mlp_bias: bool,
}

impl<'a> WeightsFile<'a> {
    pub(super) fn new(checkpoint: &'a Checkpoint) -> Result<Self, ExportError> {
        let mut file = Self {
            architecture: checkpoint.spec.architecture,
            tensors: Vec::new(),
            plain: Vec::new(),
            packed: false,
            attention_bias: false,
            mlp_bias: false,
        };
        disassemble(&checkpoint.weights, &mut file)?;
        Ok(file)
    }

    fn names(&self) -> &'static TensorNames {
        TensorNames::hf(self.architecture)
    }

    /// Returns true if q and k have norms.
    pub(super) fn head_norms(&self) -> bool {
        let name = self.names().weight(TensorRole::Layer(0, LayerRole::QNorm));
        self.tensors.iter().any(|t| t.name == name)
    }

    pub(super) fn attention_bias(&self) -> bool {
        self.attention_bias
    }

    pub(super) fn mlp_bias(&self) -> bool {
        self.mlp_bias
    }

    /// Type in which `transformers` computes: the widest of all matrices.
    pub(super) fn dtype(&self) -> &'static str {
        let types = || {
            self.tensors.iter().filter_map(|t| match t.data {
                Data::Matrix(_, dtype) => Some(dtype),
                _ => None,
            })
        };
        let mut others = types();
        let first = others.next().unwrap_or(FloatType::F32);
        match first {
            FloatType::F16 if others.all(|t| t == first) => "float16",
            FloatType::Bf16 if others.all(|t| t == first) => "bfloat16",
            _ => "float32",
        }
    }

    /// `quantization_config`, if any matrix is packed.
    pub(super) fn quantization(&self) -> Option<Value> {
        let not_packed: Vec<&str> =
            self.plain.iter().map(String::as_str).chain(["lm_head"]).collect();
        self.packed.then(|| {
            json!({
                "quant_method": "bitnet",
                "linear_class": "autobitlinear",
                "quantization_mode": "offline",
                "modules_to_not_convert": not_packed,
            })
        })
    }

    pub(super) fn bytes(&self) -> u64 {
        let data: usize = self.tensors.iter().map(OutTensor::bytes).sum();
        8 + self.header().len() as u64 + data as u64
    }

    fn header(&self) -> Vec<u8> {
        let mut header = Map::new();
        header.insert("__metadata__".into(), json!({"format": "pt"}));
        let mut at = 0;
        for t in &self.tensors {
            let end = at + t.bytes();
            let entry = json!({"dtype": t.dtype(), "shape": t.shape, "data_offsets": [at, end]});
            header.insert(t.name.clone(), entry);
            at = end;
        }
        let mut text = Value::Object(header).to_string().into_bytes();
        text.resize(text.len().next_multiple_of(ALIGNMENT), b' ');
        text
    }

    pub(super) fn write(&self, out: &mut dyn Write) -> Result<(), ExportError> {
        let header = self.header();
        out.write_all(&(header.len() as u64).to_le_bytes())?;
        out.write_all(&header)?;
        for tensor in &self.tensors {
            out.write_all(&tensor.encode()?)?;
        }
        out.flush()?;
        Ok(())
    }

    fn add(&mut self, name: String, shape: &[usize], data: Data<'a>) {
        self.tensors.push(OutTensor { name, shape: shape.to_vec(), data });
    }

    /// Adds a matrix as floats that hold it, int8 rounded to f16.
    fn matrix(&mut self, name: String, matrix: &'a Matrix) {
        let shape = [matrix.rows(), matrix.cols()];
        self.add(name, &shape, Data::Matrix(matrix, float_type(matrix)));
    }
}

fn float_type(matrix: &Matrix) -> FloatType {
    match matrix {
        Matrix::Float(m) => m.dtype(),
        Matrix::Int8(_) | Matrix::Split(_) => FloatType::F16,
        Matrix::Ternary(m) => match m.scales() {
            Scales::Groups(_) => FloatType::F16,
            Scales::Tensor(s) if f16::from_f32(*s).to_f32() == *s => FloatType::F16,
            Scales::Tensor(s) if bf16::from_f32(*s).to_f32() == *s => FloatType::Bf16,
            Scales::Tensor(_) => FloatType::F32,
        },
    }
}

fn refuse_rotation(name: &str, rotation: Option<&Arc<Rotation>>) -> Result<(), ExportError> {
    match rotation {
        None => Ok(()),
        Some(_) => Err(ExportError::unsupported(
            name,
            "a matrix that is not rotated",
            "a rotated one",
            "`transformers` has no rotations; GGUF and packed files hold them",
        )),
    }
}

impl<'a> TensorSink<'a> for WeightsFile<'a> {
    type Error = ExportError;

    fn embed(
        &mut self,
        role: TensorRole,
        matrix: &'a Matrix,
        rotation: Option<&'a Arc<Rotation>>,
    ) -> Result<(), ExportError> {
        let name = self.names().weight(role);
        refuse_rotation(&name, rotation)?;
        self.matrix(name, matrix);
        Ok(())
    }

    fn linear(&mut self, role: TensorRole, linear: &'a Linear) -> Result<(), ExportError> {
        let (name, weight) = (self.names().name(role), self.names().weight(role));
        refuse_rotation(&weight, linear.rotation.as_ref())?;
        let in_layer = matches!(role, TensorRole::Layer(..));
        match &linear.weight {
            Matrix::Ternary(m)
                if in_layer
                    && linear.activations == Activations::Int8
                    && m.rows().is_multiple_of(4)
                    && matches!(m.scales(), Scales::Tensor(_)) =>
            {
                self.packed = true;
                self.add(weight, &[m.rows() / 4, m.cols()], Data::Packed(m));
                let scale = m.scale_at(0, 0);
                self.add(format!("{name}.weight_scale"), &[1], Data::Floats(vec![scale]));
            }
            matrix => {
                self.matrix(weight, matrix);
                if in_layer {
                    self.plain.push(name.clone());
                }
            }
        }
        if let Some(bias) = &linear.bias {
            let mlp = matches!(
                role,
                TensorRole::Layer(_, LayerRole::Gate | LayerRole::Up | LayerRole::Down)
            );
            if mlp {
                self.mlp_bias = true;
            } else {
                self.attention_bias = true;
            }
            self.add(format!("{name}.bias"), &[bias.len()], Data::Floats(bias.clone()));
        }
        Ok(())
    }

    fn floats(
        &mut self,
        role: TensorRole,
        shape: &[usize],
        values: &'a [f32],
    ) -> Result<(), ExportError> {
        let mut values = values.to_vec();
        let mut shape = shape.to_vec();
        if self.architecture == Architecture::Qwen35 {
            values.iter_mut().for_each(qwen35::to_stored(role));
            shape = qwen35::stored_shape(role, &shape);
        }
        self.add(self.names().weight(role), &shape, Data::Floats(values));
        Ok(())
    }
}

impl OutTensor<'_> {
    fn dtype(&self) -> &'static str {
        match &self.data {
            Data::Floats(_) | Data::Matrix(_, FloatType::F32) => "F32",
            Data::Packed(_) => "U8",
            Data::Matrix(_, FloatType::F16) => "F16",
            Data::Matrix(_, FloatType::Bf16) => "BF16",
        }
    }

    fn bytes(&self) -> usize {
        let count: usize = self.shape.iter().product();
        match &self.data {
            Data::Floats(_) => count * size_of::<f32>(),
            Data::Packed(_) => count,
            Data::Matrix(_, dtype) => count * dtype.size(),
        }
    }

    fn encode(&self) -> Result<Bytes, ExportError> {
        match &self.data {
            Data::Floats(values) => Ok(values.iter().flat_map(|v| v.to_le_bytes()).collect()),
            Data::Packed(m) => Ok(encode_hf_packed(m).expect("a multiple of four rows").into()),
            Data::Matrix(Matrix::Float(m), _) => Ok(m.data().clone()),
            Data::Matrix(m, dtype) => self.floats(m, *dtype),
        }
    }

    fn floats(&self, m: &Matrix, dtype: FloatType) -> Result<Bytes, ExportError> {
        let mut row = vec![0.0; m.cols()];
        let mut out = Vec::with_capacity(self.bytes());
        for i in 0..m.rows() {
            m.row_f32(i, &mut row);
            for &w in &row {
                match dtype {
                    FloatType::F32 => out.extend(w.to_le_bytes()),
                    FloatType::Bf16 => out.extend(bf16::from_f32(w).to_le_bytes()),
                    FloatType::F16 if f16::from_f32(w).is_finite() => {
                        out.extend(f16::from_f32(w).to_le_bytes());
                    }
                    FloatType::F16 => {
                        let (want, found) = ("weights that fit f16", format!("{w} in row {i}"));
                        let advice = "a directory cannot hold it; take a packed file";
                        return Err(ExportError::unsupported(&self.name, want, found, advice));
                    }
                }
            }
        }
        Ok(out.into())
    }
}
