//! One-bit weights × int8 for a few rows, of all instruction sets.
//!
//! A mask leaves one bit of each byte of a block. Its products with four activations are added to the sums
//! of this bit, which are 2ⁱ times too large, for a span of columns ([`one_bit`]). A group's Σ w·q is
//! 2 · Σ b·q − Σ q. Floats compute it exactly, because all numbers are below 2²⁴.

use super::byte_ops::{ByteOps, add_quads};
use super::panel_rows::add_ints;
use super::panels::interleaved_panels;
use super::simd::{Task, align_stack};
use super::ternary::TernaryArgs;
use crate::par::Columns;
use crate::ternary::one_bit::{Block, COLS, GROUP, SPAN};
use std::ops::Range;

/// Number of bits of a byte.
const BITS: usize = 8;
/// Most rows of a tile.
const ROWS: usize = 4;

/// An instruction set's products of single bits.
pub trait OneBitDot: ByteOps {
    /// Most blocks whose products fit the sums of [`ByteOps::add_quads`].
    const STEPS: usize;
    /// Number of bits whose sums fit the registers, by number of activation rows. Up to four, the upper half
    /// of a byte is shifted down, so that products are 8 times too large at most.
    const BITS: [usize; ROWS + 1];
    /// Number of panels that a single row multiplies at a time.
    const PANELS: usize;
    /// Prefetch distance in bytes.
    const AHEAD: usize;
}

/// Multiplies panels × some activation rows. This is for small batches, which memory bandwidth limits.
#[inline(always)]
pub fn streams<S: OneBitDot>(
    args: &TernaryArgs<'_, S>,
    panels: Range<usize>,
    rows: Range<usize>,
    y: &mut Columns<'_>,
) {
    let mut left = panels;
    if rows.len() == 1 && S::PANELS == 2 {
        let (pairs, rest) = interleaved_panels::<2>(left, args.w.panel_bytes());
        for panels in pairs {
            args.s.outlined(Tile::<S, 2, 1> { args, panels, row: rows.start, y });
        }
        left = rest;
    }
    for panel in left {
        one_panel(args, panel, rows.clone(), y);
    }
}

/// Multiplies a panel × some activation rows.
#[inline(always)]
fn one_panel<S: OneBitDot>(
    args: &TernaryArgs<'_, S>,
    panel: usize,
    rows: Range<usize>,
    y: &mut Columns<'_>,
) {
    let (panels, mut row) = ([panel], rows.start);
    while row < rows.end {
        row += match rows.end - row {
            ROWS.. => tile::<S, ROWS>(args, panels, row, y),
            2.. => tile::<S, 2>(args, panels, row, y),
            _ => tile::<S, 1>(args, panels, row, y),
        };
    }
}

/// Multiplies a panel × `N` activation rows from `row` on; returns `N`.
#[inline(always)]
fn tile<S: OneBitDot, const N: usize>(
    args: &TernaryArgs<'_, S>,
    panels: [usize; 1],
    row: usize,
    y: &mut Columns<'_>,
) -> usize {
    args.s.outlined(Tile::<S, 1, N> { args, panels, row, y });
    N
}

/// The product of `P` panels × `N` activation rows.
struct Tile<'t, 'a, 'y, S, const P: usize, const N: usize> {
    args: &'t TernaryArgs<'a, S>,
    panels: [usize; P],
    row: usize,
    y: &'t mut Columns<'y>,
}

impl<S: OneBitDot, const P: usize, const N: usize> Task for Tile<'_, '_, '_, S, P, N> {
    #[inline(always)]
    fn run(self) {
        align_stack();
        let Self { args, panels, row, y } = self;
        let s = args.s;
        let mut totals = [[s.panel(s.splat(0.0)); N]; P];
        let (cols, mut at) = (args.w.cols(), 0);
        while at + SPAN <= cols {
            span::<S, P, N, SPAN>(args, panels, (row, at), &mut totals);
            at += SPAN;
        }
        if cols & (SPAN / 2) != 0 {
            span::<S, P, N, { SPAN / 2 }>(args, panels, (row, at), &mut totals);
            at += SPAN / 2;
        }
        if cols & (SPAN / 4) != 0 {
            span::<S, P, N, { SPAN / 4 }>(args, panels, (row, at), &mut totals);
            at += SPAN / 4;
        }
        if cols & GROUP != 0 {
            span::<S, P, N, GROUP>(args, panels, (row, at), &mut totals);
        }
        for (panel, totals) in panels.into_iter().zip(totals) {
            args.store(panel, row, &totals, y);
        }
    }
}

