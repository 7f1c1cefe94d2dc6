//! Parser of safetensors: eight bytes of header length, a JSON header, the data. It checks that each
//! tensor lies inside the file, overlaps no other, and has the size that its type and shape require.

use super::index::{DType, File, HeaderScan, Tensor, TensorIndex};
use super::{LoadError, LoadErrorKind as Kind};
use crate::matrix::FloatType;
use serde::Deserialize;
use serde::de::{MapAccess, Visitor};
use std::collections::BTreeMap;
use std::fmt;

/// Longest accepted header, in bytes; the largest known models have 10 MB.
const MAX_HEADER: usize = 100 << 20;
/// More dimensions than any model has.
const MAX_DIMS: usize = 8;

/// Tensors and metadata of a file.
pub(super) struct Contents {
    /// All tensors.
    pub(super) index: TensorIndex,
    /// `__metadata__`.
    pub(super) metadata: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct HeaderEntry {
    dtype: String,
    shape: Dims,
    data_offsets: (u64, u64),
}

/// At most [`MAX_DIMS`] dimensions.
#[derive(Deserialize)]
#[serde(try_from = "Vec<u64>")]
struct Dims(Vec<u64>);

impl TryFrom<Vec<u64>> for Dims {
    type Error = String;
    fn try_from(dims: Vec<u64>) -> Result<Self, String> {
        if dims.len() <= MAX_DIMS {
            Ok(Self(dims))
        } else {
            Err(format!("{} dimensions; expected at most {MAX_DIMS}", dims.len()))
        }
    }
}

/// The header in file order; a map would lose duplicates.
#[derive(Default)]
struct Header {
    metadata: BTreeMap<String, String>,
    entries: Vec<(String, HeaderEntry)>,
}

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct HeaderVisitor;
        impl<'de> Visitor<'de> for HeaderVisitor {
            type Value = Header;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map of tensors")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Header, A::Error> {
                let mut header = Header::default();
                while let Some(key) = map.next_key::<String>()? {
                    if key == "__metadata__" {
                        header.metadata = map.next_value()?;
                    } else {
                        let entry = map.next_value()?;
                        header.entries.push((key, entry));
                    }
                }
                Ok(header)
            }
        }
        d.deserialize_map(HeaderVisitor)
    }
}

/// Returns true if the bytes look like the start of a safetensors file.
pub(super) fn recognize(bytes: &[u8]) -> bool {
    bytes.len() > 8 && bytes[8] == b'{' && header_len(bytes).is_some_and(|n| n <= MAX_HEADER)
}

fn header_len(bytes: &[u8]) -> Option<usize> {
    let n = u64::from_le_bytes(bytes.get(..8)?.try_into().ok()?);
    usize::try_from(n).ok()
}

/// Reads the header of one file.
pub(super) fn parse(file: &File) -> Result<Contents, LoadError> {
    let (header, data) = header(file)?;
    check_overlap(&file.name, &header.entries)?;
    let mut index = TensorIndex::default();
    let source: std::sync::Arc<str> = file.name.as_str().into();
    for (name, entry) in header.entries {
        index.insert(tensor((file, &source), data, name, &entry)?)?;
    }
    Ok(Contents { index, metadata: header.metadata })
}

/// Reads the header; also returns the offset of the data after it.
fn header(file: &File) -> Result<(Header, usize), LoadError> {
    let (name, bytes) = (&file.name, &file.bytes);
    let truncated = |want: String| {
        LoadError::new(Kind::Truncated, name, want, format!("{} bytes", bytes.len()))
            .advice("the download may be incomplete")
    };
    let n = match header_len(&bytes.first()) {
        None if bytes.len() < 8 => return Err(truncated("at least 8 bytes".into())),
        Some(n) if n <= MAX_HEADER => n,
        _ => {
            return Err(LoadError::new(
                Kind::Malformed,
                name,
                format!("a safetensors header of at most {MAX_HEADER} bytes"),
                "a longer one",
            ));
        }
    };
    let data = 8 + n;
    if bytes.len() < data {
        return Err(truncated(format!("a header of {n} bytes")));
    }
    let header = serde_json::from_slice(&bytes.slice(8..data)).map_err(|e| {
        LoadError::new(Kind::Malformed, name, "a safetensors header in JSON", e.to_string())
    })?;
    Ok((header, data))
}

