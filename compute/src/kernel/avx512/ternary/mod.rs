//! Ternary × int8 with `vpdpbusd`. A field of a block is 16 rows × 4 columns, so one instruction per field
//! and activation row multiplies 16 rows in 16 lanes.

mod batch;
pub mod lookup;
mod registers;
mod tight;
mod unpack;

pub use unpack::{FIELDS, Field};

use crate::kernel::Quantized;
use crate::kernel::avx2::prefetch;
use crate::kernel::panels::interleaved_panels;
use crate::mem::AlignedVec;
use crate::par::{Columns, Scratch};
use crate::ternary::tight::{BYTES, COLS};
use crate::ternary::{BLOCK_BYTES, BLOCK_COLS, Layout, PANEL_ROWS, Scales, TernaryMatrix};
use std::arch::x86_64::*;
use std::ops::Range;

/// Prefetch distance in bytes.
const AHEAD: usize = 3072;
/// Most rows of a batch that decodes codes in registers. Larger batches decode each code once.
const STREAMED_ROWS: usize = 8;
/// As [`STREAMED_ROWS`], if [`registers`] computes larger batches.
const FEW_ROWS: usize = 5;

/// See the scalar definition. With `TABLES`, large batches use lookup tables, and small ones
/// [`registers`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub fn ternary<const TABLES: bool>(
    w: &TernaryMatrix,
    panels: Range<usize>,
    x: &Quantized<'_>,
    y: &mut Columns<'_>,
    scratch: &mut Scratch,
) {
    let Scratch { ints, decoded, tables, rearranged, shorts, sums: exact, floats, .. } = scratch;
    let args = TernaryArgs::new(w, x, panels.start, ints);
    let streamed = if TABLES { FEW_ROWS } else { STREAMED_ROWS };
    match x.rows() {
        rows if rows <= streamed => args.streams(panels, 0..rows, y),
        _ if TABLES => {
            let mut buffers = lookup::LookupBuffers {
                indices: decoded,
                tables,
                narrow: shorts,
                exact,
                totals: floats,
            };
            lookup::batch(&args, panels, y, rearranged, &mut buffers);
        }
        rows => batch::batch(&args, panels, 0..rows, y, rearranged, decoded),
    }
}

/// Arguments of a product that all its tiles share. Matrices in the tight layout only come here if the
/// CPU has VBMI; see [`super::tight`].
pub struct TernaryArgs<'a> {
    pub w: &'a TernaryMatrix,
    pub x: &'a Quantized<'a>,
    /// Sums of activations, `[rows][groups]`.
    sums: &'a [i32],
    /// Number of blocks of 16 columns in a panel.
    pub blocks: usize,
    /// Number of groups of columns that share a scale.
    pub groups: usize,
    /// Number of blocks in a group.
    pub group_blocks: usize,
    /// First panel of the output view.
    first: usize,
}

impl<'a> TernaryArgs<'a> {
    /// Collects the arguments; `sums` is a buffer for sums of activations.
    pub fn new(
        w: &'a TernaryMatrix,
        x: &'a Quantized<'a>,
        first: usize,
        sums: &'a mut AlignedVec<i32>,
    ) -> Self {
        let (size, sums) = x.scale_groups(w, sums);
        let (blocks, group_blocks) = (w.cols().div_ceil(BLOCK_COLS), size / BLOCK_COLS);
        Self { w, x, sums, blocks, groups: blocks.div_ceil(group_blocks), group_blocks, first }
    }

    /// Returns the blocks of group `g`.
    pub fn group(&self, g: usize) -> Range<usize> {
        g * self.group_blocks..((g + 1) * self.group_blocks).min(self.blocks)
    }

    /// Returns the blocks of group `g` in the tight layout.
    fn tight_group(&self, g: usize) -> Range<usize> {
        let all = self.w.group_blocks(Layout::Tight);
        let own = (self.group(g).len() * BLOCK_COLS).div_ceil(COLS);
        g * all..g * all + own.min(all)
    }

