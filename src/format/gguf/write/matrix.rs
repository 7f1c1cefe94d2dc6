//! Storage of a matrix: the type that holds it, and its bytes in that type.

use crate::format::codec::{I2S_TRAILER, Q4_0, Q6_K, Q8_0, encode_i2s, i2s_size};
use crate::format::gguf::types::{BlockCodec, GgmlType};
use crate::matrix::{FloatType, Int8View, Matrix, PARTS, Packing, Scales, TernaryMatrix};
use half::f16;

/// Type ids of float tensors.
pub(super) const F32: u32 = 0;
const F16: u32 = 1;
const BF16: u32 = 30;

/// Storage of a matrix in a file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Storage {
    /// Blocks of ternary weights. The factor is a scale that the blocks' f16 scales cannot hold; they
    /// are 1 then.
    Ternary(GgmlType, Option<f32>),
    /// Blocks of integers that hold the matrix exactly.
    Integers(GgmlType),
    /// The elements of a float matrix as they are.
    Float(FloatType),
    /// Elements that are rounded to f16.
    RoundedToF16,
    /// Blocks of 32 weights that are quantized again.
    RoundedToQ8_0,
}

/// Type id of a block format that is written.
fn type_id(kind: GgmlType) -> u32 {
    match kind {
        GgmlType::Q4_0 => 2,
        GgmlType::Q8_0 => 8,
        GgmlType::Q6K => 14,
        GgmlType::Tq1_0 => 34,
        GgmlType::Tq2_0 => 35,
        GgmlType::I2S => 36,
        GgmlType::Q1_0 => 41,
        GgmlType::Q2_0 => 42,
        GgmlType::Stq1_0 => 43,
        GgmlType::Pq2_0 => 142,
        GgmlType::Ptq1_0 => 143,
        other => unreachable!("{} is not written", other.name()),
    }
}

/// `general.file_type` of files whose matrices mostly have this type.
pub(super) fn file_type(storage: Storage) -> usize {
    match storage {
        Storage::Ternary(GgmlType::Tq1_0, _) => 36,
        Storage::Ternary(GgmlType::Tq2_0, _) => 37,
        Storage::Ternary(GgmlType::I2S | GgmlType::Q1_0, _) => 40,
        Storage::Ternary(GgmlType::Q2_0 | GgmlType::Stq1_0, _) => 41,
        Storage::Ternary(GgmlType::Pq2_0, _) => 141,
        Storage::Ternary(..) => 143,
        Storage::Integers(GgmlType::Q4_0) => 2,
        Storage::Integers(GgmlType::Q6K) => 18,
        Storage::Integers(_) | Storage::RoundedToQ8_0 => 7,
        Storage::Float(FloatType::F32) => 0,
        Storage::Float(FloatType::Bf16) => 32,
        Storage::Float(FloatType::F16) | Storage::RoundedToF16 => 1,
    }
}

impl Storage {
    /// The storage of a matrix, ternary ones as `ternary` or else in the type of their own group size.
    ///
    /// # Errors
    /// The reason for which the type cannot hold the matrix, and advice.
    pub(super) fn of(matrix: &Matrix, ternary: Option<GgmlType>) -> Result<Self, (String, String)> {
        match matrix {
            Matrix::Ternary(m) => {
                let kind = match ternary.or_else(|| natural(m)) {
                    Some(kind) => kind,
                    None => return Err((shape(m), NOTHING_HOLDS.into())),
                };
                fits(m, kind).map(|factor| Self::Ternary(kind, factor))
            }
            Matrix::Int8(m) => Ok(Self::integers(&m.view())),
            Matrix::Split(m) => Ok(Self::integers(&m.view())),
            Matrix::Float(m) => Ok(Self::Float(m.dtype())),
        }
    }

    fn integers(w: &Int8View<'_>) -> Self {
        let exact = match (w.packing(), w.group()) {
            (Packing::Upper, 32) => Some(GgmlType::Q4_0),
            (Packing::Six, 16) if w.cols().is_multiple_of(Q6_K.weights) => Some(GgmlType::Q6K),
            (Packing::Whole | Packing::Split, 32) => Some(GgmlType::Q8_0),
            _ => None,
        };
        match exact.filter(|_| IntegerRows::new(*w).all(|row| row.exact())) {
            Some(kind) => Self::Integers(kind),
            None => Self::RoundedToF16,
        }
    }