/// The tensor of a header entry. The file's data begin at offset `data`.
fn tensor(
    (file, source): (&File, &std::sync::Arc<str>),
    data: usize,
    name: String,
    entry: &HeaderEntry,
) -> Result<Tensor, LoadError> {
    let error = |kind, want: String, found: String| {
        LoadError::new(kind, &file.name, want, found).tensor(&name)
    };
    let (dtype, size) = dtype(&entry.dtype).ok_or_else(|| {
        let want = "F32, F16, BF16, U8 or I8 elements".into();
        error(Kind::UnsupportedType, want, entry.dtype.clone())
    })?;
    let room = file.bytes.len() - data;
    let (begin, end) = entry.data_offsets;
    let range = usize::try_from(begin).ok().zip(usize::try_from(end).ok());
    let Some((begin, end)) = range.filter(|&(b, e)| b <= e && e <= room) else {
        let want = format!("data inside the file's {room} bytes");
        return Err(error(Kind::Offset, want, format!("{begin}..{end}"))
            .advice("the download may be incomplete"));
    };
    let shape: Option<Vec<usize>> =
        entry.shape.0.iter().map(|&d| usize::try_from(d).ok()).collect();
    let want = shape
        .as_ref()
        .and_then(|s| s.iter().try_fold(size, |n, &d| n.checked_mul(d)))
        .filter(|&want| want == end - begin);
    let (Some(shape), Some(_)) = (shape, want) else {
        let want = format!("as many bytes as {} {:?} has", entry.dtype, entry.shape.0);
        return Err(error(Kind::Shape, want, format!("{}", end - begin)));
    };
    let bytes = file.bytes.slice(data + begin..data + end);
    Ok(Tensor { name, file: source.clone(), dtype, shape, bytes })
}

/// Reads the header in the first bytes of a file that [`recognize`] accepted.
pub(super) fn scan_header(head: &[u8]) -> HeaderScan {
    let begin = 8 + header_len(head).unwrap_or(0);
    let Some(text) = head.get(8..begin) else { return HeaderScan::Short(begin) };
    let Ok(header) = serde_json::from_slice::<Header>(text) else { return HeaderScan::Unknown };
    let tensors = header.entries.iter().filter_map(|(_, entry)| {
        let position = |offset| usize::try_from(offset).ok()?.checked_add(begin);
        Some(position(entry.data_offsets.0)?..position(entry.data_offsets.1)?)
    });
    HeaderScan::Tensors(begin, tensors.collect())
}

fn check_overlap(file: &str, entries: &[(String, HeaderEntry)]) -> Result<(), LoadError> {
    let mut order: Vec<(u64, u64, &str)> =
        entries.iter().map(|(k, e)| (e.data_offsets.0, e.data_offsets.1, k.as_str())).collect();
    order.sort_unstable();
    match order.windows(2).find(|w| w[1].0 < w[0].1) {
        None => Ok(()),
        Some(w) => Err(LoadError::new(
            Kind::Offset,
            file,
            format!("data after `{}`, which ends at {}", w[0].2, w[0].1),
            format!("data from {}", w[1].0),
        )
        .tensor(w[1].2)),
    }
}

fn dtype(name: &str) -> Option<(DType, usize)> {
    Some(match name {
        "F32" => (DType::Float(FloatType::F32), 4),
        "F16" => (DType::Float(FloatType::F16), 2),
        "BF16" => (DType::Float(FloatType::Bf16), 2),
        "U8" => (DType::U8, 1),
        "I8" => (DType::I8, 1),
        "I64" => (DType::I64, 8),
        "BOOL" => (DType::Bool, 1),
        _ => return None,
    })
}
