//! int8 matrices in bit planes: one plane has the upper four bits of all values, another the two or
//! four bits below, if there are any.
//!
//! A product with the upper plane alone reads less memory and approximates the result. A product with
//! both equals that of the int8 matrix bit for bit, except with scales near 10⁻³⁸, which cannot be
//! divided exactly.
//!
//! Values are shifted up as far as eight bits allow, and scales down. So the upper plane holds as much
//! as possible, and values of four or six bits (GGUF's Q4_0 and Q6_K) take no more than that.

use super::LayoutError;
use super::int8::{Int8Matrix, LARGEST, groups, write_row};
use super::view::{BLOCK_BYTES, INT8_PAD_COLS, Int8View, PARTS, Packing};
use crate::loader::WeightLoader;
use crate::mem::WeightVec;
use crate::ternary::{PANEL_ROWS, expect_bytes, expect_finite};
use bytemuck::Pod;
use bytes::Bytes;
use std::iter;
use std::sync::atomic::{AtomicU8, Ordering};

/// Bytes of a strip of int8 values.
const STRIP: usize = 4 * BLOCK_BYTES;

/// An int8 matrix of `rows` outputs × `cols` inputs in bit planes; see [`Int8View`] for the layout.
///
/// ```
/// use wrinklefree_compute::matrix::{Int8Matrix, SplitMatrix};
///
/// let w = Int8Matrix::pack(1, 2, 2, |_, values, scales| {
///     values.copy_from_slice(&[127, -45]);
///     scales[0] = 1.0;
/// })?;
/// let split = SplitMatrix::new(&w);
/// let mut row = [0; 2];
/// split.view().unpack_row(0, &mut row);
/// assert_eq!(row, [127, -45]);
/// // The upper plane alone: the lower four bits are taken to be 8.
/// split.upper().unpack_row(0, &mut row);
/// assert_eq!(row, [120, -40]);
/// # Ok::<(), wrinklefree_compute::ternary::LayoutError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct SplitMatrix {
    rows: usize,
    cols: usize,
    group: usize,
    parts: SplitParts,
}

/// The parts of a [`SplitMatrix`], in panel layout.
#[derive(Clone, Debug, PartialEq)]
pub struct SplitParts {
    /// Number of bits in each plane; not [`Packing::Whole`].
    pub packing: Packing,
    /// The plane of the upper four bits, `[panel][strip][line]`.
    pub high: Bytes,
    /// The plane of the lower bits; empty for [`Packing::Upper`].
    pub low: Bytes,
    /// Scales, `[panel][group][16 rows]`: f32, or int8 if there are factors.
    pub scales: Bytes,
    /// Factors of the int8 scales: f32, `[panel][⌈groups / 16⌉][16 rows]`. Empty for f32 scales.
    pub factors: Bytes,
}

impl SplitMatrix {
    /// Splits the values of `w`.
    pub fn new(w: &Int8Matrix) -> Self {
        Self::repacked(w, &mut WeightLoader::alone())
    }

    /// Loads the values of `w` and splits them.
    pub fn repacked(w: &Int8Matrix, loader: &mut WeightLoader<'_, '_>) -> Self {
        let Int8View { rows, cols, group, .. } = w.view();
        let rule = SplitRule::of(w.values(), loader);
        let mut planes = Planes::new((rows, cols), rule);
        planes.fill(w.values(), loader);
        let (high, low) = planes.into_bytes();
        let mut scales = WeightVec::<u32>::zeroed(w.scales().len() / 4);
        for (out, bytes) in scales.iter_mut().zip(w.scales().as_chunks().0) {
            let scale = f32::from_le_bytes(*bytes) / f32::from(1u8 << rule.shift);
            *out = scale.to_bits().to_le();
        }
        let (packing, scales, factors) = (rule.packing, scales.into_bytes(), Bytes::new());
        Self { rows, cols, group, parts: SplitParts { packing, high, low, scales, factors } }
    }

    /// Loads the matrix.
    #[must_use]
    pub fn relocate(&self, loader: &mut WeightLoader<'_, '_>) -> Self {
        let SplitParts { packing, high, low, scales, factors } = &self.parts;
        let [high, low] = [high, low].map(|plane| loader.relocate(plane));
        let [scales, factors] = [scales, factors].map(|numbers| loader.relocate(numbers));
        let parts = SplitParts { packing: *packing, high, low, scales, factors };
        Self { parts, ..*self }
    }

