//! Parser of the container: header, metadata, tensor list. It never trusts a count: the file's length
//! bounds every loop and allocation.

use super::meta::{ByteReader, Metadata};
use super::spec::mtp_blocks;
use super::types::{ambiguous, candidates, foreign_name, size};
use crate::format::index::{DType, Tensor, TensorIndex};
use crate::format::streamed_file::HeaderScan;
use crate::format::{FileBytes, LoadError, LoadErrorKind as Kind};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Largest number of dimensions of a tensor.
const MAX_DIMS: u32 = 4;
const DEFAULT_ALIGNMENT: usize = 32;
/// A type id that two block formats share.
const TWO_BIT_ID: u32 = 42;
/// Largest accepted alignment: a huge page.
const MAX_ALIGNMENT: usize = 1 << 21;

/// An entry of the tensor list.
struct TensorInfo<'a> {
    name: &'a str,
    /// Dimensions, the outermost first.
    shape: Vec<usize>,
    type_id: u32,
    /// Offset from the start of the data.
    offset: usize,
    /// Bytes until the next tensor or the end of the file.
    available: usize,
}

impl TensorInfo<'_> {
    /// Rows and columns; all dimensions but the innermost count as rows.
    fn rows_cols(&self) -> Option<(usize, usize)> {
        let (cols, outer) = self.shape.split_last()?;
        Some((outer.iter().try_fold(1usize, |n, &d| n.checked_mul(d))?, *cols))
    }

    fn size(&self, dtype: DType) -> Option<usize> {
        let (rows, cols) = self.rows_cols()?;
        size(dtype, rows, cols)
    }
}

/// Everything in front of the data.
struct Header<'a> {
    meta: Metadata<'a>,
    infos: Vec<TensorInfo<'a>>,
    alignment: usize,
    /// End of the header, without padding.
    end: usize,
}

/// The tensors of a file.
pub(super) struct Tensors {
    /// Those of the model.
    pub index: TensorIndex,
    /// Those of blocks that draft tokens; an error if one cannot be read.
    pub mtp: Result<TensorIndex, LoadError>,
}

/// Reads metadata and tensor list of a file. `head` is its first segment, which holds both.
pub(super) fn parse<'a>(
    name: &'a str,
    head: &'a [u8],
    bytes: FileBytes,
) -> Result<(Metadata<'a>, Tensors), LoadError> {
    let Header { meta, infos, alignment, end } = header(name, head)?;
    // A file without tensors may end before the padding.
    let begin = end.next_multiple_of(alignment).min(bytes.len());
    let tensors = locate_tensors((name, &bytes), infos, begin, alignment, &meta)?;
    Ok((meta, tensors))
}

/// Reads the header in the first bytes of a GGUF file.
pub(in crate::format) fn scan_header(head: &[u8]) -> HeaderScan {
    match header("", head) {
        Ok(Header { mut infos, alignment, end, .. }) => {
            let begin = end.next_multiple_of(alignment);
            infos.sort_by_key(|t| t.offset);
            let position = |t: &TensorInfo<'_>| begin.saturating_add(t.offset);
            let ends = infos.iter().skip(1).map(position).chain([usize::MAX]);
            let tensors = infos.iter().map(position).zip(ends).map(|(begin, end)| begin..end);
            HeaderScan::Tensors(begin, tensors.collect())
        }
        Err(error) if error.kind() == Kind::Truncated => HeaderScan::Short(head.len() + 1),
        Err(_) => HeaderScan::Unknown,
    }
}

fn header<'a>(name: &'a str, head: &'a [u8]) -> Result<Header<'a>, LoadError> {
    let mut r = ByteReader::new(name, head);
    if r.take(4, "magic")? != b"GGUF" {
        return Err(r.malformed("the magic GGUF", "something else"));
    }
    let version = r.u32("version")?;
    if !(2..=3).contains(&version) {
        let found = match version.swap_bytes() {
            1..=3 => "a big-endian file".into(),
            _ => format!("version {version}"),
        };
        return Err(LoadError::new(
            Kind::UnsupportedFeature,
            name,
            "little-endian GGUF version 2 or 3",
            found,
        ));
    }
    let tensors = r.u64("tensor count")?;
    let keys = r.u64("metadata count")?;
    let meta = parse_meta(&mut r, keys)?;
    let infos = parse_infos(&mut r, tensors)?;
    let alignment = alignment(&meta)?;
    Ok(Header { meta, infos, alignment, end: r.position() })
}

