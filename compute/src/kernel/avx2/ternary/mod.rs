//! Ternary × int8.
//!
//! A block is two halves of 8 rows. Shift and mask extract the fields of a half. `vpmaddubsw` multiplies
//! them with four broadcast activations; codes are the unsigned operand. 16-bit sums collect up to
//! [`CHUNK`] blocks before they are widened: 4 fields × 2 products × 3 · 128 × 10 blocks = 30,720 fits an
//! int16.

mod batch;
pub mod lookup;
mod sparse;

use super::Avx2;
use crate::kernel::Quantized;
use crate::kernel::byte_dot::{ByteDot, byte_dot};
use crate::kernel::one_bit::{self, OneBitDot};
use crate::kernel::panels::interleaved_panels;
use crate::kernel::simd::{Task, by_token};
use crate::kernel::ternary::{self, tile};
use crate::mem::AlignedVec;
use crate::par::{Columns, Scratch};
use crate::ternary::{Layout, TernaryMatrix};
use std::arch::x86_64::*;
use std::ops::Range;

/// Most blocks whose products fit 16-bit sums.
const CHUNK: usize = 10;
/// Prefetch distance in bytes.
pub const AHEAD: usize = 1536;
/// Number of activation rows from which the last tile uses tables with any number of panels.
const LOOKUP_ROWS: usize = 28;
/// Number of panels from which a last tile with fewer rows uses tables.
const LOOKUP_PANELS: usize = 64;
/// Most rows of a batch that decodes codes in registers; the sums of another row would not fit.
const STREAMED_ROWS: usize = 6;

/// See the scalar definition. With `SKIPS`, blocks of zeros of a single token are skipped if that is
/// faster, and matrices are in the two-bit layout.
#[target_feature(enable = "avx2,fma,f16c")]
pub fn ternary<const SKIPS: bool>(
    w: &TernaryMatrix,
    panels: Range<usize>,
    x: &Quantized<'_>,
    y: &mut Columns<'_>,
    scratch: &mut Scratch,
) {
    product::<_, SKIPS>(Avx2::new(), w, panels, (x, y), scratch);
}

/// Products of the AVX2 set or of one with more instructions.
///
/// Functions over it have no target features of their own but are inlined into one with the features of
/// the set. Features of AVX2 alone would turn each operation of a wider set into a call.
pub trait BatchDot: OneBitDot + ByteDot<Ints = __m256i, IntPanel = Exact, Panel = Total> {
    /// Number of rows from which the last tile of a batch with many panels uses tables.
    const LOOKUP_FROM: usize;

    /// Returns the proof of AVX2 alone.
    fn base(self) -> Avx2;
}

/// See the scalar definition; see [`ternary`] for `SKIPS`.
#[inline(always)]
pub fn product<S: BatchDot, const SKIPS: bool>(
    s: S,
    w: &TernaryMatrix,
    panels: Range<usize>,
    (x, y): (&Quantized<'_>, &mut Columns<'_>),
    scratch: &mut Scratch,
) {
    let Scratch { ints, decoded, tables, shorts, sums: exact, floats, rearranged, live, .. } =
        scratch;
    let args = ternary::TernaryArgs::new(s, w, x, panels.start, ints);
    let plain = args.with(s.base());
    let skips = match (x.rows(), x.planes) {
        (1, _) if SKIPS => by_token!(s, sparse::sparse::<1>(&plain, panels.clone(), y, live)),
        (2, 2) if SKIPS => by_token!(s, sparse::sparse::<2>(&plain, panels.clone(), y, live)),
        _ => false,
    };
    if skips {
        return;
    }
    if x.rows() > STREAMED_ROWS {
        let mut buffers = lookup::LookupBuffers {
            indices: decoded,
            tables,
            narrow: shorts,
            exact,
            totals: floats,
        };
        return batch(&args, panels, y, rearranged, &mut buffers);
    }
    if !SKIPS && w.layout() == Layout::OneBit {
        return one_bit::streams(&args, panels, 0..x.rows(), y);
    }
    let (pairs, left) = interleaved_panels::<2>(panels, w.panel_bytes());
    for pair in pairs {
        streams(&args, pair, y);
    }
    for panel in left {
        streams(&args, [panel], y);
    }
}