    /// Packs values of four bits, −8 to 7. `shape` is (rows, cols, group); `values(row, out)` and
    /// `scales(row, out)` write those of a row.
    ///
    /// # Errors
    /// As [`SplitMatrix::from_parts`].
    pub fn pack_four(
        shape: (usize, usize, usize),
        values: impl FnMut(usize, &mut [i8]),
        mut scales: impl FnMut(usize, &mut [f32]),
    ) -> Result<Self, LayoutError> {
        let (rows, cols, group) = shape;
        let (high, low) = pack_planes((rows, cols), Packing::Upper, values)?;
        let mut floats = vec![0f32; groups(cols, group)?];
        let scales = by_panel(rows, floats.len(), |row, out: &mut [u32]| {
            scales(row, &mut floats);
            write_floats(&floats, 1.0 / 16.0, out);
        });
        let (packing, factors) = (Packing::Upper, Bytes::new());
        Self::from_parts(shape, SplitParts { packing, high, low, scales, factors })
    }

    /// Packs values of six bits, −32 to 31, whose scales are products of int8 parts and f32 factors.
    ///
    /// `shape` is (rows, cols, group). `values(row, out)` writes the values of a row.
    /// `scales(row, parts, factors)` writes a part per group and a factor per [`PARTS`] groups.
    ///
    /// # Errors
    /// As [`SplitMatrix::from_parts`].
    pub fn pack_six(
        shape: (usize, usize, usize),
        values: impl FnMut(usize, &mut [i8]),
        mut scales: impl FnMut(usize, &mut [i8], &mut [f32]),
    ) -> Result<Self, LayoutError> {
        let (rows, cols, group) = shape;
        let (high, low) = pack_planes((rows, cols), Packing::Six, values)?;
        let groups = groups(cols, group)?;
        let (mut parts, mut factors) = (vec![0i8; groups], vec![0f32; groups.div_ceil(PARTS)]);
        let of_spans = by_panel(rows, factors.len(), |row, out: &mut [u32]| {
            scales(row, &mut parts, &mut factors);
            write_floats(&factors, 1.0 / 4.0, out);
        });
        let of_groups = by_panel(rows, groups, |row, out: &mut [i8]| {
            scales(row, out, &mut factors);
        });
        let packing = Packing::Six;
        let (scales, factors) = (of_groups, of_spans);
        Self::from_parts(shape, SplitParts { packing, high, low, scales, factors })
    }

    /// Takes parts in panel layout, without copying. The shape is (rows, cols, group); `group` is a
    /// multiple of 16, or `cols` for one scale per row.
    ///
    /// # Errors
    /// If a byte count does not match the shape, the group size is not supported or a weight is not
    /// finite.
    ///
    /// # Panics
    /// If the packing is [`Packing::Whole`].
    pub fn from_parts(
        (rows, cols, group): (usize, usize, usize),
        parts: SplitParts,
    ) -> Result<Self, LayoutError> {
        assert_ne!(parts.packing, Packing::Whole, "values in planes");
        let groups = groups(cols, group)?;
        let lanes = |each: usize, size| {
            rows.div_ceil(PANEL_ROWS).checked_mul(each)?.checked_mul(PANEL_ROWS * size)
        };
        let expect = |what, data, want| expect_bytes(what, data, want, rows, cols);
        let (high, low) = plane_bytes((rows, cols), parts.packing).unzip();
        expect("upper bits", &parts.high, high)?;
        expect("lower bits", &parts.low, low)?;
        let (floats, most, lanes) = if parts.factors.is_empty() {
            expect("int8 scales", &parts.scales, lanes(groups, size_of::<f32>()))?;
            (&parts.scales, LARGEST, (groups, group))
        } else {
            expect("parts of scales", &parts.scales, lanes(groups, size_of::<i8>()))?;
            let spans = lanes(groups.div_ceil(PARTS), size_of::<f32>());
            expect("factors of scales", &parts.factors, spans)?;
            (&parts.factors, LARGEST * LARGEST, (groups.div_ceil(PARTS), PARTS * group))
        };
        let floats = floats.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b));
        expect_finite(floats, most, lanes)?;
        Ok(Self { rows, cols, group, parts })
    }

    /// The parts of the matrix.
    pub fn parts(&self) -> &SplitParts {
        &self.parts
    }

    /// Number of bytes that a product with the upper plane reads, and that one with both planes reads.
    pub fn bytes(&self) -> (usize, usize) {
        let SplitParts { high, low, scales, factors, .. } = &self.parts;
        let upper = high.len() + scales.len() + factors.len();
        (upper, upper + low.len())
    }

    /// Returns true if the upper plane alone is exact.
    pub fn is_exact(&self) -> bool {
        self.parts.packing == Packing::Upper
    }

    /// Converts back to an int8 matrix. Values and scales may differ from the original's by a power
    /// of two.
    pub fn joined(&self) -> Int8Matrix {
        let view = self.view();
        let fill = |row: usize, values: &mut [i8], scales: &mut [f32]| {
            view.unpack_row(row, values);
            (0..).zip(scales).for_each(|(group, scale)| *scale = view.scale(row, group));
        };
        let joined = Int8Matrix::pack(self.rows, self.cols, self.group, fill);
        joined.expect("a shape and scales that an int8 matrix had")
    }

    /// Returns the matrix as kernels read it; the view also has its shape.
    pub fn view(&self) -> Int8View<'_> {
        let Self { rows, cols, group, ref parts } = *self;
        let SplitParts { packing, ref high, ref low, ref scales, ref factors } = *parts;
        let fill = packing.fill();
        Int8View { rows, cols, group, packing, values: high, low, fill, scales, factors }
    }

    /// Returns the upper plane alone; exact if there is no lower one.
    pub fn upper(&self) -> Int8View<'_> {
        Int8View { packing: Packing::Upper, low: &[], ..self.view() }
    }

    /// Writes one row to `out` as f32.
    ///
    /// # Panics
    /// If `row` is out of range or `out` is not `cols` long.
    pub fn row_f32(&self, row: usize, out: &mut [f32]) {
        self.view().row_f32(row, out);
    }
}