    pub(super) fn type_id(self) -> u32 {
        match self {
            Self::Ternary(kind, _) | Self::Integers(kind) => type_id(kind),
            Self::Float(FloatType::F32) => F32,
            Self::Float(FloatType::F16) | Self::RoundedToF16 => F16,
            Self::Float(FloatType::Bf16) => BF16,
            Self::RoundedToQ8_0 => type_id(GgmlType::Q8_0),
        }
    }

    /// Bytes of a row.
    fn row_bytes(self, cols: usize) -> usize {
        let blocks = |weights: usize, bytes: usize| cols / weights * bytes;
        match self {
            Self::Ternary(kind, _) | Self::Integers(kind) => match kind.codec() {
                BlockCodec::Int8(b) => blocks(b.weights, b.bytes),
                BlockCodec::Ternary(b) => blocks(b.weights, b.bytes),
                _ => cols / 4,
            },
            Self::Float(t) => cols * t.size(),
            Self::RoundedToF16 => cols * FloatType::F16.size(),
            Self::RoundedToQ8_0 => blocks(Q8_0.weights, Q8_0.bytes),
        }
    }

    /// Bytes of a matrix.
    pub(super) fn bytes(self, rows: usize, cols: usize) -> usize {
        let trailer = matches!(self, Self::Ternary(GgmlType::I2S, _));
        rows * self.row_bytes(cols) + if trailer { I2S_TRAILER } else { 0 }
    }

    /// The bytes of a matrix, with row `source(i)` of it at place `i`. Fails with the reason if a weight
    /// has no code in the type or is not finite.
    pub(super) fn encode(
        self,
        matrix: &Matrix,
        source: Option<impl Fn(usize) -> usize>,
    ) -> Result<Vec<u8>, String> {
        let bytes = match (self, matrix) {
            (Self::Ternary(kind, factor), Matrix::Ternary(m)) => ternary(m, kind, factor)?,
            (Self::Integers(kind), Matrix::Int8(m)) => integers(m.view(), kind),
            (Self::Integers(kind), Matrix::Split(m)) => integers(m.view(), kind),
            (Self::Float(_), Matrix::Float(m)) => m.data().to_vec(),
            (Self::RoundedToQ8_0, m) => rounded(m, quantize_q8_0)?,
            (_, m) => rounded(m, |row, out| {
                row.iter().for_each(|w| out.extend(f16::from_f32(*w).to_le_bytes()));
                row.iter().all(|w| f16::from_f32(*w).is_finite())
            })?,
        };
        let Some(source) = source else { return Ok(bytes) };
        let size = self.row_bytes(matrix.cols());
        let rows = 0..matrix.rows();
        let mut moved: Vec<u8> =
            rows.flat_map(|row| &bytes[source(row) * size..][..size]).copied().collect();
        moved.extend_from_slice(&bytes[moved.len()..]);
        Ok(moved)
    }
}

/// Advice where no type fits.
const NOTHING_HOLDS: &str = "keep the model in its own format or as a packed file";

fn shape(m: &TernaryMatrix) -> String {
    match m.scales() {
        Scales::Tensor(_) => format!("rows of {} weights", m.cols()),
        Scales::Groups(g) => {
            format!("rows of {} weights with a scale for each {}", m.cols(), g.size())
        }
    }
}

/// The type with the group size of a matrix: one of little more than one bit if it has codes for all
/// weights, else mainline types where they have the group size.
fn natural(m: &TernaryMatrix) -> Option<GgmlType> {
    let kinds =
        [GgmlType::Q1_0, GgmlType::Stq1_0, GgmlType::Tq2_0, GgmlType::Pq2_0, GgmlType::Q2_0];
    let exact = |kind: &GgmlType| match (kind, m.scales()) {
        (GgmlType::Pq2_0, Scales::Tensor(_)) => false,
        (GgmlType::Q1_0 | GgmlType::Stq1_0, _) => holds(m, *kind) && lacking(m, *kind).is_none(),
        _ => holds(m, *kind),
    };
    kinds.into_iter().find(exact)
}