/// Returns the number of a batch's rows that use tables: those of whole tiles, and the rest if that is
/// faster.
fn tabulated<S: BatchDot>(rows: usize, panels: usize) -> usize {
    match rows % lookup::TILE {
        LOOKUP_ROWS.. => rows,
        rest @ (14..=16 | 22..) if rest >= S::LOOKUP_FROM && panels >= LOOKUP_PANELS => rows,
        rest => rows - rest,
    }
}

/// Arguments of a product.
pub type TernaryArgs<'a> = ternary::TernaryArgs<'a, Avx2>;
/// Sums of one activation row with the 16 rows of a panel.
pub type Exact = [__m256i; 2];
/// Scaled sums of one activation row with the 16 rows of a panel.
type Total = [__m256; 2];

/// Multiplies more rows than registers can hold: by table if that is faster, else by multiplication.
#[inline(always)]
fn batch<S: BatchDot>(
    args: &ternary::TernaryArgs<'_, S>,
    panels: Range<usize>,
    y: &mut Columns<'_>,
    rearranged: &mut AlignedVec<i8>,
    buffers: &mut lookup::LookupBuffers<'_>,
) {
    let (all, tables) = (0..args.x.rows(), 0..tabulated::<S>(args.x.rows(), panels.len()));
    if tables.is_empty() {
        return batch::batch(args, panels, all, y, rearranged);
    }
    let plain = args.with(args.s.base());
    for panels in lookup::panel_blocks(panels) {
        let block = panels.clone();
        let done =
            by_token!(plain.s, lookup::lookup(&plain, &plain.s, block, tables.clone(), y, buffers));
        let rest = if done { tables.end..all.end } else { all.clone() };
        batch::batch(args, panels, rest, y, rearranged);
    }
}

/// Multiplies panels × all activation rows and decodes codes in registers. This is for small batches,
/// which memory bandwidth limits, or whose single tile would not repay decoding to memory.
#[inline(always)]
fn streams<S: BatchDot, const P: usize>(
    args: &ternary::TernaryArgs<'_, S>,
    panels: [usize; P],
    y: &mut Columns<'_>,
) {
    match args.x.rows() {
        0 => {}
        // Panels are interleaved as long as registers hold the sums.
        1 => args.s.outlined(Tile::<S, P, 1> { args, panels, y }),
        2 => args.s.outlined(Tile::<S, P, 2> { args, panels, y }),
        3 => each::<_, 3>(args, &panels, y),
        4 => each::<_, 4>(args, &panels, y),
        5 => each::<_, 5>(args, &panels, y),
        _ => each::<_, STREAMED_ROWS>(args, &panels, y),
    }
}

/// Multiplies one panel after the other × all `N` activation rows.
#[inline(always)]
fn each<S: BatchDot, const N: usize>(
    args: &ternary::TernaryArgs<'_, S>,
    panels: &[usize],
    y: &mut Columns<'_>,
) {
    for &panel in panels {
        args.s.outlined(Tile::<S, 1, N> { args, panels: [panel], y });
    }
}

/// The product of `P` interleaved panels × all `N` activation rows.
struct Tile<'t, 'a, 'y, S, const P: usize, const N: usize> {
    args: &'t ternary::TernaryArgs<'a, S>,
    panels: [usize; P],
    y: &'t mut Columns<'y>,
}

impl<S: BatchDot, const P: usize, const N: usize> Task for Tile<'_, '_, '_, S, P, N> {
    #[inline(always)]
    fn run(self) {
        tile(self.args, self.panels, 0, self.args.activations::<N>(0), self.y);
    }
}

impl BatchDot for Avx2 {
    const LOOKUP_FROM: usize = 14;

    #[inline(always)]
    fn base(self) -> Avx2 {
        self
    }
}

impl OneBitDot for Avx2 {
    // Of 8 times 2 columns · 128, 16-bit sums hold 16 blocks.
    const STEPS: usize = 16;
    const BITS: [usize; 5] = [4, 4, 2, 2, 1];
    const PANELS: usize = 1;
    const AHEAD: usize = AHEAD;
}

byte_dot!(Avx2, super::lanes, chunk: CHUNK, ahead: AHEAD, chains: [1; 9], unsafe);