fn parse_meta<'a>(r: &mut ByteReader<'a>, keys: u64) -> Result<Metadata<'a>, LoadError> {
    let mut values = BTreeMap::new();
    for n in 0..keys {
        let key = r.string(format!("metadata key {n}"))?;
        let kind = r.u32(key)?;
        let value = r.value(key, kind)?;
        if values.insert(key, value).is_some() {
            return Err(r.malformed("every metadata key once", format!("`{key}` twice")));
        }
    }
    Ok(Metadata { file: r.file, values })
}

fn parse_infos<'a>(r: &mut ByteReader<'a>, tensors: u64) -> Result<Vec<TensorInfo<'a>>, LoadError> {
    let mut infos = Vec::new();
    for n in 0..tensors {
        let name = r.string(format!("the name of tensor {n}"))?;
        let dims = r.u32(name)?;
        if dims > MAX_DIMS {
            return Err(r
                .malformed(format!("at most {MAX_DIMS} dimensions"), dims.to_string())
                .tensor(name));
        }
        let mut shape = Vec::new();
        for _ in 0..dims {
            let dim = r.u64(name)?;
            shape.push(usize::try_from(dim).map_err(|_| {
                r.malformed("dimensions that fit in memory", dim.to_string()).tensor(name)
            })?);
        }
        shape.reverse();
        let type_id = r.u32(name)?;
        let offset = r.u64(name)?;
        let offset = usize::try_from(offset).map_err(|_| {
            LoadError::new(Kind::Offset, r.file, "data inside the file", offset.to_string())
                .tensor(name)
        })?;
        infos.push(TensorInfo { name, shape, type_id, offset, available: 0 });
    }
    Ok(infos)
}

fn alignment(meta: &Metadata<'_>) -> Result<usize, LoadError> {
    const KEY: &str = "general.alignment";
    match meta.size(KEY)? {
        None => Ok(DEFAULT_ALIGNMENT),
        Some(a) if a.is_power_of_two() && a <= MAX_ALIGNMENT => Ok(a),
        Some(a) => Err(LoadError::new(
            Kind::Value,
            meta.file,
            format!("`{KEY}` to be a power of two up to {MAX_ALIGNMENT}"),
            a.to_string(),
        )),
    }
}

/// Finds each tensor's bytes, and its type from their number.
fn locate_tensors(
    (file, bytes): (&str, &FileBytes),
    mut infos: Vec<TensorInfo<'_>>,
    begin: usize,
    alignment: usize,
    meta: &Metadata<'_>,
) -> Result<Tensors, LoadError> {
    let data_len = bytes.len() - begin;
    infos.sort_by_key(|t| t.offset);
    for i in 0..infos.len() {
        let end = infos.get(i + 1).map_or(data_len, |next| next.offset.min(data_len));
        let t = &mut infos[i];
        let error = |want: String| {
            LoadError::new(Kind::Offset, file, want, t.offset.to_string()).tensor(t.name)
        };
        if !t.offset.is_multiple_of(alignment) {
            return Err(error(format!("an offset that is a multiple of {alignment}")));
        }
        if t.offset > data_len {
            return Err(error(format!("an offset inside the {data_len} bytes of data"))
                .advice("the download may be incomplete"));
        }
        t.available = end - t.offset;
    }
    let trunk = trunk_blocks(meta)?;
    let drafts =
        |t: &TensorInfo<'_>| block(t.name).zip(trunk).is_some_and(|(block, trunk)| block >= trunk);
    let (mtp, infos): (Vec<_>, Vec<_>) = infos.into_iter().partition(drafts);
    let two_bit = two_bit_type(&infos, alignment);
    let source: Arc<str> = file.into();
    let index = |infos: Vec<TensorInfo<'_>>| -> Result<TensorIndex, LoadError> {
        let mut index = TensorIndex::default();
        for t in infos {
            let (dtype, size) = choose_type(file, &t, two_bit, alignment)?;
            index.insert(Tensor {
                name: t.name.into(),
                file: source.clone(),
                dtype,
                bytes: bytes.slice(begin + t.offset..begin + t.offset + size),
                shape: t.shape,
            })?;
        }
        Ok(index)
    };
    Ok(Tensors { index: index(infos)?, mtp: index(mtp) })
}