    /// Returns the activations of a row that a group multiplies. A single group's go on behind the matrix's
    /// columns, with zeros.
    fn activations(&self, row: usize, g: usize) -> &'a [i8] {
        let row = self.x.row(row);
        match self.groups {
            1 => row,
            _ => &row[self.group(g).start * BLOCK_COLS..self.group(g).end * BLOCK_COLS],
        }
    }

    /// Returns the two-bit codes of a panel.
    fn codes(&self, panel: usize) -> &'a [[u8; BLOCK_BYTES]] {
        self.panel(panel).as_chunks().0
    }

    /// Returns the codes of a panel in the tight layout.
    fn tight(&self, panel: usize) -> &'a [[u8; BYTES]] {
        self.panel(panel).as_chunks().0
    }

    fn panel(&self, panel: usize) -> &'a [u8] {
        let bytes = self.w.panel_bytes();
        &self.w.codes()[panel * bytes..][..bytes]
    }

    /// Number of fields of a panel: vectors of 16 rows × 4 columns.
    pub fn fields(&self) -> usize {
        self.blocks * FIELDS
    }

    /// Decodes whole blocks of fields of a panel. Prefetches the same number of fields of another panel,
    /// from `next` = (panel, field) on.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    pub fn unpack(
        &self,
        (panel, fields): (usize, Range<usize>),
        next: Option<(usize, usize)>,
        out: &mut [Field],
    ) {
        let next = next.filter(|(panel, _)| panel * PANEL_ROWS < self.w.rows());
        match self.w.layout() {
            Layout::TwoBit => {
                let at = |panel, field| &self.codes(panel)[field / FIELDS..];
                let next = next.map_or(std::ptr::null(), |(p, field)| at(p, field).as_ptr());
                let blocks = &at(panel, fields.start)[..fields.len() / FIELDS];
                unpack::unpack(blocks, next.cast(), out);
            }
            Layout::Tight => {
                let next = next.map_or((std::ptr::null(), 0), |(panel, field)| {
                    (self.panel(panel).as_ptr(), field)
                });
                // SAFETY: this CPU has VBMI, because the matrix is in the tight layout.
                unsafe { tight::unpack_groups(self.w, self.tight(panel), fields, next, out) }
            }
        }
    }

    /// Multiplies panels × some rows and decodes codes in registers. This is for small batches, which
    /// memory bandwidth limits.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    fn streams(&self, panels: Range<usize>, rows: Range<usize>, y: &mut Columns<'_>) {
        if self.w.layout() == Layout::Tight {
            // SAFETY: this CPU has VBMI, because the matrix is in the tight layout.
            return unsafe { tight::streams(self, panels, rows, y) };
        }
        let (pairs, left) = interleaved_panels::<2>(panels, self.w.panel_bytes());
        for pair in pairs {
            self.stream(pair, rows.clone(), y);
        }
        for panel in left {
            self.stream([panel], rows.clone(), y);
        }
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    fn stream<const P: usize>(&self, panels: [usize; P], rows: Range<usize>, y: &mut Columns<'_>) {
        let mut row = rows.start;
        while row < rows.end {
            // As many rows as the registers have room for.
            let rows = match rows.end - row {
                8.. => 8,
                left => left.min(4),
            };
            match rows {
                8 => panels.iter().for_each(|&panel| self.tile::<1, 8, 2>([panel], row, y)),
                4 => panels.iter().for_each(|&panel| self.tile::<1, 4, 4>([panel], row, y)),
                3 => self.tile::<P, 3, 2>(panels, row, y),
                2 => self.tile::<P, 2, 2>(panels, row, y),
                _ => self.tile::<P, 1, 4>(panels, row, y),
            }
            row += rows;
        }
    }

    /// Multiplies `P` panels × `N` activation rows from `row` on, with `A` sums each to hide the latency of
    /// `vpdpbusd`.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    fn tile<const P: usize, const N: usize, const A: usize>(
        &self,
        panels: [usize; P],
        row: usize,
        y: &mut Columns<'_>,
    ) {
        let mut xs: [&[[i8; BLOCK_COLS]]; N] = [&[]; N];
        for (n, x) in xs.iter_mut().enumerate() {
            *x = &self.x.row_chunks(row + n)[..self.blocks];
        }
        let mut totals = [[_mm512_setzero_ps(); N]; P];
        for g in 0..self.groups {
            let range = self.group(g);
            // Loops: closures with these CPU features are not inlined into `array::map`.
            let (mut codes, mut group_xs) = ([&[][..]; P], xs);
            for (codes, panel) in codes.iter_mut().zip(panels) {
                *codes = &self.codes(panel)[range.clone()];
            }
            for x in &mut group_xs {
                *x = &x[range.clone()];
            }
            let exact = dot::<P, N, A>(codes, group_xs);
            for p in 0..P {
                let scales = self.scales(panels[p], g);
                for n in 0..N {
                    let scaled = self.scaled(exact[p][n], row + n, g, scales);
                    totals[p][n] = _mm512_add_ps(totals[p][n], scaled);
                }
            }
        }
        for (panel, totals) in panels.into_iter().zip(totals) {
            for (n, total) in totals.into_iter().enumerate() {
                self.store(panel, row + n, total, y);
            }
        }
    }

    /// Returns (Σ c·q − Σ q) · scale of a row and a group, from the exact sums Σ c·q.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    pub fn scaled(&self, exact: __m512i, row: usize, group: usize, scales: __m512) -> __m512 {
        let offset = _mm512_set1_epi32(self.sums[row * self.groups + group]);
        // Not fused with the sum over groups: every instruction set rounds the product, so that all
        // agree bit for bit.
        _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_sub_epi32(exact, offset)), scales)
    }

    /// Writes the outputs of a panel and a row, or adds them if they are a second plane's.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    pub fn store(&self, panel: usize, row: usize, total: __m512, y: &mut Columns<'_>) {
        let (token, adds) = self.x.target(row);
        let from = (panel - self.first) * PANEL_ROWS;
        store(total, self.x.steps[row], &mut y.row(token)[from..], adds);
    }

    /// Returns the scales of a panel's 16 rows in one group.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    pub fn scales(&self, panel: usize, group: usize) -> __m512 {
        match self.w.scales() {
            Scales::Tensor(s) => _mm512_set1_ps(*s),
            Scales::Groups(g) => {
                let at = panel * g.groups() + group;
                _mm512_cvtph_ps(bytemuck::must_cast(g.bytes().as_chunks::<32>().0[at]))
            }
        }
    }
}

