//! Writer of GGUF files.

mod container;
mod matrix;
mod metadata;
mod rotation;
mod text;

pub use text::GgufTokenizer;

use super::types::GgmlType;
use crate::format::codec::RowOrder;
use crate::format::gguf::keys::{DLM, TRAINING};
use crate::format::recipe::{LayerRole, MtpRole, TensorNames, TensorRole, TensorSink, disassemble};
use crate::format::{
    Architecture, Checkpoint, ExportError, HeadType, Linear, Rotation, ValueOrder,
};
use crate::matrix::{Matrix, Scales};
use bytes::Bytes;
use container::{ALIGNMENT, MetaWriter};
use matrix::{F32, Storage};
use rotation::Declaration;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;

/// Choices for a GGUF file.
#[derive(Clone, Copy, Debug, Default)]
pub struct GgufOptions {
    /// Type of ternary matrices: TQ1_0, TQ2_0, Q2_0, PQ2_0, PTQ1_0, I2_S, Q1_0 or STQ1_0. `None` takes
    /// the type with a matrix's own group size, of little more than one bit where it holds all weights.
    pub ternary: Option<GgmlType>,
    /// Precision of the output head, and of the embeddings where they are the head: f16 or Q8_0. `None`
    /// keeps it, except that int8 with a scale per row becomes f16.
    pub head: Option<HeadType>,
}

/// A GGUF file of a model. It refers to the model's weights and encodes them while it is written.
///
/// ```
/// use wrinklefree::format::{File, GgufFile, GgufOptions, GgufTokenizer, load};
///
/// let bytes: &'static [u8] = include_bytes!("../../../../models/default.wf.safetensors");
/// let model = load(vec![File { name: "default".into(), bytes: bytes.into() }])?;
/// let file = GgufFile::new(&model, GgufTokenizer::default(), GgufOptions::default())?;
/// let mut written = Vec::new();
/// file.write(&mut written)?;
/// assert_eq!(written.len() as u64, file.bytes());
///
/// let back = load(vec![File { name: "default.gguf".into(), bytes: written.into() }])?;
/// assert_eq!(back.weights.final_norm, model.weights.final_norm);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct GgufFile<'a> {
    header: Vec<u8>,
    tensors: Vec<OutTensor<'a>>,
    losses: Vec<String>,
}

impl<'a> GgufFile<'a> {
    /// Plans a file. The value heads of linear attention must be in GGUF's order
    /// ([`Checkpoint::with_value_order`]).
    ///
    /// # Errors
    /// When the format or the chosen type cannot hold the model; the error names the tensor.
    pub fn new(
        checkpoint: &'a Checkpoint,
        tokenizer: GgufTokenizer<'_>,
        options: GgufOptions,
    ) -> Result<Self, ExportError> {
        let spec = &checkpoint.spec;
        let grouped = spec.linear_attention.as_ref().filter(|shape| shape.values_per_key() > 1);
        if grouped.is_some_and(|shape| shape.value_order == ValueOrder::Grouped) {
            return Err(ExportError::unsupported(
                "linear attention",
                "value heads in tiled order",
                "grouped order",
                "convert them with `Checkpoint::with_value_order`",
            ));
        }
        let tied = checkpoint.weights.head.is_none();
        let mut plan = Plan::new(checkpoint, options);
        for (name, divisors) in metadata::divisors(spec) {
            let shape = vec![divisors.len()];
            plan.add(name.into(), shape, Data::Floats(divisors.into()));
        }
        disassemble(&checkpoint.weights, &mut plan)?;
        let Plan { tensors, declaration, kinds, .. } = plan;
        let (mut meta, mut losses) = (MetaWriter::default(), Vec::new());
        metadata::put_spec(&mut meta, spec, &mut losses)?;
        if let Some((&file_type, _)) = kinds.iter().max_by_key(|(_, weights)| **weights) {
            meta.size("general.file_type", file_type);
        }
        meta.size("general.quantization_version", 2);
        text::put_sampling(&mut meta, &checkpoint.generation, spec.architecture);
        metadata::put_activations(&mut meta, &checkpoint.weights);
        declaration.put(&mut meta, spec, tied)?;
        if let Some(dlm) = &checkpoint.dlm {
            metadata::put_json(&mut meta, DLM, dlm);
        }
        if let Some(training) = &checkpoint.training {
            metadata::put_json(&mut meta, TRAINING, training);
        }
        let (text, generation) = (&checkpoint.text, &checkpoint.generation);
        text::put_text(&mut meta, tokenizer, text, generation, spec.vocab_size);
        let entry = |t: &'_ OutTensor<'a>| (t.shape.clone(), t.storage_id(), t.bytes());
        let entries: Vec<_> = tensors.iter().map(entry).collect();
        let named = tensors.iter().zip(&entries);
        let header = meta.header(
            named.map(|(t, (shape, id, bytes))| (t.name.as_str(), &shape[..], *id, *bytes)),
        );
        Ok(Self { header, tensors, losses })
    }

