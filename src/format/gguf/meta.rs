//! Metadata of a GGUF file, as views into the file.

use crate::format::{LoadError, LoadErrorKind as Kind};
use std::collections::BTreeMap;
use std::fmt::Display;

/// Deepest nesting of arrays.
const MAX_DEPTH: usize = 4;
/// Type ids of 32-bit integers.
const U32: u32 = 4;
const I32: u32 = 5;

/// Reads little-endian numbers and strings, with bounds checks.
#[derive(Clone)]
pub(super) struct ByteReader<'a> {
    pub(super) file: &'a str,
    bytes: &'a [u8],
    at: usize,
}

impl<'a> ByteReader<'a> {
    pub(super) fn new(file: &'a str, bytes: &'a [u8]) -> Self {
        Self { file, bytes, at: 0 }
    }

    /// Bytes read so far.
    pub(super) fn position(&self) -> usize {
        self.at
    }

    fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    pub(super) fn take(&mut self, n: u64, what: impl Display) -> Result<&'a [u8], LoadError> {
        match usize::try_from(n).ok().filter(|&n| n <= self.left()) {
            Some(n) => {
                let bytes = &self.bytes[self.at..self.at + n];
                self.at += n;
                Ok(bytes)
            }
            None => Err(LoadError::new(
                Kind::Truncated,
                self.file,
                format!("{n} bytes of {what} at {}", self.at),
                format!("{} bytes until the end of the file", self.left()),
            )
            .advice("the download may be incomplete")),
        }
    }

    fn array<const N: usize>(&mut self, what: impl Display) -> Result<[u8; N], LoadError> {
        let bytes = self.take(N as u64, what)?;
        Ok(bytes.try_into().expect("take gives as many bytes as asked for"))
    }

    pub(super) fn u32(&mut self, what: impl Display) -> Result<u32, LoadError> {
        Ok(u32::from_le_bytes(self.array(what)?))
    }

    pub(super) fn u64(&mut self, what: impl Display) -> Result<u64, LoadError> {
        Ok(u64::from_le_bytes(self.array(what)?))
    }

    /// Reads the name of a key or a tensor, which is not empty.
    pub(super) fn string(&mut self, what: impl Display) -> Result<&'a str, LoadError> {
        let n = self.u64(format_args!("the length of {what}"))?;
        let at = self.at;
        if n == 0 {
            return Err(self
                .malformed(format!("{what} at {at} of at least one byte"), "an empty string")
                .advice("the file is damaged, or its download incomplete"));
        }
        std::str::from_utf8(self.take(n, &what)?)
            .map_err(|_| self.malformed(format!("{what} at {at} in UTF-8"), "other bytes"))
    }

    /// Reads a text value. Vocabularies may hold tokens that are not UTF-8.
    fn text(&mut self, key: &str) -> Result<MetaValue<'a>, LoadError> {
        let n = self.u64(format_args!("the length of a string in `{key}`"))?;
        let bytes = self.take(n, format_args!("a string in `{key}`"))?;
        Ok(std::str::from_utf8(bytes).map_or(MetaValue::Bytes(bytes), MetaValue::Text))
    }

    pub(super) fn malformed(&self, want: impl Into<String>, found: impl Into<String>) -> LoadError {
        LoadError::new(Kind::Malformed, self.file, want, found)
    }

    /// Reads a value of type `kind`; `key` is for messages.
    pub(super) fn value(&mut self, key: &str, kind: u32) -> Result<MetaValue<'a>, LoadError> {
        self.nested(key, kind, 0)
    }

    fn nested(&mut self, key: &str, kind: u32, depth: usize) -> Result<MetaValue<'a>, LoadError> {
        let what = format_args!("`{key}`");
        Ok(match kind {
            0 => MetaValue::Unsigned(self.array::<1>(what)?[0].into()),
            1 => MetaValue::Signed(i8::from_le_bytes(self.array(what)?).into()),
            2 => MetaValue::Unsigned(u16::from_le_bytes(self.array(what)?).into()),
            3 => MetaValue::Signed(i16::from_le_bytes(self.array(what)?).into()),
            U32 => MetaValue::Unsigned(self.u32(what)?.into()),
            I32 => MetaValue::Signed(i32::from_le_bytes(self.array(what)?).into()),
            6 => MetaValue::Float(f32::from_le_bytes(self.array(what)?).into()),
            7 => MetaValue::Bool(self.array::<1>(what)?[0] != 0),
            8 => self.text(key)?,
            9 => self.list(key, depth)?,
            10 => MetaValue::Unsigned(self.u64(what)?),
            11 => MetaValue::Signed(i64::from_le_bytes(self.array(what)?)),
            12 => MetaValue::Float(f64::from_le_bytes(self.array(what)?)),
            _ => {
                let found = format!("type {kind}");
                return Err(self.malformed(format!("`{key}` of a type from 0 to 12"), found));
            }
        })
    }

    fn list(&mut self, key: &str, depth: usize) -> Result<MetaValue<'a>, LoadError> {
        if depth == MAX_DEPTH {
            return Err(self.malformed(
                format!("`{key}` with at most {MAX_DEPTH} nested arrays"),
                "deeper nesting",
            ));
        }
        let kind = self.u32(format_args!("the type of the elements of `{key}`"))?;
        let count = self.u64(format_args!("the number of elements of `{key}`"))?;
        let elements = Self { file: self.file, bytes: self.bytes, at: self.at };
        match kind {
            8 | 9 => {
                // Every element takes at least eight bytes, so the file's length bounds the loop.
                for _ in 0..count {
                    self.nested(key, kind, depth + 1)?;
                }
            }
            _ => {
                let size = match kind {
                    0 | 1 | 7 => 1,
                    2 | 3 => 2,
                    4..=6 => 4,
                    10..=12 => 8,
                    _ => {
                        let found = format!("type {kind}");
                        let want = format!("elements of `{key}` of a type from 0 to 12");
                        return Err(self.malformed(want, found));
                    }
                };
                self.take(count.saturating_mul(size), format_args!("`{key}`"))?;
            }
        }
        Ok(MetaValue::Array(MetaArray { kind, count, elements }))
    }
}

