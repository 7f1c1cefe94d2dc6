//! Named tensors of a file: type, shape and a slice of its bytes. Nothing here copies weights.

use super::gguf::GgmlType;
use super::{LoadError, LoadErrorKind, Pieces};
use crate::matrix::FloatType;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A file of a model. A shell maps it into memory, or gives it in pieces of some tensors each
/// ([`Arrival`](super::Arrival)): tensors are views, not copies, as long as none lies across two pieces.
#[derive(Clone, Debug)]
pub struct File {
    /// Its name, for recognition (`config.json`) and for messages.
    pub name: String,
    /// All of it.
    pub bytes: Pieces,
}

impl File {
    /// The name without folders.
    pub(crate) fn base(&self) -> &str {
        self.name.rsplit(['/', '\\']).next().unwrap_or(&self.name)
    }
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
    /// A block type of GGUF.
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
            Self::Block(t) => t.name(),
        }
    }
}

/// A tensor of a file.
#[derive(Clone, Debug)]
pub struct Tensor {
    /// Its name in the file.
    pub name: String,
    /// The file that holds it.
    pub file: Arc<str>,
    /// Element type.
    pub dtype: DType,
    /// Outermost dimension first: a linear layer is `[outputs, inputs]`.
    pub shape: Vec<usize>,
    /// Its bytes, a view into the file; as many as type and shape ask for.
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

    /// Refuses another shape.
    pub(crate) fn expect_shape(&self, want: &[usize]) -> Result<(), LoadError> {
        if self.shape == want {
            return Ok(());
        }
        Err(self
            .error(LoadErrorKind::Shape, format!("shape {want:?}"), format!("{:?}", self.shape))
            .advice("the weights and the configuration are not of the same model"))
    }

    /// A float vector of `len` finite elements.
    pub(crate) fn vector(&self, len: usize) -> Result<Vec<f32>, LoadError> {
        self.expect_shape(&[len])?;
        let DType::Float(dtype) = self.dtype else {
            return Err(self.error(
                LoadErrorKind::UnsupportedType,
                "a vector of F32, F16 or BF16",
                self.dtype.name(),
            ));
        };
        let mut out = vec![0f32; len];
        dtype.read(&self.bytes, &mut out);
        match out.iter().position(|v| !v.is_finite()) {
            Some(at) => Err(self.error(
                LoadErrorKind::NotFinite,
                "finite numbers",
                format!("{} at {at}", out[at]),
            )),
            None => Ok(out),
        }
    }
}

/// The tensors of a model by name. Taking one removes it: what is left was not understood.
#[derive(Clone, Debug, Default)]
pub struct Index {
    tensors: BTreeMap<String, Tensor>,
}

impl Index {
    /// Adds a tensor; two of one name are an error.
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

    /// The tensor of a name.
    pub fn get(&self, name: &str) -> Option<&Tensor> {
        self.tensors.get(name)
    }

    /// All tensors, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Tensor> {
        self.tensors.values()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.tensors.len()
    }

    /// No tensors at all.
    pub fn is_empty(&self) -> bool {
        self.tensors.is_empty()
    }

    /// Takes a tensor out, if it is there.
    pub(crate) fn take(&mut self, name: &str) -> Option<Tensor> {
        self.tensors.remove(name)
    }

    /// Takes all tensors out.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = Tensor> {
        std::mem::take(&mut self.tensors).into_values()
    }

    /// Takes a tensor out that must be there; `file` is where it was sought.
    pub(crate) fn need(&mut self, name: &str, file: &str) -> Result<Tensor, LoadError> {
        self.take(name).ok_or_else(|| {
            let found = format!("{} other tensors", self.len());
            LoadError::new(LoadErrorKind::Missing, file, "the tensor to be there", found)
                .tensor(name)
                .advice("the file is incomplete or of another architecture")
        })
    }

    /// Refuses tensors that nobody took, except those that `known` may be left.
    pub(crate) fn expect_empty(&self, known: impl Fn(&str) -> bool) -> Result<(), LoadError> {
        match self.iter().find(|t| !known(&t.name)) {
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