/// Returns what a matrix has that a block type has no code for.
fn lacking(m: &TernaryMatrix, kind: GgmlType) -> Option<&'static str> {
    match kind.codec() {
        BlockCodec::Ternary(format) if !format.has_codes(m) => Some(format.lacks),
        _ => None,
    }
}

/// Returns true if a type has blocks for the rows and scales of a matrix.
fn holds(m: &TernaryMatrix, kind: GgmlType) -> bool {
    match (kind.codec(), m.scales()) {
        (BlockCodec::Ternary(format), scales) => {
            m.cols().is_multiple_of(format.weights)
                && match scales {
                    Scales::Groups(g) => g.size().is_multiple_of(format.weights),
                    Scales::Tensor(_) => true,
                }
        }
        (_, Scales::Tensor(_)) => i2s_size(m.rows(), m.cols()).is_some(),
        (_, Scales::Groups(_)) => false,
    }
}

/// Returns the factor that a type's own scales cannot hold, if there is any, or the reason for which it
/// cannot hold the matrix.
fn fits(m: &TernaryMatrix, kind: GgmlType) -> Result<Option<f32>, (String, String)> {
    if !holds(m, kind) {
        let other = natural(m).map(|other| format!("{} holds it", other.name()));
        return Err((shape(m), other.unwrap_or_else(|| NOTHING_HOLDS.into())));
    }
    match m.scales() {
        Scales::Tensor(scale) if kind != GgmlType::I2S => {
            Ok((f16::from_f32(*scale).to_f32() != *scale).then_some(*scale))
        }
        _ => Ok(None),
    }
}

fn ternary(m: &TernaryMatrix, kind: GgmlType, factor: Option<f32>) -> Result<Vec<u8>, String> {
    let one = factor.map(|_| m.with_scale(1.0).expect("1 is finite"));
    let m = one.as_ref().unwrap_or(m);
    let bytes = match kind.codec() {
        BlockCodec::Ternary(format) => format.encode(m),
        // Readers disagree on the fourth code.
        _ => encode_i2s(m).filter(|bytes| {
            bytes[..bytes.len() - I2S_TRAILER].iter().all(|b| b & b >> 1 & 0x55 == 0)
        }),
    };
    bytes.ok_or_else(|| lacking(m, kind).unwrap_or("a weight of +2").into())
}

/// Rows of integers and their scales, in the units of a block format.
struct IntegerRows<'a> {
    w: Int8View<'a>,
    row: usize,
}

struct IntegerRow {
    values: Vec<i8>,
    /// Scale of each group, or factor of each [`PARTS`] groups.
    scales: Vec<f32>,
    /// int8 scale of each group, if there are factors.
    parts: Vec<i8>,
}

impl<'a> IntegerRows<'a> {
    fn new(w: Int8View<'a>) -> Self {
        Self { w, row: 0 }
    }
}

impl Iterator for IntegerRows<'_> {
    type Item = IntegerRow;

    fn next(&mut self) -> Option<IntegerRow> {
        let (w, row) = (self.w, self.row);
        if row == w.rows() {
            return None;
        }
        self.row += 1;
        // Planes hold values shifted up and scales shifted down.
        let shift = match w.packing() {
            Packing::Upper => 4,
            Packing::Six => 2,
            Packing::Whole | Packing::Split => 0,
        };
        let mut values = vec![0; w.cols()];
        w.unpack_row(row, &mut values);
        values.iter_mut().for_each(|v| *v >>= shift);
        let unit = f32::from(1u8 << shift);
        let (scales, parts) = w.scale_parts(row);
        Some(IntegerRow { values, scales: scales.iter().map(|s| s * unit).collect(), parts })
    }
}

impl IntegerRow {
    /// Returns true if all scales are f16.
    fn exact(&self) -> bool {
        self.scales.iter().all(|&s| f16::from_f32(s).to_f32() == s)
    }
}

