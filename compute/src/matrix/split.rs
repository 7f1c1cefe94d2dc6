//! int8 matrices in planes: the upper four bits of all values, and the two or four below, where there
//! are any. A product with the upper plane alone reads less and comes close; with both it is the int8
//! matrix's, bit for bit (but for scales near 10⁻³⁸, which cannot be divided exactly).
//!
//! Values are shifted up as far as eight bits allow, and scales down: so the upper plane says as much
//! as it can, and what four or six bits hold takes no more (Q4_0 and Q6_K of GGUF).

use super::LayoutError;
use super::int8::{BLOCK_BYTES, INT8_PAD_COLS, Int8Matrix, groups, lay_row};
use super::view::{Int8View, PARTS, Packing};
use crate::loader::WeightLoader;
use crate::mem::WeightVec;
use crate::ternary::{PANEL_ROWS, expect_bytes};
use bytemuck::Pod;
use bytes::Bytes;
use std::iter;
use std::sync::atomic::{AtomicU8, Ordering};

/// Bytes of a strip of int8 values.
const STRIP: usize = 4 * BLOCK_BYTES;

/// An int8 matrix of `rows` outputs × `cols` inputs, its values in planes: see [`Int8View`].
#[derive(Clone, Debug, PartialEq)]
pub struct SplitMatrix {
    rows: usize,
    cols: usize,
    group: usize,
    parts: SplitParts,
}

/// What a [`SplitMatrix`] consists of, in panel layout.
#[derive(Clone, Debug, PartialEq)]
pub struct SplitParts {
    /// How many bits stand in which plane; not [`Packing::Whole`].
    pub packing: Packing,
    /// The plane of the upper halves, `[panel][strip][line]`.
    pub high: Bytes,
    /// The other plane, empty for [`Packing::Upper`].
    pub low: Bytes,
    /// f32, or int8 where there are factors, `[panel][group][16 rows]`.
    pub scales: Bytes,
    /// f32, `[panel][⌈groups / 16⌉][16 rows]`, of which the scales are parts; or empty.
    pub factors: Bytes,
}

impl SplitMatrix {
    /// Splits the values of `w`.
    pub fn new(w: &Int8Matrix) -> Self {
        Self::repacked(w, &mut WeightLoader::alone())
    }

    /// Splits the values of `w`, from where they are to where their planes shall stand.
    pub fn repacked(w: &Int8Matrix, loader: &mut WeightLoader<'_, '_>) -> Self {
        let Int8View { rows, cols, group, .. } = w.view();
        let kind = Strips::of(w.values(), loader);
        let mut planes = Planes::new((rows, cols), kind);
        planes.fill(w.values(), loader);
        let (high, low) = planes.into_bytes();
        let mut scales = WeightVec::<u32>::zeroed(w.scales().len() / 4);
        for (out, bytes) in scales.iter_mut().zip(w.scales().as_chunks().0) {
            let scale = f32::from_le_bytes(*bytes) / f32::from(1u8 << kind.shift);
            *out = scale.to_bits().to_le();
        }
        let (packing, scales, factors) = (kind.packing, scales.into_bytes(), Bytes::new());
        Self { rows, cols, group, parts: SplitParts { packing, high, low, scales, factors } }
    }

    /// The same where it is to stand.
    #[must_use]
    pub fn relocate(&self, loader: &mut WeightLoader<'_, '_>) -> Self {
        let SplitParts { packing, high, low, scales, factors } = &self.parts;
        let [high, low] = [high, low].map(|plane| loader.relocate(plane));
        let [scales, factors] = [scales, factors].map(|numbers| loader.relocate(numbers));
        let parts = SplitParts { packing: *packing, high, low, scales, factors };
        Self { parts, ..*self }
    }

    /// Packs values of four bits, −8 to 7: `values(row, out)` and `scales(row, out)` write a row's.
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

    /// Packs values of six bits, −32 to 31, with scales in two steps: `values(row, out)` writes a row's,
    /// `scales(row, parts, factors)` those of its groups, and of each [`PARTS`] of them.
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

