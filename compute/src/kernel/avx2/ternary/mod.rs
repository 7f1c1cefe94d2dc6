//! Ternary × int8.
//!
//! A block is two halves of 8 rows. Shift and mask extract the fields of a half. `vpmaddubsw` multiplies
//! them with four broadcast activations; codes are the unsigned operand. 16-bit sums collect up to
//! [`CHUNK`] blocks before they are widened: 4 fields × 2 products × 3 · 128 × 10 blocks = 30,720 fits an
//! int16.

mod batch;
pub mod lookup;
mod sparse;

use super::lanes::{prefetch, repeat4};
use crate::kernel::Quantized;
use crate::kernel::panels::interleaved_panels;
use crate::mem::AlignedVec;
use crate::par::{Columns, Scratch};
use crate::ternary::{BLOCK_BYTES, BLOCK_COLS, PANEL_ROWS, Scales, TernaryMatrix};
use std::arch::x86_64::*;
use std::ops::Range;

/// Most blocks whose products fit 16-bit sums.
const CHUNK: usize = 10;
/// Prefetch distance in bytes.
const AHEAD: usize = 1536;
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
    let Scratch { ints, decoded, tables, shorts, sums: exact, floats, rearranged, live, .. } =
        scratch;
    let args = TernaryArgs::new(w, x, panels.start, x.scale_groups(w, ints));
    let skips = match (x.rows(), x.planes) {
        (1, _) if SKIPS => sparse::sparse::<1>(&args, panels.clone(), y, live),
        (2, 2) if SKIPS => sparse::sparse::<2>(&args, panels.clone(), y, live),
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
        return args.batch(panels, y, rearranged, &mut buffers);
    }
    let (pairs, left) = interleaved_panels::<2>(panels, w.panel_bytes());
    for pair in pairs {
        args.streams(pair, y);
    }
    for panel in left {
        args.streams([panel], y);
    }
}

/// Returns the number of a batch's rows that use tables: those of whole tiles, and the rest if that is
/// faster.
fn tabulated(rows: usize, panels: usize) -> usize {
    match rows % lookup::TILE {
        LOOKUP_ROWS.. => rows,
        14..=16 | 22.. if panels >= LOOKUP_PANELS => rows,
        rest => rows - rest,
    }
}

/// Arguments of a product that all its tiles share.
pub struct TernaryArgs<'a> {
    w: &'a TernaryMatrix,
    x: &'a Quantized<'a>,
    /// Sums of activations, `[rows][groups]`.
    sums: &'a [i32],
    /// Number of blocks in a panel.
    blocks: usize,
    /// Number of groups of columns that share a scale.
    groups: usize,
    /// Number of blocks in a group.
    group_blocks: usize,
    /// First panel of the output view.
    first: usize,
}

/// Sums of one activation row with the 16 rows of a panel.
type Exact = [__m256i; 2];
/// Scaled sums of one activation row with the 16 rows of a panel.
type Total = [__m256; 2];

impl<'a> TernaryArgs<'a> {
    /// Collects the arguments; `size` columns share a scale, and `sums` are the sums of activations.
    pub fn new(
        w: &'a TernaryMatrix,
        x: &'a Quantized<'a>,
        first: usize,
        (size, sums): (usize, &'a [i32]),
    ) -> Self {
        let (blocks, group_blocks) = (w.cols().div_ceil(BLOCK_COLS), size / BLOCK_COLS);
        Self { w, x, sums, blocks, groups: blocks.div_ceil(group_blocks), group_blocks, first }
    }

    /// Multiplies more rows than registers can hold: by table if that is faster, else by multiplication.
    #[target_feature(enable = "avx2,fma,f16c")]
    fn batch(
        &self,
        panels: Range<usize>,
        y: &mut Columns<'_>,
        rearranged: &mut AlignedVec<i8>,
        buffers: &mut lookup::LookupBuffers<'_>,
    ) {
        let (all, tables) = (0..self.x.rows(), 0..tabulated(self.x.rows(), panels.len()));
        if tables.is_empty() {
            return batch::batch(self, panels, all, y, rearranged);
        }
        for panels in lookup::panel_blocks(panels) {
            let ops = &lookup::TWO_BIT;
            // SAFETY: these functions need AVX2.
            let done =
                unsafe { lookup::lookup(self, ops, panels.clone(), tables.clone(), y, buffers) };
            let rest = if done { tables.end..all.end } else { all.clone() };
            batch::batch(self, panels, rest, y, rearranged);
        }
    }

    /// Multiplies panels × all activation rows and decodes codes in registers. This is for small batches,
    /// which memory bandwidth limits, or whose single tile would not repay decoding to memory.
    #[target_feature(enable = "avx2,fma,f16c")]
    fn streams<const P: usize>(&self, panels: [usize; P], y: &mut Columns<'_>) {
        match self.x.rows() {
            0 => {}
            // Panels are interleaved as long as registers hold the sums.
            1 => self.stream::<P, 1>(panels, y),
            2 => self.stream::<P, 2>(panels, y),
            3 => panels.iter().for_each(|&panel| self.stream::<1, 3>([panel], y)),
            4 => panels.iter().for_each(|&panel| self.stream::<1, 4>([panel], y)),
            5 => panels.iter().for_each(|&panel| self.stream::<1, 5>([panel], y)),
            _ => panels.iter().for_each(|&panel| self.stream::<1, STREAMED_ROWS>([panel], y)),
        }
    }

    /// Multiplies `P` interleaved panels × all `N` activation rows.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    fn stream<const P: usize, const N: usize>(&self, panels: [usize; P], y: &mut Columns<'_>) {
        let mut xs: [&[[i8; BLOCK_COLS]]; N] = [&[]; N];
        for (n, x) in xs.iter_mut().enumerate() {
            *x = &self.x.row_chunks(n)[..self.blocks];
        }
        let mut totals = [[[_mm256_setzero_ps(); 2]; N]; P];
        for g in 0..self.groups {
            let mut exact = [[[_mm256_setzero_si256(); 2]; N]; P];
            for chunk in self.chunks(g, CHUNK) {
                let mut packed: [&[[u8; BLOCK_BYTES]]; P] = [&[]; P];
                for (packed, &panel) in packed.iter_mut().zip(&panels) {
                    *packed = &self.codes(panel)[chunk.clone()];
                }
                dot(&packed, &xs, chunk.start, &mut exact);
            }
            for p in 0..P {
                self.scale(panels[p], g, 0, &exact[p], &mut totals[p]);
            }
        }
        for p in 0..P {
            self.store(panels[p], 0, &totals[p], y);
        }
    }

