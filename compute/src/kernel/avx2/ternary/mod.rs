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
use super::lanes::{prefetch, repeat4};
use crate::kernel::Quantized;
use crate::kernel::panels::interleaved_panels;
use crate::kernel::ternary::{self, TernaryDot, tile};
use crate::mem::AlignedVec;
use crate::par::{Columns, Scratch};
use crate::ternary::{BLOCK_BYTES, BLOCK_COLS, TernaryMatrix};
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
/// faster.
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
pub trait BatchDot: TernaryDot<Block = [i8; BLOCK_COLS], IntPanel = Exact, Panel = Total> {
    /// Number of rows from which the last tile of a batch with many panels uses tables.
    const LOOKUP_FROM: usize;

    /// Adds Σ c·q of decoded codes, `[step][half]`, and `N` activation rows, `[step][row]`.
    fn dot_steps<const N: usize>(self, codes: &[[__m256i; 2]], x: &[[i8; 4]], exact: &mut [Exact]);
}

/// See the scalar definition; see [`ternary`] for `SKIPS`.
#[target_feature(enable = "avx2,fma,f16c")]
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
    let plain = args.with(Avx2::new());
    let skips = match (x.rows(), x.planes) {
        (1, _) if SKIPS => sparse::sparse::<1>(&plain, panels.clone(), y, live),
        (2, 2) if SKIPS => sparse::sparse::<2>(&plain, panels.clone(), y, live),
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
#[target_feature(enable = "avx2,fma,f16c")]
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
    let plain = args.with(Avx2::new());
    for panels in lookup::panel_blocks(panels) {
        let done = lookup::lookup(&plain, &plain.s, panels.clone(), tables.clone(), y, buffers);
        let rest = if done { tables.end..all.end } else { all.clone() };
        batch::batch(args, panels, rest, y, rearranged);
    }
}

/// Multiplies panels × all activation rows and decodes codes in registers. This is for small batches,
/// which memory bandwidth limits, or whose single tile would not repay decoding to memory.
#[target_feature(enable = "avx2,fma,f16c")]
fn streams<S: BatchDot, const P: usize>(
    args: &ternary::TernaryArgs<'_, S>,
    panels: [usize; P],
    y: &mut Columns<'_>,
) {
    match args.x.rows() {
        0 => {}
        // Panels are interleaved as long as registers hold the sums.
        1 => tile::<_, P, 1>(args, panels, 0, args.activations(0), y),
        2 => tile::<_, P, 2>(args, panels, 0, args.activations(0), y),
        3 => each::<_, 3>(args, &panels, y),
        4 => each::<_, 4>(args, &panels, y),
        5 => each::<_, 5>(args, &panels, y),
        _ => each::<_, STREAMED_ROWS>(args, &panels, y),
    }
}

/// Multiplies one panel after the other × all `N` activation rows.
#[target_feature(enable = "avx2,fma,f16c")]
fn each<S: BatchDot, const N: usize>(
    args: &ternary::TernaryArgs<'_, S>,
    panels: &[usize],
    y: &mut Columns<'_>,
) {
    for &panel in panels {
        tile::<_, 1, N>(args, [panel], 0, args.activations(0), y);
    }
}

impl BatchDot for Avx2 {
    const LOOKUP_FROM: usize = 14;

    #[inline(always)]
    fn dot_steps<const N: usize>(self, codes: &[[__m256i; 2]], x: &[[i8; 4]], exact: &mut [Exact]) {
        // SAFETY: the token proves that the CPU has the features.
        unsafe { batch::dot::<N>(codes, x, exact) }
    }
}

impl TernaryDot for Avx2 {
    type Block = [i8; BLOCK_COLS];
    const CHUNK: usize = CHUNK;

    #[inline(always)]
    fn dot<const P: usize, const N: usize>(
        self,
        codes: [&[[u8; BLOCK_BYTES]]; P],
        xs: [&[[i8; BLOCK_COLS]]; N],
        exact: &mut [[Exact; N]; P],
    ) {
        // SAFETY: the token proves that the CPU has the features.
        unsafe { dot(codes, xs, exact) }
    }
}

/// Adds Σ c·q over a chunk of packed blocks of each panel.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn dot<const P: usize, const N: usize>(
    packed: [&[[u8; BLOCK_BYTES]]; P],
    xs: [&[[i8; BLOCK_COLS]]; N],
    exact: &mut [[Exact; N]; P],
) {
    let blocks = packed[0].len();
    let (mut codes, mut rows) = (packed, xs);
    for codes in &mut codes {
        *codes = &codes[..blocks];
    }
    for row in &mut rows {
        *row = &row[..blocks];
    }
    let mut narrow = [[[_mm256_setzero_si256(); 2]; N]; P];
    for b in 0..blocks {
        let mut x: [&[i8; BLOCK_COLS]; N] = [&[0; BLOCK_COLS]; N];
        for n in 0..N {
            x[n] = &rows[n][b];
        }
        for p in 0..P {
            prefetch(codes[p][b].as_ptr(), AHEAD);
            multiply(&codes[p][b], &x, &mut narrow[p]);
        }
    }
    for p in 0..P {
        widen(&narrow[p], &mut exact[p]);
    }
}

/// Adds the products of a packed block with 16 activations of each row to 16-bit sums.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn multiply<const N: usize>(
    block: &[u8; BLOCK_BYTES],
    xs: &[&[i8; BLOCK_COLS]; N],
    narrow: &mut [[__m256i; 2]; N],
) {
    let mask = _mm256_set1_epi8(3);
    let mut q: [__m256i; 2] = bytemuck::must_cast(*block);
    for field in 0..4 {
        let w = [_mm256_and_si256(q[0], mask), _mm256_and_si256(q[1], mask)];
        for n in 0..N {
            let x = repeat4(&xs[n].as_chunks().0[field]);
            for h in 0..2 {
                narrow[n][h] = _mm256_add_epi16(narrow[n][h], _mm256_maddubs_epi16(w[h], x));
            }
        }
        q = [_mm256_srli_epi16::<2>(q[0]), _mm256_srli_epi16::<2>(q[1])];
    }
}

/// Adds pairs of 16-bit sums to the 32-bit ones.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn widen(narrow: &[[__m256i; 2]], exact: &mut [Exact]) {
    let ones = _mm256_set1_epi16(1);
    for (narrow, exact) in narrow.iter().zip(exact) {
        for h in 0..2 {
            exact[h] = _mm256_add_epi32(exact[h], _mm256_madd_epi16(narrow[h], ones));
        }
    }
}
