//! Errors of loading a model file: the file and tensor, the expected and found values, and advice.

use crate::ternary::{LayoutError, one_bit};
use std::fmt;

/// Kind of a [`LoadError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LoadErrorKind {
    /// The files are not a model in a known format.
    NotAModel,
    /// The file is shorter than its header says.
    Truncated,
    /// The bytes break the rules of their format.
    Malformed,
    /// A tensor lies outside the file or overlaps another one.
    Offset,
    /// A tensor, file or configuration value that the model needs is missing.
    Missing,
    /// A tensor has no role in the model. Ignoring it would give wrong answers.
    Unexpected,
    /// The shape of a tensor does not match the configuration.
    Shape,
    /// A weight, scale, norm or bias is NaN or infinite.
    NotFinite,
    /// A configuration value is out of range.
    Value,
    /// The model family is not supported.
    UnsupportedArchitecture,
    /// The element type of a tensor is not supported.
    UnsupportedType,
    /// The model uses a feature that is not supported.
    UnsupportedFeature,
}

impl LoadErrorKind {
    /// A stable name of the kind, for programs.
    pub fn code(self) -> &'static str {
        match self {
            Self::NotAModel => "not_a_model",
            Self::Truncated => "truncated",
            Self::Malformed => "malformed",
            Self::Offset => "bad_offset",
            Self::Missing => "missing",
            Self::Unexpected => "unexpected_tensor",
            Self::Shape => "bad_shape",
            Self::NotFinite => "not_finite",
            Self::Value => "bad_value",
            Self::UnsupportedArchitecture => "unsupported_architecture",
            Self::UnsupportedType => "unsupported_type",
            Self::UnsupportedFeature => "unsupported_feature",
        }
    }
}

/// An error in model files. It names the file and the tensor, says what was expected and what was
/// found, and gives advice where there is any.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub struct LoadError(Box<Detail>);

#[derive(Clone, Debug, PartialEq)]
struct Detail {
    kind: LoadErrorKind,
    file: String,
    tensor: Option<String>,
    expected: String,
    found: String,
    advice: Option<String>,
}

/// Names come from untrusted files, so a message shows at most this many characters of one.
const SHOWN: usize = 160;

impl LoadError {
    /// Creates an error; `expected` and `found` complete the sentence "expected …, found …".
    pub(crate) fn new(
        kind: LoadErrorKind,
        file: &str,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> Self {
        Self(Box::new(Detail {
            kind,
            file: shorten(file),
            tensor: None,
            expected: expected.into(),
            found: shorten(&found.into()),
            advice: None,
        }))
    }

    /// Adds the tensor's name.
    pub(crate) fn tensor(mut self, name: &str) -> Self {
        self.0.tensor = Some(shorten(name));
        self
    }

    /// Adds advice on what to do.
    pub(crate) fn advice(mut self, advice: impl Into<String>) -> Self {
        self.0.advice = Some(advice.into());
        self
    }

    /// The error of a matrix that could not be built from a tensor.
    pub(crate) fn layout(file: &str, tensor: &str, error: &LayoutError) -> Self {
        use LoadErrorKind as K;
        let (kind, expected) = match error {
            LayoutError::Scale { .. } => (K::NotFinite, "finite weights".into()),
            LayoutError::Size { want, rows, cols, .. } => {
                (K::Shape, format!("{want} bytes for {rows} × {cols}"))
            }
            LayoutError::Group(_, multiple) => {
                (K::UnsupportedType, format!("groups of a multiple of {multiple} columns"))
            }
            LayoutError::OneBit { .. } => (
                K::Shape,
                format!("columns in whole groups of {}, each with a scale", one_bit::GROUP),
            ),
            LayoutError::TooLarge(..) => (K::Shape, "a matrix that fits in memory".into()),
        };
        let found = match error {
            LayoutError::Scale { value, row, col } => {
                format!("the scale {value} of the weights from row {row}, column {col} on")
            }
            LayoutError::Size { found, .. } => format!("{found} bytes"),
            LayoutError::Group(size, _) => format!("groups of {size}"),
            LayoutError::OneBit { cols, found } => {
                format!("{cols} columns, a scale for each {found}")
            }
            LayoutError::TooLarge(rows, cols) => format!("{rows} × {cols}"),
        };
        Self::new(kind, file, expected, found).tensor(tensor)
    }

    /// The kind of error.
    pub fn kind(&self) -> LoadErrorKind {
        self.0.kind
    }

    /// A stable name of the kind, for programs.
    pub fn code(&self) -> &'static str {
        self.0.kind.code()
    }

    /// The faulty file.
    pub fn file(&self) -> &str {
        &self.0.file
    }

    /// The faulty tensor, if the error is about one.
    pub fn tensor_name(&self) -> Option<&str> {
        self.0.tensor.as_deref()
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Detail { file, tensor, expected, found, advice, .. } = &*self.0;
        write!(f, "{file}: ")?;
        if let Some(tensor) = tensor {
            write!(f, "tensor `{tensor}`: ")?;
        }
        write!(f, "expected {expected}, found {found}")?;
        match advice {
            Some(advice) => write!(f, " ({advice})"),
            None => Ok(()),
        }
    }
}

fn shorten(text: &str) -> String {
    match text.char_indices().nth(SHOWN) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.into(),
    }
}