/// A metadata value.
#[derive(Clone)]
pub(super) enum MetaValue<'a> {
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Bool(bool),
    Text(&'a str),
    /// A text that is not UTF-8.
    Bytes(&'a [u8]),
    Array(MetaArray<'a>),
}

impl MetaValue<'_> {
    fn describe(&self) -> String {
        match self {
            Self::Unsigned(v) => v.to_string(),
            Self::Signed(v) => v.to_string(),
            Self::Float(v) => v.to_string(),
            Self::Bool(v) => v.to_string(),
            Self::Text(v) => format!("{v:?}"),
            Self::Bytes(v) => format!("{:?}, which is not UTF-8", String::from_utf8_lossy(v)),
            Self::Array(v) => format!("a list of {}", v.count),
        }
    }

    fn integer(&self) -> Option<i64> {
        match *self {
            Self::Unsigned(v) => v.try_into().ok(),
            Self::Signed(v) => Some(v),
            _ => None,
        }
    }

    fn unsigned(&self) -> Option<u64> {
        match *self {
            Self::Unsigned(v) => Some(v),
            Self::Signed(v) => v.try_into().ok(),
            _ => None,
        }
    }
}

/// An array whose elements were checked once and are read on demand.
#[derive(Clone)]
pub(super) struct MetaArray<'a> {
    kind: u32,
    count: u64,
    elements: ByteReader<'a>,
}

impl<'a> MetaArray<'a> {
    fn values(&self, key: &str) -> impl Iterator<Item = MetaValue<'a>> {
        let (mut reader, kind) = (self.elements.clone(), self.kind);
        (0..self.count).map_while(move |_| reader.nested(key, kind, MAX_DEPTH).ok())
    }
}

/// All metadata of a file.
pub(super) struct Metadata<'a> {
    pub(super) file: &'a str,
    pub(super) values: BTreeMap<&'a str, MetaValue<'a>>,
}