/// Number of bytes of both planes of a shape; `None` on overflow.
fn plane_bytes((rows, cols): (usize, usize), packing: Packing) -> Option<(usize, usize)> {
    let strips = rows.div_ceil(PANEL_ROWS).checked_mul(cols.div_ceil(INT8_PAD_COLS))?;
    let (high, low) = packing.strip_bytes();
    Some((strips.checked_mul(high)?, strips.checked_mul(low)?))
}

/// Rule for splitting the values of a matrix.
#[derive(Clone, Copy)]
struct SplitRule {
    packing: Packing,
    /// Number of bits that values are shifted up.
    shift: u32,
}

impl SplitRule {
    /// Finds the rule that keeps all bits of these values.
    fn of(values: &[u8], loader: &mut WeightLoader<'_, '_>) -> Self {
        // A part of most heads already uses all bits. Then the rest need not be read.
        let size = WeightLoader::units(STRIP) * STRIP;
        let first = UsedBits::of(&values[..size.min(values.len())]);
        let rule = first.rule();
        if rule.shift == 0 && rule.packing == Packing::Split {
            return rule;
        }
        let all = (AtomicU8::new(0), AtomicU8::new(0));
        loader.each(values.chunks(size).map(|values| (values, ())), |values, ()| {
            let used = UsedBits::of(values);
            all.0.fetch_or(used.all, Ordering::Relaxed);
            all.1.fetch_or(used.without_sign, Ordering::Relaxed);
        });
        UsedBits { all: all.0.into_inner(), without_sign: all.1.into_inner() }.rule()
    }

    /// Writes both planes of values in the layout of an [`Int8Matrix`].
    fn split(self, values: &[u8], high: &mut [u8], low: &mut [u8]) {
        let Self { packing, shift } = self;
        let (high_bytes, low_bytes) = packing.strip_bytes();
        for (i, strip) in values.as_chunks::<STRIP>().0.iter().enumerate() {
            let high = &mut high[i * high_bytes..][..high_bytes];
            join_pairs(strip, high, |a, b| (a << shift) >> 4 | (b << shift) & 0xf0);
            let low = &mut low[i * low_bytes..][..low_bytes];
            match packing {
                Packing::Split => {
                    join_pairs(strip, low, |a, b| (a << shift) & 15 | b << shift << 4)
                }
                Packing::Six => join_four(strip, low, |v| (v << shift) >> 2 & 3),
                Packing::Upper | Packing::Whole => {}
            }
        }
    }
}

/// Bits that at least one value sets.
struct UsedBits {
    all: u8,
    /// Without the bits that repeat the sign.
    without_sign: u8,
}

impl UsedBits {
    fn of(values: &[u8]) -> Self {
        let none = Self { all: 0, without_sign: 0 };
        values.iter().fold(none, |used, &v| Self {
            all: used.all | v,
            without_sign: used.without_sign | v ^ ((v as i8) >> 7) as u8,
        })
    }

    fn rule(&self) -> SplitRule {
        let shift = self.without_sign.leading_zeros().clamp(1, 8) - 1;
        SplitRule { packing: Packing::of_bits(self.all << shift), shift }
    }
}

/// Both planes while they are written.
struct Planes {
    rule: SplitRule,
    high: WeightVec<u8>,
    low: WeightVec<u8>,
    /// Number of strips that are written.
    filled: usize,
}

