//! Ternary × int8 with `vpdpbusd`. A field of a block is 16 rows × 4 columns, so one instruction per field
//! and activation row multiplies 16 rows in 16 lanes.

mod batch;
pub mod lookup;
mod one_bit;
mod registers;
mod tight;
mod unpack;

pub use unpack::{FIELDS, Field};

use super::Avx512;
use super::arrange::ColumnQuad;
use crate::kernel::Quantized;
use crate::kernel::avx2::ternary::lookup::Lookup;
use crate::kernel::byte_dot::byte_dot;
use crate::kernel::panels::interleaved_panels;
use crate::kernel::simd::{Simd, by_token};
use crate::kernel::ternary::{TernaryArgs, tile};
use crate::mem::AlignedVec;
use crate::par::{Columns, Scratch};
use crate::ternary::{PANEL_ROWS, TernaryMatrix};
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
        rows if rows <= streamed => C::streams(&args, panels, 0..rows, y, rearranged),
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
    /// memory bandwidth limits. The buffer is for activations in another order.
    fn streams(
        args: &TernaryArgs<'_, Self>,
        panels: Range<usize>,
        rows: Range<usize>,
        y: &mut Columns<'_>,
        rearranged: &mut AlignedVec<i8>,
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
        _: &mut AlignedVec<i8>,
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
        by_token!(args.s, registers::dot(&args.codes(panel)[args.group(g)], x))
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
        by_token!(args.s, unpack::unpack(blocks, next.cast(), out));
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

// 16 columns · 3 · 128 · 2¹⁸ blocks < 2³¹.
byte_dot!(Avx512, super::lanes, chunk: 1 << 18, ahead: AHEAD, chains: [1, 4, 2, 2, 4, 2, 2, 2, 2], unsafe);