    /// Splits the blocks of group `g` into chunks of `size`.
    fn chunks(&self, g: usize, size: usize) -> impl Iterator<Item = Range<usize>> + use<> {
        let end = ((g + 1) * self.group_blocks).min(self.blocks);
        (g * self.group_blocks..end).step_by(size).map(move |at| at..end.min(at + size))
    }

    /// Returns the two-bit codes of a panel.
    fn codes(&self, panel: usize) -> &[[u8; BLOCK_BYTES]] {
        self.panel(panel).as_chunks().0
    }

    /// Returns the matrix.
    pub fn matrix(&self) -> &TernaryMatrix {
        self.w
    }

    /// Returns the bytes of a panel's codes.
    pub fn panel(&self, panel: usize) -> &[u8] {
        let bytes = self.w.panel_bytes();
        &self.w.codes()[panel * bytes..][..bytes]
    }

    /// Returns the scales of a panel's 16 rows in group `g`.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    fn scales(&self, panel: usize, g: usize) -> [__m256; 2] {
        match self.w.scales() {
            Scales::Tensor(s) => [_mm256_set1_ps(*s); 2],
            Scales::Groups(scales) => {
                let halves = &scales.bytes().as_chunks::<32>().0[panel * self.groups + g];
                let both: [__m128i; 2] = bytemuck::must_cast(*halves);
                [_mm256_cvtph_ps(both[0]), _mm256_cvtph_ps(both[1])]
            }
        }
    }

    /// Adds (Σ c·q − Σ q) · scale of group `g`, for activation rows from `row` on.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    fn scale(&self, panel: usize, g: usize, row: usize, exact: &[Exact], totals: &mut [Total]) {
        let scales = self.scales(panel, g);
        for (n, (exact, total)) in exact.iter().zip(totals).enumerate() {
            let offset = _mm256_set1_epi32(self.sums[(row + n) * self.groups + g]);
            for h in 0..2 {
                let value = _mm256_cvtepi32_ps(_mm256_sub_epi32(exact[h], offset));
                // Not fused: every instruction set rounds the product, so that all agree bit for bit.
                total[h] = _mm256_add_ps(total[h], _mm256_mul_ps(value, scales[h]));
            }
        }
    }

    /// Writes a panel's outputs of activation rows from `row` on.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    fn store(&self, panel: usize, row: usize, totals: &[Total], y: &mut Columns<'_>) {
        let from = (panel - self.first) * PANEL_ROWS;
        for (n, total) in totals.iter().enumerate() {
            let (token, adds) = self.x.target(row + n);
            store(total, self.x.steps[row + n], &mut y.row(token)[from..], adds);
        }
    }
}

/// Adds Σ c·q over a chunk of packed blocks of each panel. The activations start with block `from`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn dot<const P: usize, const N: usize>(
    packed: &[&[[u8; BLOCK_BYTES]]; P],
    xs: &[&[[i8; BLOCK_COLS]]; N],
    from: usize,
    exact: &mut [[Exact; N]; P],
) {
    let blocks = packed[0].len();
    let mut rows: [&[[i8; BLOCK_COLS]]; N] = [&[]; N];
    for (row, x) in rows.iter_mut().zip(xs) {
        *row = &x[from..][..blocks];
    }
    let mut codes: [&[[u8; BLOCK_BYTES]]; P] = [&[]; P];
    for (codes, packed) in codes.iter_mut().zip(packed) {
        *codes = &packed[..blocks];
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

/// Writes a panel's outputs of one activation row to the first 16 elements of `out`, or adds them.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub fn store(total: &[__m256; 2], step: f32, out: &mut [f32], adds: bool) {
    let step = _mm256_set1_ps(step);
    let lanes: [f32; PANEL_ROWS] = bytemuck::must_cast(total.map(|t| _mm256_mul_ps(t, step)));
    match out.first_chunk_mut::<PANEL_ROWS>() {
        Some(out) if adds => out.iter_mut().zip(lanes).for_each(|(o, l)| *o += l),
        Some(out) => *out = lanes,
        None => store_rest(out, &lanes, adds),
    }
}

/// Writes the outputs of a last panel with fewer than 16 rows. It is not inlined, because the compiler
/// would use a copy of variable length for all panels.
#[cold]
fn store_rest(out: &mut [f32], lanes: &[f32; PANEL_ROWS], adds: bool) {
    for (o, l) in out.iter_mut().zip(lanes) {
        *o = if adds { *o + l } else { *l };
    }
}