    /// Takes what already stands in panel layout, without copying. Of the shape `(rows, cols, group)`
    /// the group is a multiple of 16, or `cols` for a scale per row.
    ///
    /// # Errors
    /// When a byte count does not match the shape, the group cannot be walked or a scale is not
    /// finite.
    ///
    /// # Panics
    /// When the parts are those of whole values.
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
        let (floats, most) = if parts.factors.is_empty() {
            expect("int8 scales", &parts.scales, lanes(groups, size_of::<f32>()))?;
            (&parts.scales, 1.0)
        } else {
            expect("parts of scales", &parts.scales, lanes(groups, size_of::<i8>()))?;
            let spans = lanes(groups.div_ceil(PARTS), size_of::<f32>());
            expect("factors of scales", &parts.factors, spans)?;
            (&parts.factors, 128.0)
        };
        let mut floats = floats.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b));
        match floats.find(|s| !(s * most).is_finite()) {
            Some(s) => Err(LayoutError::Scale(s)),
            None => Ok(Self { rows, cols, group, parts }),
        }
    }

    /// What it consists of.
    pub fn parts(&self) -> &SplitParts {
        &self.parts
    }

    /// Bytes that a product with the upper plane reads, and one with both.
    pub fn bytes(&self) -> (usize, usize) {
        let SplitParts { high, low, scales, factors, .. } = &self.parts;
        let upper = high.len() + scales.len() + factors.len();
        (upper, upper + low.len())
    }

    /// Whether the upper plane says everything.
    pub fn is_exact(&self) -> bool {
        self.parts.packing == Packing::Upper
    }

    /// What it was made of, but for a power of two between values and scales.
    pub fn joined(&self) -> Int8Matrix {
        let view = self.view();
        let fill = |row: usize, values: &mut [i8], scales: &mut [f32]| {
            view.unpack_row(row, values);
            (0..).zip(scales).for_each(|(group, scale)| *scale = view.scale(row, group));
        };
        let joined = Int8Matrix::pack(self.rows, self.cols, self.group, fill);
        joined.expect("a shape and scales that an int8 matrix had")
    }

    /// The whole matrix; its shape, too.
    pub fn view(&self) -> Int8View<'_> {
        let Self { rows, cols, group, ref parts } = *self;
        let SplitParts { packing, ref high, ref low, ref scales, ref factors } = *parts;
        let fill = packing.fill();
        Int8View { rows, cols, group, packing, values: high, low, fill, scales, factors }
    }

    /// The matrix with its upper halves alone; exact where there are no lower ones.
    pub fn upper(&self) -> Int8View<'_> {
        Int8View { packing: Packing::Upper, low: &[], ..self.view() }
    }

    /// Writes one row as f32.
    ///
    /// # Panics
    /// When `row` is out of range or `out` is not `cols` long.
    pub fn row_f32(&self, row: usize, out: &mut [f32]) {
        self.view().row_f32(row, out);
    }
}

/// Bytes of both planes of a shape; `None` on overflow.
fn plane_bytes((rows, cols): (usize, usize), packing: Packing) -> Option<(usize, usize)> {
    let strips = rows.div_ceil(PANEL_ROWS).checked_mul(cols.div_ceil(INT8_PAD_COLS))?;
    let (high, low) = packing.strip_bytes();
    Some((strips.checked_mul(high)?, strips.checked_mul(low)?))
}

/// How the strips of a matrix are split.
#[derive(Clone, Copy)]
struct Strips {
    packing: Packing,
    /// Values are shifted up by so many bits.
    shift: u32,
}

impl Strips {
    /// What these values need.
    fn of(values: &[u8], loader: &mut WeightLoader<'_, '_>) -> Self {
        // A part of most heads says already that all bits are used; then nothing else is read.
        let size = WeightLoader::units(STRIP) * STRIP;
        let first = Used::by(&values[..size.min(values.len())]);
        let strips = first.strips();
        if strips.shift == 0 && strips.packing == Packing::Split {
            return strips;
        }
        let all = (AtomicU8::new(0), AtomicU8::new(0));
        loader.each(values.chunks(size).map(|values| (values, ())), |values, ()| {
            let used = Used::by(values);
            all.0.fetch_or(used.bits, Ordering::Relaxed);
            all.1.fetch_or(used.digits, Ordering::Relaxed);
        });
        Used { bits: all.0.into_inner(), digits: all.1.into_inner() }.strips()
    }

    /// Writes both planes of values that stand as in an [`Int8Matrix`].
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

/// Bits that some of the values set, as they are and without those that repeat the sign.
struct Used {
    bits: u8,
    digits: u8,
}

impl Used {
    fn by(values: &[u8]) -> Self {
        let none = Self { bits: 0, digits: 0 };
        values.iter().fold(none, |used, &v| Self {
            bits: used.bits | v,
            digits: used.digits | v ^ ((v as i8) >> 7) as u8,
        })
    }

