//! The container: header, metadata, tensor list. Counts are never trusted: every loop and every
//! allocation is bounded by bytes that are really there.

use super::meta::{Meta, Reader};
use super::types::{GgmlType, candidates, foreign_name, size};
use crate::format::arrival::Outline;
use crate::format::index::{DType, Index, Tensor};
use crate::format::{LoadError, LoadErrorKind as Kind, Pieces};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Dimensions of a tensor, at most.
const MAX_DIMS: u32 = 4;
const DEFAULT_ALIGNMENT: usize = 32;
/// The id that two layouts share.
const TWO_BIT_ID: u32 = 42;
/// A page of the largest kind; more makes no sense.
const MAX_ALIGNMENT: usize = 1 << 21;

/// A tensor as the list has it.
struct Info<'a> {
    name: &'a str,
    /// Outermost first.
    shape: Vec<usize>,
    type_id: u32,
    /// From the start of the data.
    offset: usize,
    /// Bytes until the next tensor or the end of the file.
    room: usize,
}

impl Info<'_> {
    /// Rows × columns, everything but the innermost dimension being rows.
    fn rows_cols(&self) -> Option<(usize, usize)> {
        let (cols, outer) = self.shape.split_last()?;
        Some((outer.iter().try_fold(1usize, |n, &d| n.checked_mul(d))?, *cols))
    }

    fn size(&self, dtype: DType) -> Option<usize> {
        let (rows, cols) = self.rows_cols()?;
        size(dtype, rows, cols)
    }
}

/// What stands before the data.
struct Header<'a> {
    meta: Meta<'a>,
    infos: Vec<Info<'a>>,
    alignment: usize,
    /// Where it ends, without padding.
    end: usize,
}

/// Reads metadata and tensor list of a file, of which `head` is the first piece: all of them are in it.
pub(super) fn parse<'a>(
    name: &'a str,
    head: &'a [u8],
    bytes: Pieces,
) -> Result<(Meta<'a>, Index), LoadError> {
    let Header { meta, infos, alignment, end } = header(name, head)?;
    // Nothing but padding may stand before the data; a file without tensors may end here.
    let begin = end.next_multiple_of(alignment).min(bytes.len());
    let index = place((name, &bytes), infos, begin, alignment, &meta)?;
    Ok((meta, index))
}

/// What a recognized file's first bytes say of the rest.
pub(in crate::format) fn outline(head: &[u8]) -> Outline {
    match header("", head) {
        Ok(Header { mut infos, alignment, end, .. }) => {
            let begin = end.next_multiple_of(alignment);
            infos.sort_by_key(|t| t.offset);
            let place = |t: &Info<'_>| begin.saturating_add(t.offset);
            let ends = infos.iter().skip(1).map(place).chain([usize::MAX]);
            let tensors = infos.iter().map(place).zip(ends).map(|(begin, end)| begin..end);
            Outline::Tensors(begin, tensors.collect())
        }
        Err(error) if error.kind() == Kind::Truncated => Outline::Short(head.len() + 1),
        Err(_) => Outline::Unknown,
    }
}

fn header<'a>(name: &'a str, head: &'a [u8]) -> Result<Header<'a>, LoadError> {
    let mut r = Reader::new(name, head);
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

fn parse_meta<'a>(r: &mut Reader<'a>, keys: u64) -> Result<Meta<'a>, LoadError> {
    let mut values = BTreeMap::new();
    for n in 0..keys {
        let key = r.string(format!("metadata key {n}"))?;
        let kind = r.u32(key)?;
        let value = r.value(key, kind)?;
        if values.insert(key, value).is_some() {
            return Err(r.malformed("every metadata key once", format!("`{key}` twice")));
        }
    }
    Ok(Meta { file: r.file, values })
}

fn parse_infos<'a>(r: &mut Reader<'a>, tensors: u64) -> Result<Vec<Info<'a>>, LoadError> {
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
        infos.push(Info { name, shape, type_id, offset, room: 0 });
    }
    Ok(infos)
}

