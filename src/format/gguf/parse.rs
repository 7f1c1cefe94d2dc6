//! Parser of the container: header, metadata, tensor list. It never trusts a count: the file's length
//! bounds every loop and allocation.

use super::keys::mtp_blocks;
use super::meta::{ByteReader, Metadata};
use super::type_ids::{Meaning, advice, ambiguous, candidates, names};
use crate::format::index::{DType, HeaderScan, Tensor, TensorIndex};
use crate::format::{FileBytes, LoadError, LoadErrorKind as Kind};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Largest number of dimensions of a tensor.
const MAX_DIMS: u32 = 4;
const DEFAULT_ALIGNMENT: usize = 32;
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

    fn size(&self, meaning: Meaning) -> Option<usize> {
        let (rows, cols) = self.rows_cols()?;
        meaning.size(rows, cols)
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
    if r.take(4, "the magic")? != b"GGUF" {
        return Err(r.malformed("the magic GGUF", "something else"));
    }
    let version = r.u32("the version")?;
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
    let tensors = r.u64("the tensor count")?;
    let keys = r.u64("the metadata count")?;
    let meta = parse_meta(&mut r, keys)?;
    let infos = parse_infos(&mut r, tensors)?;
    let alignment = alignment(&meta)?;
    Ok(Header { meta, infos, alignment, end: r.position() })
}

fn parse_meta<'a>(r: &mut ByteReader<'a>, keys: u64) -> Result<Metadata<'a>, LoadError> {
    let mut values = BTreeMap::new();
    for n in 0..keys {
        let key = r.string(format!("metadata key {n}"))?;
        let kind = r.u32(format_args!("the type of `{key}`"))?;
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
        let dims = r.u32(format_args!("the number of dimensions of `{name}`"))?;
        if dims > MAX_DIMS {
            return Err(r
                .malformed(format!("at most {MAX_DIMS} dimensions"), dims.to_string())
                .tensor(name));
        }
        let mut shape = Vec::new();
        for _ in 0..dims {
            let dim = r.u64(format_args!("a dimension of `{name}`"))?;
            shape.push(usize::try_from(dim).map_err(|_| {
                r.malformed("dimensions that fit in memory", dim.to_string()).tensor(name)
            })?);
        }
        shape.reverse();
        let type_id = r.u32(format_args!("the type of `{name}`"))?;
        let offset = r.u64(format_args!("the offset of `{name}`"))?;
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
    let decided = decided_meanings(&infos, alignment);
    let source: Arc<str> = file.into();
    let index = |infos: Vec<TensorInfo<'_>>| -> Result<TensorIndex, LoadError> {
        let mut index = TensorIndex::default();
        for t in infos {
            let (dtype, size) = choose_type(file, &t, &decided, alignment)?;
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

/// The meanings of a tensor's type id that match its size.
fn fitting(t: &TensorInfo<'_>, alignment: usize) -> Vec<Meaning> {
    let fits =
        |&meaning: &Meaning| t.size(meaning).is_some_and(|n| fits(n, t.available, alignment));
    candidates(t.type_id).iter().copied().filter(fits).collect()
}

/// The meaning of each type id in this file, where all tensors whose size decides it agree.
fn decided_meanings(infos: &[TensorInfo<'_>], alignment: usize) -> BTreeMap<u32, Meaning> {
    let mut decided: BTreeMap<u32, Option<Meaning>> = BTreeMap::new();
    for t in infos.iter().filter(|t| candidates(t.type_id).len() > 1) {
        if let [meaning] = fitting(t, alignment)[..] {
            let first = decided.entry(t.type_id).or_insert(Some(meaning));
            *first = first.filter(|&first| first == meaning);
        }
    }
    decided.into_iter().filter_map(|(id, meaning)| Some((id, meaning?))).collect()
}

/// Names of the supported types, for messages.
const SUPPORTED: &str = "F32, F16, BF16, F64, Q8_0, Q5_0, Q5_1, Q4_0, Q4_1, Q2_K to Q6_K, IQ4_NL, IQ4_XS, \
    MXFP4, TQ1_0, TQ2_0, Q2_0, PQ2_0, PTQ1_0, Q1_0, STQ1_0, I2_S, IQ1_BN or IQ2_BN";

fn choose_type(
    file: &str,
    t: &TensorInfo<'_>,
    decided: &BTreeMap<u32, Meaning>,
    alignment: usize,
) -> Result<(DType, usize), LoadError> {
    let error =
        |kind, want: String, found: String| LoadError::new(kind, file, want, found).tensor(t.name);
    let unsupported = |found: String| error(Kind::UnsupportedType, SUPPORTED.into(), found);
    let several = candidates(t.type_id);
    let Some(first) = several.first() else {
        let found = format!("type {} ({})", t.type_id, names(t.type_id));
        return Err(unsupported(found).advice(advice(t.type_id)));
    };
    if several.iter().all(|&meaning| t.size(meaning).is_none()) {
        let kinds: Vec<_> = several.iter().map(|meaning| meaning.name()).collect();
        let want = format!("rows that are a multiple of {} blocks", kinds.join(" or "));
        return Err(error(Kind::Shape, want, format!("{:?}", t.shape)));
    }
    let meaning = match &fitting(t, alignment)[..] {
        [meaning] => *meaning,
        [] if !ambiguous(t.type_id) => *first,
        [] => return Err(unsupported(of_no_size(t)).advice("the download may be incomplete")),
        several => match decided.get(&t.type_id).filter(|meaning| several.contains(meaning)) {
            Some(meaning) => *meaning,
            None => {
                let kinds: Vec<_> = several.iter().map(|meaning| meaning.name()).collect();
                let found =
                    format!("type {} of a size that fits {}", t.type_id, kinds.join(" and "));
                return Err(unsupported(found));
            }
        },
    };
    let kind = match meaning {
        Meaning::Read(kind) => kind,
        Meaning::Refused(layout) => {
            let found = format!("type {} ({})", t.type_id, meaning.name());
            return Err(unsupported(found).advice(layout.advice));
        }
    };
    match t.size(meaning) {
        Some(size) if size <= t.available => Ok((kind, size)),
        size => {
            let found = format!("{} bytes until the next tensor or the file's end", t.available);
            let want = format!("{} bytes", size.unwrap_or_default());
            Err(error(Kind::Offset, want, found).advice("the download may be incomplete"))
        }
    }
}

/// Describes a tensor whose size fits no meaning of its type id.
fn of_no_size(t: &TensorInfo<'_>) -> String {
    let sizes: Vec<String> = candidates(t.type_id)
        .iter()
        .filter_map(|&meaning| Some(format!("{} stores in {}", meaning.name(), t.size(meaning)?)))
        .collect();
    format!(
        "type {} ({}) in {} bytes for {:?}, which {}",
        t.type_id,
        names(t.type_id),
        t.available,
        t.shape,
        sizes.join(", ")
    )
}
