//! int8 × int8 or, with two planes, int8 × 15 bits: what products of all instruction sets share.

use super::packing::{SIX, SPLIT, UPPER, WHOLE};
use super::simd::{Simd, Task, align_stack};
use super::{Quantized, panel_rows};
use crate::matrix::{INT8_PAD_COLS, Int8Panel, Int8Scales, Int8View, Packing};
use crate::par::Columns;
use crate::ternary::PANEL_ROWS;
use std::ops::Range;

/// Activations as an instruction set multiplies them, and its products.
pub trait Int8Dot: Copy {
    /// The instruction set.
    type Set: Simd;
    /// Activations of `N` tokens.
    type Tile<const N: usize>: Copy;
    /// Exact sums of 16 rows and a token, for each plane that is multiplied separately.
    type Sums: Copy + AsRef<[<Self::Set as Simd>::IntPanel]>;
    /// Most strips whose sums, with joined planes and without their offset, fit 32 bits.
    const SHORT: usize;
    /// Most strips whose sums fit 32 bits.
    const CHUNK: usize;

    /// Returns the instruction set's token.
    fn set(self) -> Self::Set;
    /// Returns the activations of `N` tokens from `token` on.
    fn tile<const N: usize>(self, token: usize) -> Self::Tile<N>;
    /// Returns what the products of a token and a group exceed Σ w·q by.
    #[inline(always)]
    fn offset(self, _token: usize, _group: usize) -> i64 {
        0
    }
    /// Prefetches the scales of groups after this one: the next ones if groups are short.
    #[inline(always)]
    fn fetch_scales(self, _scales: &Int8Scales<'_>, _group: usize, _short: bool) {}
    /// Returns the exact sums of 16 rows of `P` panels × `N` tokens over some strips, which are `few` if
    /// all groups are short.
    fn dot<const P: usize, const N: usize, const W: u8>(
        self,
        values: &[Int8Panel<'_>; P],
        x: Self::Tile<N>,
        strips: Range<usize>,
        few: bool,
    ) -> [[Self::Sums; N]; P];
    /// Multiplies `panels` with all tokens, packing `W`, by calls of [`Int8Args::tile`].
    fn walk<const W: u8>(args: &Int8Args<'_, Self>, panels: Range<usize>, y: &mut Columns<'_>);
}

/// Arguments of a product that all its tiles share.
pub struct Int8Args<'a, D> {
    pub dot: D,
    pub w: Int8View<'a>,
    pub x: &'a Quantized<'a>,
    /// First panel of the output view.
    pub first: usize,
}

/// A call of [`Int8Args::tile`].
struct Tile<'t, 'a, 'y, D, const P: usize, const N: usize, const W: u8> {
    args: &'t Int8Args<'a, D>,
    panels: [usize; P],
    token: usize,
    y: &'t mut Columns<'y>,
}

impl<D: Int8Dot, const P: usize, const N: usize, const W: u8> Task
    for Tile<'_, '_, '_, D, P, N, W>
{
    #[inline(always)]
    fn run(self) {
        align_stack();
        self.args.run_tile::<P, N, W>(self.panels, self.token, self.y);
    }
}

/// Scaled sums of `N` tokens with `P` panels.
type Totals<S, const P: usize, const N: usize> = [[<S as Simd>::Panel; N]; P];

