//! Ternary × int8 with `vpdpbusd`. A field of a block is 16 rows × 4 columns, so one instruction per field
//! and activation row multiplies 16 rows in 16 lanes.

mod batch;
pub mod lookup;
mod registers;
mod tight;
mod unpack;

pub use unpack::{FIELDS, Field};

use super::Avx512;
use super::arrange::ColumnQuad;
use crate::kernel::Quantized;
use crate::kernel::avx2::prefetch;
use crate::kernel::avx2::ternary::lookup::Lookup;
use crate::kernel::panels::interleaved_panels;
use crate::kernel::simd::Simd;
use crate::kernel::ternary::{TernaryArgs, TernaryDot, tile};
use crate::par::{Columns, Scratch};
use crate::ternary::{BLOCK_BYTES, BLOCK_COLS, PANEL_ROWS, TernaryMatrix};
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
pub fn ternary<C: Codes, const TABLES: bool>(
    codes: C,
    w: &TernaryMatrix,
    panels: Range<usize>,
    x: &Quantized<'_>,
    y: &mut Columns<'_>,
    scratch: &mut Scratch,
) {
    let Scratch { ints, decoded, tables, rearranged, shorts, sums: exact, floats, .. } = scratch;
    let args = TernaryArgs::new(codes, w, x, panels.start, ints);
    let streamed = if TABLES { FEW_ROWS } else { STREAMED_ROWS };
    match x.rows() {
        rows if rows <= streamed => C::streams(&args, panels, 0..rows, y),
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

/// A layout of codes, as a CPU that has its instructions decodes it.
pub trait Codes: Simd<Panel = [__m512; 1], IntPanel = [__m512i; 1]> {
    /// The layout's lookup.
    type Lookup: Lookup;

    /// Multiplies panels × some rows and decodes codes in registers. This is for small batches, which
    /// memory bandwidth limits.
    fn streams(
        args: &TernaryArgs<'_, Self>,
        panels: Range<usize>,
        rows: Range<usize>,
        y: &mut Columns<'_>,
    );
    /// Returns the exact Σ c·q of a group of a panel × `N` rows, by steps.
    fn dot_rows<const N: usize>(
        args: &TernaryArgs<'_, Self>,
        panel: usize,
        g: usize,
        x: &[[ColumnQuad; N]],
    ) -> [__m512i; N];
    /// Decodes whole blocks of fields of a panel. Prefetches the same number of fields of another panel,
    /// from `next` = (panel, field) on.
    fn unpack(
        args: &TernaryArgs<'_, Self>,
        fields: (usize, Range<usize>),
        next: Option<(usize, usize)>,
        out: &mut [Field],
    );
    /// Returns the lookup of a product.
    fn lookup(args: &TernaryArgs<'_, Self>) -> Self::Lookup;
}

/// Number of fields of a panel: vectors of 16 rows × 4 columns.
pub fn fields<C: Codes>(args: &TernaryArgs<'_, C>) -> usize {
    args.blocks * FIELDS
}

/// The two-bit layout.
impl Codes for Avx512 {
    type Lookup = Self;

    #[inline(always)]
    fn streams(
        args: &TernaryArgs<'_, Self>,
        panels: Range<usize>,
        rows: Range<usize>,
        y: &mut Columns<'_>,
    ) {
        let (pairs, left) = interleaved_panels::<2>(panels, args.w.panel_bytes());
        for pair in pairs {
            stream(args, pair, rows.clone(), y);
        }
        for panel in left {
            stream(args, [panel], rows.clone(), y);
        }
    }

    #[inline(always)]
    fn dot_rows<const N: usize>(
        args: &TernaryArgs<'_, Self>,
        panel: usize,
        g: usize,
        x: &[[ColumnQuad; N]],
    ) -> [__m512i; N] {
        // SAFETY: the token proves that the CPU has the features.
        unsafe { registers::dot(&args.codes(panel)[args.group(g)], x) }
    }

    #[inline(always)]
    fn unpack(
        args: &TernaryArgs<'_, Self>,
        (panel, fields): (usize, Range<usize>),
        next: Option<(usize, usize)>,
        out: &mut [Field],
    ) {
        let at = |panel, field| &args.codes(panel)[field / FIELDS..];
        let next = next.filter(|(panel, _)| panel * PANEL_ROWS < args.w.rows());
        let next = next.map_or(std::ptr::null(), |(panel, field)| at(panel, field).as_ptr());
        let blocks = &at(panel, fields.start)[..fields.len() / FIELDS];
        // SAFETY: the token proves that the CPU has the features.
        unsafe { unpack::unpack(blocks, next.cast(), out) }
    }

    fn lookup(args: &TernaryArgs<'_, Self>) -> Self {
        args.s
    }
}

/// Multiplies `P` interleaved panels × some rows, as many at a time as the registers have room for.
#[inline(always)]
fn stream<const P: usize>(
    args: &TernaryArgs<'_, Avx512>,
    panels: [usize; P],
    rows: Range<usize>,
    y: &mut Columns<'_>,
) {
    let mut row = rows.start;
    while row < rows.end {
        let rows = match rows.end - row {
            8.. => 8,
            left => left.min(4),
        };
        match rows {
            8 => each::<8>(args, &panels, row, y),
            4 => each::<4>(args, &panels, row, y),
            3 => tile::<_, P, 3>(args, panels, row, args.activations(row), y),
            2 => tile::<_, P, 2>(args, panels, row, args.activations(row), y),
            _ => tile::<_, P, 1>(args, panels, row, args.activations(row), y),
        }
        row += rows;
    }
}

/// Multiplies one panel after the other × `N` activation rows from `row` on.
#[inline(always)]
fn each<const N: usize>(
    args: &TernaryArgs<'_, Avx512>,
    panels: &[usize],
    row: usize,
    y: &mut Columns<'_>,
) {
    for &panel in panels {
        tile::<_, 1, N>(args, [panel], row, args.activations(row), y);
    }
}

impl TernaryDot for Avx512 {
    type Block = [i8; BLOCK_COLS];
    /// 16 columns · 3 · 128 · 2¹⁸ blocks < 2³¹.
    const CHUNK: usize = 1 << 18;

    #[inline(always)]
    fn dot<const P: usize, const N: usize>(
        self,
        codes: [&[[u8; BLOCK_BYTES]]; P],
        xs: [&[[i8; BLOCK_COLS]]; N],
        exact: &mut [[[__m512i; 1]; N]; P],
    ) {
        // SAFETY: the token proves that the CPU has the features.
        unsafe { dot(codes, xs, exact) }
    }
}

/// Most sums that hide the latency of `vpdpbusd`.
const CHAINS: usize = 4;

/// Number of sums of each of `rows` rows that hide the latency and fit the registers.
const fn chains(rows: usize) -> usize {
    if rows == 1 || rows == 4 { CHAINS } else { 2 }
}

/// Adds the exact Σ c·q of 16 rows of each panel × `N` activation rows.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
#[allow(clippy::needless_range_loop)] // All of `codes` and `xs` share an index.
fn dot<const P: usize, const N: usize>(
    codes: [&[[u8; BLOCK_BYTES]]; P],
    xs: [&[[i8; BLOCK_COLS]]; N],
    exact: &mut [[[__m512i; 1]; N]; P],
) {
    let mask = _mm512_set1_epi8(3);
    let mut sums = [[[_mm512_setzero_si512(); CHAINS]; N]; P];
    let blocks = codes[0].len();
    let (mut codes, mut xs) = (codes, xs);
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
                    let sum = &mut sums[p][n][field % const { chains(N) }];
                    *sum = _mm512_dpbusd_epi32(*sum, w, x);
                }
                q = _mm512_srli_epi16::<2>(q);
            }
        }
    }
    for p in 0..P {
        for n in 0..N {
            for sum in sums[p][n] {
                exact[p][n][0] = _mm512_add_epi32(exact[p][n][0], sum);
            }
        }
    }
}