impl Planes {
    fn new(shape: (usize, usize), rule: SplitRule) -> Self {
        let bytes = plane_bytes(shape, rule.packing);
        let (high, low) = bytes.expect("fewer than those of the values");
        Self { rule, high: WeightVec::zeroed(high), low: WeightVec::zeroed(low), filled: 0 }
    }

    /// Fills both planes with values in the layout of an [`Int8Matrix`].
    fn fill(&mut self, values: &[u8], loader: &mut WeightLoader<'_, '_>) {
        let strips = WeightLoader::units(STRIP);
        let (high, low) = self.rule.packing.strip_bytes();
        // Without a lower plane, each part gets an empty slice of it.
        let mut low = self.low.chunks_mut((strips * low).max(1));
        let low = iter::repeat_with(|| low.next().unwrap_or_default());
        let planes = self.high.chunks_mut(strips * high).zip(low);
        loader.each(values.chunks(strips * STRIP).zip(planes), |values, (high, low)| {
            self.rule.split(values, high, low);
        });
    }

    /// Appends a panel.
    fn push(&mut self, panel: &[u8]) {
        let (high, low) = self.rule.packing.strip_bytes();
        let high = &mut self.high[self.filled * high..];
        self.rule.split(panel, high, &mut self.low[self.filled * low..]);
        self.filled += panel.len() / STRIP;
    }

    fn into_bytes(self) -> (Bytes, Bytes) {
        (self.high.into_bytes(), self.low.into_bytes())
    }
}

/// Writes the lines of a four-bit plane: each joins two blocks.
fn join_pairs(strip: &[u8; STRIP], out: &mut [u8], join: impl Fn(u8, u8) -> u8) {
    let pairs = strip.as_chunks::<{ 2 * BLOCK_BYTES }>().0;
    for (pair, line) in pairs.iter().zip(out.as_chunks_mut::<BLOCK_BYTES>().0) {
        let (first, second) = pair.split_at(BLOCK_BYTES);
        for ((a, b), out) in first.iter().zip(second).zip(line) {
            *out = join(*a, *b);
        }
    }
}

/// Writes the line of a two-bit plane.
fn join_four(strip: &[u8; STRIP], out: &mut [u8], two: impl Fn(u8) -> u8) {
    let [a, b, c, d] = bytemuck::must_cast_ref::<_, [[u8; BLOCK_BYTES]; 4]>(strip);
    for (i, out) in out.iter_mut().enumerate() {
        *out = two(a[i]) | two(b[i]) << 2 | two(c[i]) << 4 | two(d[i]) << 6;
    }
}

/// Packs values that have as many bits as the planes hold; `values(row, out)` writes those of a row.
fn pack_planes(
    (rows, cols): (usize, usize),
    packing: Packing,
    mut values: impl FnMut(usize, &mut [i8]),
) -> Result<(Bytes, Bytes), LayoutError> {
    if Int8Matrix::value_bytes(rows, cols).is_none() {
        return Err(LayoutError::TooLarge(rows, cols));
    }
    let shift = if packing == Packing::Six { 2 } else { 4 };
    let mut planes = Planes::new((rows, cols), SplitRule { packing, shift });
    let strips = cols.div_ceil(INT8_PAD_COLS);
    let mut panel = vec![0i8; strips * STRIP];
    let mut row_values = vec![0i8; strips * INT8_PAD_COLS];
    for first in (0..rows).step_by(PANEL_ROWS) {
        if rows - first < PANEL_ROWS {
            panel.fill(0);
        }
        for row in first..rows.min(first + PANEL_ROWS) {
            values(row, &mut row_values[..cols]);
            write_row(&row_values, row % PANEL_ROWS, &mut panel);
        }
        planes.push(bytemuck::cast_slice(&panel));
    }
    Ok(planes.into_bytes())
}

/// Packs `each` numbers per row as `[panel][each][16 rows]`; `fill(row, out)` writes those of a row.
fn by_panel<T: Pod>(rows: usize, each: usize, mut fill: impl FnMut(usize, &mut [T])) -> Bytes {
    let mut all = WeightVec::<T>::zeroed(rows.div_ceil(PANEL_ROWS) * each * PANEL_ROWS);
    let mut one = vec![T::zeroed(); each];
    for row in 0..rows {
        fill(row, &mut one);
        let lanes = &mut all[row / PANEL_ROWS * each * PANEL_ROWS..][row % PANEL_ROWS..];
        lanes.iter_mut().step_by(PANEL_ROWS).zip(&one).for_each(|(lane, value)| *lane = *value);
    }
    all.into_bytes()
}

/// Writes floats times `factor` as little-endian bits.
fn write_floats(floats: &[f32], factor: f32, out: &mut [u32]) {
    out.iter_mut().zip(floats).for_each(|(out, f)| *out = (f * factor).to_bits().to_le());
}