impl<'a> Metadata<'a> {
    fn wrong(&self, key: &str, want: &str, found: &MetaValue<'_>) -> LoadError {
        let want = format!("`{key}` to be {want}");
        LoadError::new(Kind::Value, self.file, want, found.describe())
    }

    /// Unwraps a required value.
    pub(super) fn need<T>(&self, key: &str, value: Option<T>) -> Result<T, LoadError> {
        value.ok_or_else(|| {
            let want = format!("metadata `{key}`");
            LoadError::new(Kind::Missing, self.file, want, "none of that name")
        })
    }

    fn typed<T>(
        &self,
        key: &str,
        want: &str,
        read: impl Fn(&MetaValue<'a>) -> Option<T>,
    ) -> Result<Option<T>, LoadError> {
        match self.values.get(key) {
            None => Ok(None),
            Some(v) => read(v).map(Some).ok_or_else(|| self.wrong(key, want, v)),
        }
    }

    pub(super) fn text(&self, key: &str) -> Result<Option<&'a str>, LoadError> {
        self.typed(key, "text", |v| match v {
            MetaValue::Text(t) => Some(*t),
            _ => None,
        })
    }

    pub(super) fn bool(&self, key: &str) -> Result<Option<bool>, LoadError> {
        self.typed(key, "true or false", |v| match v {
            MetaValue::Bool(b) => Some(*b),
            _ => None,
        })
    }

    pub(super) fn float(&self, key: &str) -> Result<Option<f64>, LoadError> {
        self.typed(key, "a number", |v| match v {
            MetaValue::Float(f) => Some(*f),
            v => v.unsigned().map(|n| n as f64),
        })
    }

    pub(super) fn id(&self, key: &str) -> Result<Option<u32>, LoadError> {
        self.typed(key, "a token id", |v| v.unsigned()?.try_into().ok())
    }

    pub(super) fn integer(&self, key: &str) -> Result<Option<i64>, LoadError> {
        self.typed(key, "a whole number", MetaValue::integer)
    }

    /// Reads a size. A list with the same size for each layer counts as that size.
    pub(super) fn size(&self, key: &str) -> Result<Option<usize>, LoadError> {
        self.typed(key, "one size for all layers", |v| match v {
            MetaValue::Array(list) => {
                let mut sizes = list.values(key).map(|v| v.unsigned());
                let first = sizes.next()??;
                sizes.all(|s| s == Some(first)).then_some(first)?.try_into().ok()
            }
            v => v.unsigned()?.try_into().ok(),
        })
    }

    /// Reads the elements of a list.
    pub(super) fn list<T>(
        &self,
        key: &str,
        want: &str,
        read: impl Fn(MetaValue<'a>) -> Option<T>,
    ) -> Result<Option<Vec<T>>, LoadError> {
        self.typed(key, want, |v| match v {
            MetaValue::Array(list) => list.values(key).map(&read).collect(),
            _ => None,
        })
    }

    /// Reads a list of truth values.
    pub(super) fn bools(&self, key: &str) -> Result<Option<Vec<bool>>, LoadError> {
        self.list(key, "a list of true or false", |v| match v {
            MetaValue::Bool(b) => Some(b),
            _ => None,
        })
    }

    /// Reads a list of i32, or also of u32.
    pub(super) fn integers(
        &self,
        key: &str,
        unsigned: bool,
    ) -> Result<Option<Vec<i64>>, LoadError> {
        let want = if unsigned { "a list of i32 or u32" } else { "a list of i32" };
        self.typed(key, want, |v| match v {
            MetaValue::Array(list) if list.kind == I32 || (unsigned && list.kind == U32) => {
                list.values(key).map(|v| v.integer()).collect()
            }
            _ => None,
        })
    }

    /// Reads a list of texts. Bytes that are not UTF-8 become U+FFFD.
    pub(super) fn texts(&self, key: &str) -> Result<Option<Vec<String>>, LoadError> {
        self.list(key, "a list of texts", |v| match v {
            MetaValue::Text(t) => Some(t.to_owned()),
            MetaValue::Bytes(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
            _ => None,
        })
    }
}