/// Encodes integers whose scales are f16.
fn integers(w: Int8View<'_>, kind: GgmlType) -> Vec<u8> {
    let mut out = Vec::new();
    for IntegerRow { values, scales, parts } in IntegerRows::new(w) {
        let half = |scale: &f32| f16::from_f32(*scale).to_le_bytes();
        match kind {
            GgmlType::Q6K => {
                let blocks = values.chunks_exact(Q6_K.weights).zip(parts.chunks_exact(PARTS));
                for ((values, parts), factor) in blocks.zip(&scales) {
                    q6_k(values, &mut out);
                    out.extend(parts.iter().map(|&part| part as u8));
                    out.extend(half(factor));
                }
            }
            GgmlType::Q4_0 => {
                for (values, scale) in values.chunks_exact(Q4_0.weights).zip(&scales) {
                    out.extend(half(scale));
                    let (low, high) = values.split_at(Q4_0.weights / 2);
                    let code = |v: i8| (v + 8) as u8;
                    out.extend(low.iter().zip(high).map(|(&l, &h)| code(l) | code(h) << 4));
                }
            }
            _ => {
                for (values, scale) in values.chunks_exact(Q8_0.weights).zip(&scales) {
                    out.extend(half(scale));
                    out.extend(values.iter().map(|&v| v as u8));
                }
            }
        }
    }
    out
}

/// Appends the codes of a Q6_K block: the low four bits, then the high two.
fn q6_k(values: &[i8], out: &mut Vec<u8>) {
    let code = |at: usize| (values[at] + 32) as u8;
    for half in [0, 128] {
        for n in 0..64 {
            out.push(code(half + n) & 15 | (code(half + 64 + n) & 15) << 4);
        }
    }
    for half in [0, 128] {
        for n in 0..32 {
            let two = |quarter: usize| code(half + 32 * quarter + n) >> 4 << (2 * quarter);
            out.push((0..4).fold(0, |byte, quarter| byte | two(quarter)));
        }
    }
}

/// Encodes rows of f32. `encode` returns false if a weight is not finite in the type.
fn rounded(
    matrix: &Matrix,
    encode: impl Fn(&[f32], &mut Vec<u8>) -> bool,
) -> Result<Vec<u8>, String> {
    let mut row = vec![0.0; matrix.cols()];
    let mut out = Vec::new();
    for i in 0..matrix.rows() {
        matrix.row_f32(i, &mut row);
        if !encode(&row, &mut out) {
            return Err(format!("a weight in row {i} that is too large for f16"));
        }
    }
    Ok(out)
}

/// Appends a row in Q8_0, each block scaled by its largest weight.
fn quantize_q8_0(row: &[f32], out: &mut Vec<u8>) -> bool {
    let mut finite = true;
    for block in row.chunks_exact(Q8_0.weights) {
        let largest = block.iter().fold(0f32, |most, w| most.max(w.abs()));
        let scale = f16::from_f32(largest / 127.0);
        finite &= scale.is_finite();
        let inverse = if scale == f16::ZERO { 0.0 } else { 1.0 / scale.to_f32() };
        out.extend(scale.to_le_bytes());
        let code = |w: &f32| (w * inverse).round().clamp(-127.0, 127.0) as i8 as u8;
        out.extend(block.iter().map(code));
    }
    finite
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::codec::{IntBlockFormat, RowOrder};

    /// The bytes come from the `gguf` package.
    #[test]
    fn integers_come_back_byte_by_byte() {
        let cases: [(&IntBlockFormat, &[u8]); 3] = [
            (&Q4_0, include_bytes!("../../../../tests/golden/gguf/Q4_0.bin")),
            (&Q6_K, include_bytes!("../../../../tests/golden/gguf/Q6_K.bin")),
            (&Q8_0, include_bytes!("../../../../tests/golden/gguf/Q8_0.bin")),
        ];
        for (format, bytes) in cases {
            let matrix = format.decode(bytes, 2, 256, RowOrder::Same).unwrap();
            let storage = Storage::of(&matrix, None).unwrap();
            assert!(matches!(storage, Storage::Integers(_)), "{}", format.name);
            let encoded = storage.encode(&matrix, None::<fn(usize) -> usize>).unwrap();
            assert!(encoded == bytes, "{}", format.name);
        }
    }
}
