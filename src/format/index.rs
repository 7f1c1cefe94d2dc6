//! Named tensors of a file: type, shape and a view of the bytes. Nothing here copies weights.

use super::gguf::types::GgmlType;
use super::{FileBytes, LoadError, LoadErrorKind};
use crate::matrix::FloatType;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// A file of a model: mapped into memory, embedded, or received in segments
/// ([`StreamedFile`](super::StreamedFile)). Tensors are views into it, except those that lie across
/// two segments, which are copied.
#[derive(Clone, Debug)]
pub struct File {
    /// Name of the file, for recognition (`config.json`) and for messages.
    pub name: String,
    /// Contents of the file.
    pub bytes: FileBytes,
}

impl File {
    /// The name without folders.
    pub(crate) fn base(&self) -> &str {
        self.name.rsplit(['/', '\\']).next().unwrap_or(&self.name)
    }
}

/// Result of reading the header in the first bytes of a file.
pub(super) enum HeaderScan {
    /// The header is incomplete; at least this many bytes are needed.
    Short(usize),
    /// End of the header, and the byte range of each tensor.
    Tensors(usize, Vec<Range<usize>>),
    /// Not a model, or a damaged one.
    Unknown,
}

/// Element type of a [`Tensor`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DType {
    /// f32, f16 or bf16.
    Float(FloatType),
    /// Unsigned bytes.
    U8,
    /// Signed bytes.
    I8,
    /// Signed integers of 64 bits.
    I64,
    /// Truth values, a byte each.
    Bool,
    /// A block format of GGUF.
    Block(GgmlType),
}

impl DType {
    /// The name that its file format uses.
    pub fn name(self) -> &'static str {
        match self {
            Self::Float(FloatType::F32) => "F32",
            Self::Float(FloatType::F16) => "F16",
            Self::Float(FloatType::Bf16) => "BF16",
            Self::U8 => "U8",
            Self::I8 => "I8",
            Self::I64 => "I64",
            Self::Bool => "BOOL",
            Self::Block(t) => t.name(),
        }
    }
}

/// A tensor of a file.
#[derive(Clone, Debug)]
pub struct Tensor {
    /// Name of the tensor in the file.
    pub name: String,
    /// Name of the file.
    pub file: Arc<str>,
    /// Element type.
    pub dtype: DType,
    /// Dimensions, the outermost first: a linear layer is `[outputs, inputs]`.
    pub shape: Vec<usize>,
    /// Data, a view into the file. Its length matches type and shape.
    pub bytes: Bytes,
}

impl Tensor {
    /// An error about this tensor.
    pub(crate) fn error(
        &self,
        kind: LoadErrorKind,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> LoadError {
        LoadError::new(kind, &self.file, expected, found).tensor(&self.name)
    }

    /// The same bytes in another shape.
    pub(crate) fn with_shape(&self, shape: Vec<usize>) -> Self {
        Self { shape, ..self.clone() }
    }

    /// Returns an error unless the tensor has this shape.
    pub(crate) fn expect_shape(&self, want: &[usize]) -> Result<(), LoadError> {
        if self.shape == want {
            return Ok(());
        }
        Err(self
            .error(LoadErrorKind::Shape, format!("shape {want:?}"), format!("{:?}", self.shape))
            .advice("the weights and the configuration belong to different models"))
    }

    /// Reads a vector of `len` finite floats.
    pub(crate) fn vector(&self, len: usize) -> Result<Vec<f32>, LoadError> {
        self.floats(&[len])
    }

    /// Reads a vector of integers.
    pub(crate) fn integers(&self) -> Result<Vec<i64>, LoadError> {
        if self.dtype != DType::I64 || self.shape.len() != 1 {
            let found = format!("{} of shape {:?}", self.dtype.name(), self.shape);
            return Err(self.error(LoadErrorKind::UnsupportedType, "a vector of I64", found));
        }
        let integers = self.bytes.as_chunks().0.iter().map(|bytes| i64::from_le_bytes(*bytes));
        Ok(integers.collect())
    }

    /// Reads finite floats of this shape, row-major.
    pub(crate) fn floats(&self, shape: &[usize]) -> Result<Vec<f32>, LoadError> {
        self.expect_shape(shape)?;
        let DType::Float(dtype) = self.dtype else {
            return Err(self.error(
                LoadErrorKind::UnsupportedType,
                "F32, F16 or BF16",
                self.dtype.name(),
            ));
        };
        let mut out = vec![0f32; shape.iter().product()];
        dtype.read(&self.bytes, &mut out);
        match out.iter().position(|v| !v.is_finite()) {
            Some(at) => Err(self.error(
                LoadErrorKind::NotFinite,
                "finite numbers",
                format!("{} in column {at}", out[at]),
            )),
            None => Ok(out),
        }
    }
}

/// The tensors of a model by name. Loading removes each tensor that it uses; those that are left
/// have no role in the model.
#[derive(Clone, Debug, Default)]
pub struct TensorIndex {
    tensors: BTreeMap<String, Tensor>,
}

impl TensorIndex {
    /// Adds a tensor.
    ///
    /// # Errors
    /// When there is one of the same name.
    pub(crate) fn insert(&mut self, tensor: Tensor) -> Result<(), LoadError> {
        match self.tensors.get(&tensor.name) {
            Some(first) => Err(tensor.error(
                LoadErrorKind::Malformed,
                "every tensor once",
                format!("a second one (the first is in {})", first.file),
            )),
            None => {
                self.tensors.insert(tensor.name.clone(), tensor);
                Ok(())
            }
        }
    }

    /// The tensor with this name.
    pub fn get(&self, name: &str) -> Option<&Tensor> {
        self.tensors.get(name)
    }

    /// All tensors, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = &Tensor> {
        self.tensors.values()
    }

    /// Number of tensors of each element type, by its name.
    pub fn types(&self) -> BTreeMap<&'static str, usize> {
        let mut types = BTreeMap::new();
        self.iter().for_each(|t| *types.entry(t.dtype.name()).or_default() += 1);
        types
    }

    /// Number of tensors.
    pub fn len(&self) -> usize {
        self.tensors.len()
    }

    /// True if there are no tensors.
    pub fn is_empty(&self) -> bool {
        self.tensors.is_empty()
    }

    /// Removes and returns a tensor, if there is one of this name.
    pub(crate) fn take(&mut self, name: &str) -> Option<Tensor> {
        self.tensors.remove(name)
    }

    /// Removes and returns all tensors.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = Tensor> {
        std::mem::take(&mut self.tensors).into_values()
    }

    /// Removes and returns a required tensor; an error names `file`, where it was expected.
    pub(crate) fn need(&mut self, name: &str, file: &str) -> Result<Tensor, LoadError> {
        self.take(name).ok_or_else(|| self.missing(name, file))
    }

    /// The error for a required tensor that `file` does not have.
    pub(crate) fn missing(&self, name: &str, file: &str) -> LoadError {
        let found = format!("{} other tensors", self.len());
        LoadError::new(LoadErrorKind::Missing, file, "it in the file", found)
            .tensor(name)
            .advice("the file is incomplete or of another architecture")
    }

    /// Refuses tensors that are left, except those for which `ignored` returns true.
    pub(crate) fn expect_empty(&self, ignored: impl Fn(&str) -> bool) -> Result<(), LoadError> {
        match self.iter().find(|t| !ignored(&t.name)) {
            None => Ok(()),
            Some(t) => Err(t
                .error(
                    LoadErrorKind::Unexpected,
                    "only tensors that this architecture uses",
                    "one that would be ignored",
                )
                .advice("the model is a variant that is not supported")),
        }
    }
}