    /// Number of bytes of the file.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let padded = |t: &OutTensor<'_>| t.bytes().next_multiple_of(ALIGNMENT) as u64;
        self.header.len() as u64 + self.tensors.iter().map(padded).sum::<u64>()
    }

    /// Constants that the format rounds, one sentence each. Matrices that are rounded are not among them.
    #[must_use]
    pub fn losses(&self) -> &[String] {
        &self.losses
    }

    /// Writes the file, a tensor at a time.
    ///
    /// # Errors
    /// When writing fails, or a weight has no code in the chosen type.
    pub fn write(&self, out: &mut dyn Write) -> Result<(), ExportError> {
        out.write_all(&self.header)?;
        for tensor in &self.tensors {
            let bytes = tensor.encode()?;
            out.write_all(&bytes)?;
            out.write_all(
                &[0; ALIGNMENT][..bytes.len().next_multiple_of(ALIGNMENT) - bytes.len()],
            )?;
        }
        out.flush()?;
        Ok(())
    }
}

/// Contents of a tensor.
enum Data<'a> {
    Floats(Cow<'a, [f32]>),
    Matrix(&'a Matrix, Storage, RowOrder),
}

struct OutTensor<'a> {
    name: String,
    shape: Vec<usize>,
    data: Data<'a>,
}

impl OutTensor<'_> {
    fn storage_id(&self) -> u32 {
        match &self.data {
            Data::Floats(_) => F32,
            Data::Matrix(_, storage, _) => storage.type_id(),
        }
    }

    fn bytes(&self) -> usize {
        match &self.data {
            Data::Floats(values) => size_of_val(&values[..]),
            Data::Matrix(m, storage, _) => storage.bytes(m.rows(), m.cols()),
        }
    }

    fn encode(&self) -> Result<Bytes, ExportError> {
        let (matrix, storage, order) = match &self.data {
            Data::Floats(values) => {
                return Ok(values.iter().flat_map(|v| v.to_le_bytes()).collect());
            }
            Data::Matrix(matrix, storage, order) => (*matrix, *storage, *order),
        };
        if let (Matrix::Float(m), Storage::Float(_), RowOrder::Same) = (matrix, storage, order) {
            return Ok(m.data().clone());
        }
        let moved = (order != RowOrder::Same).then_some(|row| order.place(row));
        storage.encode(matrix, moved).map(Bytes::from).map_err(|found| {
            let want = "weights that the type has a code for";
            ExportError::unsupported(&self.name, want, found, "choose another type")
        })
    }
}

/// The tensors of a file while they are gathered.
struct Plan<'a> {
    options: GgufOptions,
    names: &'static TensorNames,
    /// Order of the rows of q and k.
    order: RowOrder,
    tied: bool,
    tensors: Vec<OutTensor<'a>>,
    declaration: Declaration<'a>,
    /// Weights of each `general.file_type`.
    kinds: BTreeMap<usize, usize>,
}

impl<'a> Plan<'a> {
    fn new(checkpoint: &Checkpoint, options: GgufOptions) -> Self {
        Self {
            options,
            names: TensorNames::gguf(checkpoint.spec.architecture),
            order: RowOrder::of_gguf(&checkpoint.spec),
            tied: checkpoint.weights.head.is_none(),
            tensors: Vec::new(),
            declaration: Declaration::default(),
            kinds: BTreeMap::new(),
        }
    }

    fn add(&mut self, name: String, shape: Vec<usize>, data: Data<'a>) {
        self.tensors.push(OutTensor { name, shape, data });
    }