impl<D: Int8Dot> Int8Args<'_, D> {
    /// Multiplies `panels` with all tokens.
    #[inline(always)]
    pub fn product(&self, panels: Range<usize>, y: &mut Columns<'_>) {
        match self.w.packing() {
            Packing::Whole => D::walk::<WHOLE>(self, panels, y),
            Packing::Upper => D::walk::<UPPER>(self, panels, y),
            Packing::Six => D::walk::<SIX>(self, panels, y),
            Packing::Split => D::walk::<SPLIT>(self, panels, y),
        }
    }

    /// Multiplies `P` panels × `N` tokens from `token` on.
    #[inline(always)]
    pub fn tile<const P: usize, const N: usize, const W: u8>(
        &self,
        panels: [usize; P],
        token: usize,
        y: &mut Columns<'_>,
    ) {
        self.dot.set().outlined(Tile::<D, P, N, W> { args: self, panels, token, y });
    }

    /// As [`tile`](Self::tile), inlined.
    #[inline(always)]
    fn run_tile<const P: usize, const N: usize, const W: u8>(
        &self,
        panels: [usize; P],
        token: usize,
        y: &mut Columns<'_>,
    ) {
        let (s, w) = (self.dot.set(), self.w);
        // GGUF files have groups of 16 and 32 columns: so many groups that each must cost little.
        let even = w.cols().is_multiple_of(w.group());
        let totals = match w.group().div_ceil(INT8_PAD_COLS) {
            1 if even => self.groups::<P, N, W>(panels, token, 1, true),
            2 if even => self.groups::<P, N, W>(panels, token, 2, true),
            strips => self.groups::<P, N, W>(panels, token, strips, false),
        };
        for (panel, totals) in panels.into_iter().zip(totals) {
            let from = (panel - self.first) * PANEL_ROWS;
            for (n, total) in totals.into_iter().enumerate() {
                let out = &mut y.row(token + n)[from..];
                panel_rows::store(s, total, self.x.joined_step(token + n), out, false);
            }
        }
    }

    /// Returns Σ w·q, rounded once per group of `strips` strips. If `short`, all groups have this
    /// number of strips, at most [`SHORT`](Int8Dot::SHORT).
    #[inline(always)]
    fn groups<const P: usize, const N: usize, const W: u8>(
        &self,
        panels: [usize; P],
        token: usize,
        strips: usize,
        short: bool,
    ) -> Totals<D::Set, P, N> {
        let (s, w, x) = (self.dot.set(), self.w, self.dot.tile::<N>(token));
        let values = panels.map(|panel| w.panel(panel, 0..w.strips()));
        let scales = panels.map(|panel| w.scales(panel));
        let steps = self.x.matrix_group_steps(w.cols(), w.group());
        let mut totals = [[s.panel(s.splat(0.0)); N]; P];
        for g in 0..w.groups() {
            let end = (g + 1) * strips;
            let range = g * strips..if short { end } else { end.min(w.strips()) };
            for scales in &scales {
                self.dot.fetch_scales(scales, g, short);
            }
            let sums = if short || range.len() <= D::SHORT {
                self.short_sums(self.dot.dot::<P, N, W>(&values, x, range, short), token, g)
            } else {
                self.long_sums::<P, N, W>(&values, x, range, token, g)
            };
            for p in 0..P {
                let scales = panel_rows::int8_scales(s, &scales[p], g);
                for n in 0..N {
                    let at = (token + n, g);
                    panel_rows::add_scaled_group(
                        s,
                        &mut totals[p][n],
                        sums[p][n],
                        scales,
                        steps,
                        at,
                    );
                }
            }
        }
        totals
    }

    /// Joins the planes of sums that fit 32 bits and converts them to floats.
    #[inline(always)]
    fn short_sums<const P: usize, const N: usize>(
        &self,
        exact: [[D::Sums; N]; P],
        token: usize,
        g: usize,
    ) -> Totals<D::Set, P, N> {
        let s = self.dot.set();
        let mut out = [[s.panel(s.splat(0.0)); N]; P];
        for p in 0..P {
            for n in 0..N {
                let planes = exact[p][n].as_ref();
                let mut joined = planes[0];
                for low in &planes[1..] {
                    joined = panel_rows::join(s, joined, *low);
                }
                let offset = self.dot.offset(token + n, g) as i32;
                out[p][n] = panel_rows::floats(s, joined, offset);
            }
        }
        out
    }

    /// Returns the sums of a group of more than [`SHORT`](Int8Dot::SHORT) strips, rounded once.
    #[inline(always)]
    fn long_sums<const P: usize, const N: usize, const W: u8>(
        &self,
        values: &[Int8Panel<'_>; P],
        x: D::Tile<N>,
        strips: Range<usize>,
        token: usize,
        g: usize,
    ) -> Totals<D::Set, P, N> {
        let s = self.dot.set();
        let mut exact = [[[s.wide_zero(); 2]; N]; P];
        let mut planes = 1;
        for from in strips.clone().step_by(D::CHUNK) {
            let sums =
                self.dot.dot::<P, N, W>(values, x, from..strips.end.min(from + D::CHUNK), false);
            for p in 0..P {
                for n in 0..N {
                    planes = sums[p][n].as_ref().len();
                    for (exact, sums) in exact[p][n].iter_mut().zip(sums[p][n].as_ref()) {
                        *exact = s.wide_add(*exact, *sums);
                    }
                }
            }
        }
        let mut out = [[s.panel(s.splat(0.0)); N]; P];
        for p in 0..P {
            for n in 0..N {
                let [first, second] = exact[p][n];
                let joined = if planes == 1 { first } else { s.wide_join(first, second) };
                out[p][n] = s.wide_round(s.wide_sub(joined, self.dot.offset(token + n, g)));
            }
        }
        out
    }
}