/// Returns the exact Σ c·q of 16 rows of each panel × `N` activation rows.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
#[allow(clippy::needless_range_loop)] // All of `codes` and `xs` share an index.
fn dot<const P: usize, const N: usize, const A: usize>(
    codes: [&[[u8; BLOCK_BYTES]]; P],
    xs: [&[[i8; BLOCK_COLS]]; N],
) -> [[__m512i; N]; P] {
    let mask = _mm512_set1_epi8(3);
    let mut sums = [[[_mm512_setzero_si512(); A]; N]; P];
    let blocks = codes[0].len();
    let (mut codes, mut xs, mut totals) = (codes, xs, [[_mm512_setzero_si512(); N]; P]);
    for codes in &mut codes {
        *codes = &codes[..blocks];
    }
    for x in &mut xs {
        *x = &x[..blocks];
    }
    for b in 0..blocks {
        for p in 0..P {
            prefetch(codes[p][b].as_ptr(), AHEAD);
            let mut q = bytemuck::must_cast(codes[p][b]);
            for field in 0..4 {
                let w = _mm512_and_si512(q, mask);
                for n in 0..N {
                    let quads: &[[i8; 4]; 4] = bytemuck::must_cast_ref(&xs[n][b]);
                    let x = _mm512_set1_epi32(bytemuck::must_cast(quads[field]));
                    let sum = &mut sums[p][n][field % A];
                    *sum = _mm512_dpbusd_epi32(*sum, w, x);
                }
                q = _mm512_srli_epi16::<2>(q);
            }
        }
    }
    for p in 0..P {
        for n in 0..N {
            for sum in sums[p][n] {
                totals[p][n] = _mm512_add_epi32(totals[p][n], sum);
            }
        }
    }
    totals
}

/// Writes a panel's outputs of one activation row to the first 16 elements of `out`, or adds them.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub fn store(total: __m512, step: f32, out: &mut [f32], adds: bool) {
    let product = _mm512_mul_ps(total, _mm512_set1_ps(step));
    let lanes = ((1u32 << out.len().min(PANEL_ROWS)) - 1) as u16;
    // SAFETY: the mask has at most as many lanes as there are outputs.
    unsafe {
        let sum = match adds {
            true => _mm512_add_ps(product, _mm512_maskz_loadu_ps(lanes, out.as_ptr())),
            false => product,
        };
        _mm512_mask_storeu_ps(out.as_mut_ptr(), lanes, sum);
    }
}