    /// Adds a matrix, and returns the factor that its type cannot hold, if there is any.
    fn matrix(
        &mut self,
        name: String,
        matrix: &'a Matrix,
        head: bool,
        order: RowOrder,
    ) -> Result<Option<f32>, ExportError> {
        let (rows, cols) = (matrix.rows(), matrix.cols());
        let storage = match self.options.head.filter(|_| head) {
            Some(HeadType::F16) => Storage::RoundedToF16,
            Some(HeadType::Q8) if cols.is_multiple_of(32) => Storage::RoundedToQ8_0,
            Some(HeadType::Q8) => {
                let found = format!("rows of {cols}");
                let want = "rows of whole blocks of 32 weights";
                return Err(ExportError::unsupported(name, want, found, "take an f16 head"));
            }
            None => Storage::of(matrix, self.options.ternary).map_err(|(found, advice)| {
                let want = match self.options.ternary {
                    Some(kind) => format!("rows and scales of whole {} blocks", kind.name()),
                    None => "rows and scales of whole blocks of 64, 128 or 256 weights".into(),
                };
                ExportError::unsupported(&name, want, found, advice)
            })?,
        };
        *self.kinds.entry(matrix::file_type(storage)).or_default() += rows * cols;
        self.add(name, vec![rows, cols], Data::Matrix(matrix, storage, order));
        match storage {
            Storage::Ternary(_, factor) => Ok(factor),
            _ => Ok(None),
        }
    }
}

impl<'a> TensorSink<'a> for Plan<'a> {
    type Error = ExportError;

    fn embed(
        &mut self,
        role: TensorRole,
        matrix: &'a Matrix,
        rotation: Option<&'a Arc<Rotation>>,
    ) -> Result<(), ExportError> {
        let name = self.names.weight(role);
        if let Some(rotation) = rotation {
            self.declaration.table(&name, matrix.cols(), rotation)?;
        }
        if let Matrix::Ternary(m) = matrix
            && let Scales::Tensor(scale) = m.scales()
            && half::f16::from_f32(*scale).to_f32() != *scale
        {
            let (want, found) = ("a scale in f16", scale.to_string());
            return Err(ExportError::unsupported(name, want, found, "embeddings have no `.scale`"));
        }
        self.matrix(name, matrix, self.tied && role == TensorRole::Embed, RowOrder::Same)
            .map(|_| ())
    }

    fn linear(&mut self, role: TensorRole, linear: &'a Linear) -> Result<(), ExportError> {
        let name = self.names.name(role);
        let order = match role {
            TensorRole::Layer(_, LayerRole::Q | LayerRole::K)
            | TensorRole::Mtp(_, MtpRole::Layer(LayerRole::Q | LayerRole::K)) => self.order,
            _ => RowOrder::Same,
        };
        let weight = self.names.weight(role);
        if let Some(rotation) = &linear.rotation {
            self.declaration.weight(&weight, linear.weight.cols(), rotation)?;
        }
        let factor = self.matrix(weight, &linear.weight, role == TensorRole::Head, order)?;
        if let Some(factor) = factor {
            self.add(format!("{name}.scale"), vec![1], Data::Floats(vec![factor].into()));
        }
        if let Some(bias) = &linear.bias {
            let values = (0..bias.len()).map(|row| bias[order.place(row)]).collect();
            self.add(format!("{name}.bias"), vec![bias.len()], Data::Floats(values));
        }
        Ok(())
    }

    fn floats(
        &mut self,
        role: TensorRole,
        shape: &[usize],
        values: &'a [f32],
    ) -> Result<(), ExportError> {
        self.add(self.names.weight(role), shape.to_vec(), Data::Floats(values.into()));
        Ok(())
    }
}

impl RowOrder {
    /// Order of the rows of q and k in the GGUF files of a family.
    pub(super) fn of_gguf(spec: &crate::format::Spec) -> Self {
        match spec.architecture {
            Architecture::Llama | Architecture::MiniCpm => {
                Self::Interleaved { head_dim: spec.head_dim }
            }
            _ => Self::Same,
        }
    }

    /// The row of the matrix that is row `row` of the file: the inverse of [`RowOrder::source`].
    fn place(self, row: usize) -> usize {
        match self {
            Self::Same => row,
            Self::Interleaved { head_dim } => {
                let (head, i, half) = (row / head_dim, row % head_dim, head_dim / 2);
                head * head_dim + i / 2 + i % 2 * half
            }
        }
    }
}