    fn strips(&self) -> Strips {
        let shift = self.digits.leading_zeros().clamp(1, 8) - 1;
        Strips { packing: Packing::of_bits(self.bits << shift), shift }
    }
}

/// Both planes.
struct Planes {
    kind: Strips,
    high: WeightVec<u8>,
    low: WeightVec<u8>,
    /// Strips that are there.
    filled: usize,
}

impl Planes {
    fn new(shape: (usize, usize), kind: Strips) -> Self {
        let bytes = plane_bytes(shape, kind.packing);
        let (high, low) = bytes.expect("fewer than those of the values");
        Self { kind, high: WeightVec::zeroed(high), low: WeightVec::zeroed(low), filled: 0 }
    }

    /// Fills both with all values, which stand as in an [`Int8Matrix`].
    fn fill(&mut self, values: &[u8], loader: &mut WeightLoader<'_, '_>) {
        let strips = WeightLoader::units(STRIP);
        let (high, low) = self.kind.packing.strip_bytes();
        // A plane that is not there is always empty.
        let mut low = self.low.chunks_mut((strips * low).max(1));
        let low = iter::repeat_with(|| low.next().unwrap_or_default());
        let planes = self.high.chunks_mut(strips * high).zip(low);
        loader.each(values.chunks(strips * STRIP).zip(planes), |values, (high, low)| {
            self.kind.split(values, high, low);
        });
    }

    /// Adds a panel.
    fn push(&mut self, panel: &[u8]) {
        let (high, low) = self.kind.packing.strip_bytes();
        let high = &mut self.high[self.filled * high..];
        self.kind.split(panel, high, &mut self.low[self.filled * low..]);
        self.filled += panel.len() / STRIP;
    }

    fn into_bytes(self) -> (Bytes, Bytes) {
        (self.high.into_bytes(), self.low.into_bytes())
    }
}

/// Writes the lines of a plane of four bits: each joins two blocks.
fn join_pairs(strip: &[u8; STRIP], out: &mut [u8], join: impl Fn(u8, u8) -> u8) {
    let pairs = strip.as_chunks::<{ 2 * BLOCK_BYTES }>().0;
    for (pair, line) in pairs.iter().zip(out.as_chunks_mut::<BLOCK_BYTES>().0) {
        let (first, second) = pair.split_at(BLOCK_BYTES);
        for ((a, b), out) in first.iter().zip(second).zip(line) {
            *out = join(*a, *b);
        }
    }
}

/// Writes the line of a plane of two bits.
fn join_four(strip: &[u8; STRIP], out: &mut [u8], two: impl Fn(u8) -> u8) {
    let [a, b, c, d] = bytemuck::must_cast_ref::<_, [[u8; BLOCK_BYTES]; 4]>(strip);
    for (i, out) in out.iter_mut().enumerate() {
        *out = two(a[i]) | two(b[i]) << 2 | two(c[i]) << 4 | two(d[i]) << 6;
    }
}

/// The planes of values that have as many bits as they hold: `values(row, out)` writes a row's.
fn pack_planes(
    (rows, cols): (usize, usize),
    packing: Packing,
    mut values: impl FnMut(usize, &mut [i8]),
) -> Result<(Bytes, Bytes), LayoutError> {
    if Int8Matrix::value_bytes(rows, cols).is_none() {
        return Err(LayoutError::TooLarge(rows, cols));
    }
    let shift = if packing == Packing::Six { 2 } else { 4 };
    let mut planes = Planes::new((rows, cols), Strips { packing, shift });
    let strips = cols.div_ceil(INT8_PAD_COLS);
    let mut panel = vec![0i8; strips * STRIP];
    let mut row_values = vec![0i8; strips * INT8_PAD_COLS];
    for first in (0..rows).step_by(PANEL_ROWS) {
        if rows - first < PANEL_ROWS {
            panel.fill(0);
        }
        for row in first..rows.min(first + PANEL_ROWS) {
            values(row, &mut row_values[..cols]);
            lay_row(&row_values, row % PANEL_ROWS, &mut panel);
        }
        planes.push(bytemuck::cast_slice(&panel));
    }
    Ok(planes.into_bytes())
}

/// Numbers of each row, `[panel][each][16 rows]`: `fill(row, out)` writes a row's.
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

/// Floats times `factor` as little-endian bits.
fn write_floats(floats: &[f32], factor: f32, out: &mut [u32]) {
    out.iter_mut().zip(floats).for_each(|(out, f)| *out = (f * factor).to_bits().to_le());
}