/// Number of blocks in front of those that draft tokens (multi-token prediction), if there are any. The
/// drafting blocks are no layers of the model, and may have types that are not supported.
pub(super) fn trunk_blocks(meta: &Metadata<'_>) -> Result<Option<usize>, LoadError> {
    let blocks = meta.size("qwen35.block_count")?;
    let drafting = mtp_blocks(meta)?;
    Ok(blocks.zip(drafting).map(|(blocks, drafting)| blocks.saturating_sub(drafting)))
}

/// Number of the block that a tensor belongs to.
pub(super) fn block(name: &str) -> Option<usize> {
    name.strip_prefix("blk.")?.split('.').next()?.parse().ok()
}

/// Returns true if a tensor of this size fills the available bytes, except for padding.
fn fits(size: usize, available: usize, alignment: usize) -> bool {
    size <= available && available - size < alignment
}

/// The types of an id that match the tensor's size.
fn fitting(t: &TensorInfo<'_>, alignment: usize) -> Vec<DType> {
    let fits = |&dtype: &DType| t.size(dtype).is_some_and(|n| fits(n, t.available, alignment));
    candidates(t.type_id).iter().copied().filter(fits).collect()
}

/// The meaning of type id 42 in this file, if all tensors whose size decides it agree.
fn two_bit_type(infos: &[TensorInfo<'_>], alignment: usize) -> Option<DType> {
    let mut decided =
        infos.iter().filter(|t| t.type_id == TWO_BIT_ID).filter_map(|t| {
            match fitting(t, alignment)[..] {
                [dtype] => Some(dtype),
                _ => None,
            }
        });
    let first = decided.next()?;
    decided.all(|dtype| dtype == first).then_some(first)
}

/// Names of the supported types, for messages.
const SUPPORTED: &str = "F32, F16, BF16, F64, Q8_0, Q5_0, Q5_1, Q4_0, Q4_1, Q2_K to Q6_K, IQ4_NL, IQ4_XS, \
    MXFP4, TQ1_0, TQ2_0, Q2_0, PQ2_0, PTQ1_0, I2_S, IQ1_BN or IQ2_BN";

fn choose_type(
    file: &str,
    t: &TensorInfo<'_>,
    two_bit: Option<DType>,
    alignment: usize,
) -> Result<(DType, usize), LoadError> {
    let error =
        |kind, want: String, found: String| LoadError::new(kind, file, want, found).tensor(t.name);
    let unsupported = |found: String| error(Kind::UnsupportedType, SUPPORTED.into(), found);
    let kind = match candidates(t.type_id) {
        [] => {
            let name = foreign_name(t.type_id);
            return Err(unsupported(format!("type {} ({name})", t.type_id))
                .advice("convert the original weights instead"));
        }
        [kind] => *kind,
        several => match (&fitting(t, alignment)[..], two_bit) {
            ([kind], _) => *kind,
            ([_, ..], Some(kind)) => kind,
            ([_, ..], None) => {
                return Err(unsupported(
                    "type 42 of a size that fits blocks of 64 and of 128".into(),
                ));
            }
            ([], _) => {
                let sizes: Vec<usize> = several.iter().filter_map(|&d| t.size(d)).collect();
                return Err(unsupported(format!(
                    "type 42 ({}) in {} bytes for {:?}, which Q2_0 and PQ2_0 store in {sizes:?}",
                    foreign_name(t.type_id),
                    t.available,
                    t.shape
                ))
                .advice("if it is a Q2_0 file, the download may be incomplete"));
            }
        },
    };
    let Some(size) = t.size(kind) else {
        return Err(error(
            Kind::Shape,
            format!("rows that are a multiple of {} blocks", kind.name()),
            format!("{:?}", t.shape),
        ));
    };
    if ambiguous(kind) && !fits(size, t.available, alignment) {
        let name = foreign_name(t.type_id);
        return Err(unsupported(format!(
            "type {} ({name}) in {} bytes for {:?}, which {} stores in {size}",
            t.type_id,
            t.available,
            t.shape,
            kind.name()
        )));
    }
    if size > t.available {
        let found = format!("{} bytes until the next tensor or the file's end", t.available);
        return Err(error(Kind::Offset, format!("{size} bytes"), found)
            .advice("the download may be incomplete"));
    }
    Ok((kind, size))
}