fn alignment(meta: &Meta<'_>) -> Result<usize, LoadError> {
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

/// Finds each tensor's bytes and, with them, its type.
fn place(
    (file, bytes): (&str, &Pieces),
    mut infos: Vec<Info<'_>>,
    begin: usize,
    alignment: usize,
    meta: &Meta<'_>,
) -> Result<Index, LoadError> {
    let room = bytes.len() - begin;
    infos.sort_by_key(|t| t.offset);
    for i in 0..infos.len() {
        let end = infos.get(i + 1).map_or(room, |next| next.offset.min(room));
        let t = &mut infos[i];
        let error = |want: String| {
            LoadError::new(Kind::Offset, file, want, t.offset.to_string()).tensor(t.name)
        };
        if !t.offset.is_multiple_of(alignment) {
            return Err(error(format!("an offset that is a multiple of {alignment}")));
        }
        if t.offset > room {
            return Err(error(format!("an offset inside the {room} bytes of data"))
                .advice("the download may be incomplete"));
        }
        t.room = end - t.offset;
    }
    let two_bit = two_bit_type(&infos, alignment);
    let bitnet = meta.text("general.architecture")?.is_some_and(|a| a.starts_with("bitnet"));
    let source: Arc<str> = file.into();
    let mut index = Index::default();
    for t in infos {
        let (dtype, size) = choose(file, &t, two_bit, alignment, bitnet)?;
        index.insert(Tensor {
            name: t.name.into(),
            file: source.clone(),
            dtype,
            bytes: bytes.slice(begin + t.offset..begin + t.offset + size),
            shape: t.shape,
        })?;
    }
    Ok(index)
}

/// Does a tensor of this size end where the next one, or the file, says?
fn fits(size: usize, room: usize, alignment: usize) -> bool {
    size <= room && room - size < alignment
}

/// The types that an id may mean and that this tensor's size allows.
fn fitting(t: &Info<'_>, alignment: usize) -> Vec<DType> {
    let fits = |&dtype: &DType| t.size(dtype).is_some_and(|n| fits(n, t.room, alignment));
    candidates(t.type_id).iter().copied().filter(fits).collect()
}

/// What the id 42 means in this file, when all tensors whose size leaves no choice agree.
fn two_bit_type(infos: &[Info<'_>], alignment: usize) -> Option<DType> {
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

fn choose(
    file: &str,
    t: &Info<'_>,
    two_bit: Option<DType>,
    alignment: usize,
    bitnet: bool,
) -> Result<(DType, usize), LoadError> {
    let error =
        |kind, want: String, found: String| LoadError::new(kind, file, want, found).tensor(t.name);
    let unsupported = |found: String| {
        error(
            Kind::UnsupportedType,
            "F32, F16, BF16, Q8_0, Q4_0, Q6_K, Q4_K, TQ1_0, TQ2_0, Q2_0, PQ2_0, PTQ1_0 or I2_S"
                .into(),
            found,
        )
    };
    let kind = match candidates(t.type_id) {
        [] => {
            let name = foreign_name(t.type_id, bitnet);
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
                let want = format!("type 42 (Q2_0) in {sizes:?} bytes for {:?}", t.shape);
                let found = format!("{} until the next one or the end of the file", t.room);
                return Err(
                    error(Kind::Offset, want, found).advice("the download may be incomplete")
                );
            }
        },
    };
    let Some(size) = t.size(kind) else {
        return Err(error(
            Kind::Shape,
            format!("rows of whole {} blocks", kind.name()),
            format!("{:?}", t.shape),
        ));
    };
    if kind == DType::Block(GgmlType::I2S) && !fits(size, t.room, alignment) {
        let name = foreign_name(t.type_id, bitnet);
        return Err(unsupported(format!(
            "type {} ({name}) in {} bytes for {:?}, which I2_S stores in {size}",
            t.type_id, t.room, t.shape
        )));
    }
    if size > t.room {
        let found = format!("{} until the next one or the end of the file", t.room);
        return Err(error(Kind::Offset, format!("{size} bytes"), found)
            .advice("the download may be incomplete"));
    }
    Ok((kind, size))
}