/// Adds the products of the span of `LEN` columns from `at` on to the totals.
#[inline(always)]
fn span<S: OneBitDot, const P: usize, const N: usize, const LEN: usize>(
    args: &TernaryArgs<'_, S>,
    panels: [usize; P],
    (row, at): (usize, usize),
    totals: &mut [[S::Panel; N]; P],
) {
    let s = args.s;
    let mut codes = [&[][..]; P];
    for (codes, panel) in codes.iter_mut().zip(panels) {
        *codes = &args.codes(panel)[at / COLS..][..LEN / COLS];
    }
    let mut xs = [&[0; LEN]; N];
    for (n, x) in xs.iter_mut().enumerate() {
        *x = args.x.row(row + n)[at..].first_chunk().expect("a span of the row");
    }
    let mut sums = [[[s.int_panel(s.splat_int(0)); BITS]; N]; P];
    for first in (0..BITS).step_by(S::BITS[N]) {
        dot(s, codes, xs, first, &mut sums);
    }
    let runs = SPAN / LEN;
    for (g, first) in (at / GROUP..).zip((0..BITS).step_by(runs)) {
        for p in 0..P {
            let scales = args.scales(panels[p], g);
            for n in 0..N {
                let minus = s.floats(s.splat_int(-args.sum(row + n, g)));
                let mut value = s.panel(minus);
                for (bit, sum) in sums[p][n].iter().enumerate().skip(first).take(runs) {
                    let factor = s.splat(2.0 / (1 << weight::<S, N>(bit)) as f32);
                    for (value, sum) in value.as_mut().iter_mut().zip(sum.as_ref()) {
                        *value = s.add_product(s.floats(*sum), factor, *value);
                    }
                }
                args.add_value(&mut totals[p][n], value, (row + n, g), scales);
            }
        }
    }
}

/// log₂ of the factor by which the sums of a bit are too large.
#[inline(always)]
fn weight<S: OneBitDot, const N: usize>(bit: usize) -> usize {
    if S::BITS[N] > BITS / 2 { bit } else { bit % (BITS / 2) }
}

/// Writes the sums of some bits of a span's blocks, from `first` on.
#[inline(always)]
fn dot<S: OneBitDot, const P: usize, const N: usize, const LEN: usize>(
    s: S,
    codes: [&[Block]; P],
    xs: [&[i8; LEN]; N],
    first: usize,
    out: &mut [[[S::IntPanel; BITS]; N]; P],
) {
    let zero = s.int_panel(s.splat_int(0));
    let mut masks = [s.splat_byte(0); BITS];
    for (i, mask) in masks[..S::BITS[N]].iter_mut().enumerate() {
        *mask = s.splat_byte(1 << weight::<S, N>(first + i));
    }
    for start in (0..LEN / COLS).step_by(S::STEPS) {
        let mut sums = [[[zero; BITS]; N]; P];
        for b in start..(start + S::STEPS).min(LEN / COLS) {
            for p in 0..P {
                if first == 0 {
                    s.prefetch(codes[p][b].as_ptr(), S::AHEAD);
                }
                let mut block = S::block(&codes[p][b]);
                if weight::<S, N>(first) != first {
                    for codes in block.as_mut() {
                        *codes = s.right2(s.right2(*codes));
                    }
                }
                for i in 0..S::BITS[N] {
                    let mut w = block;
                    for w in w.as_mut() {
                        *w = s.and(*w, masks[i]);
                    }
                    for n in 0..N {
                        let quads: &[[i8; 4]] = xs[n].as_chunks().0;
                        let x = quads[(first + i) * (LEN / COLS) + b];
                        add_quads(s, &mut sums[p][n][i], &w, s.splat_int(bytemuck::must_cast(x)));
                    }
                }
            }
        }
        for p in 0..P {
            for n in 0..N {
                for i in 0..S::BITS[N] {
                    let mut wide = sums[p][n][i];
                    for wide in wide.as_mut() {
                        *wide = s.widen(*wide);
                    }
                    add_ints(s, &mut out[p][n][first + i], &wide);
                }
            }
        }
    }
}
