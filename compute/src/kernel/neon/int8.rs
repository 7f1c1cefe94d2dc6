//! int8 × int8 or 15 bits. Both planes of activations are multiplied by themselves.

use super::multiply::{CHUNK, Multiply, Sums};
use super::strips::{Row, strips as cut};
use crate::kernel::Quantized;
use crate::kernel::int8::{Int8Args, Int8Dot};
use crate::matrix::{Int8Panel, Int8View};
use crate::par::{Columns, Scratch};
use std::ops::Range;

/// Most strips whose products with joined activations fit 32 bits: 128 · 32,512 · 16 · 32 < 2³¹.
const JOINED: usize = 32;

/// See the scalar definition.
#[inline]
#[target_feature(enable = "neon")]
pub fn int8<S: Multiply>(
    set: S,
    w: Int8View<'_>,
    panels: Range<usize>,
    x: &Quantized<'_>,
    y: &mut Columns<'_>,
    _: &mut Scratch,
) {
    let (first, strips) = (panels.start, w.strips());
    match x.planes {
        1 => {
            let dot = Planes::<S, 1> { set, x, strips };
            Int8Args { dot, w, x, first }.product(panels, y);
        }
        _ => {
            let dot = Planes::<S, 2> { set, x, strips };
            Int8Args { dot, w, x, first }.product(panels, y);
        }
    }
}

/// Activations of `P` planes, as they are in memory.
#[derive(Clone, Copy)]
struct Planes<'a, S, const P: usize> {
    set: S,
    x: &'a Quantized<'a>,
    strips: usize,
}

impl<S: Multiply, const P: usize> Planes<'_, S, P> {
    /// Writes Σ w·q of the `R` rows of a tile.
    #[inline(always)]
    fn dot_rows<const W: u8, const R: usize>(
        self,
        w: &Int8Panel<'_>,
        strips: Range<usize>,
        rows: &[Row<'_>],
        out: &mut [Sums],
    ) {
        let (w, mut xs) = (&cut::<W>(w, strips.start, strips.len()), [&[][..]; R]);
        for (cut, row) in xs.iter_mut().zip(rows) {
            *cut = &row[strips.clone()];
        }
        // SAFETY: this module is only compiled for targets with NEON.
        out.copy_from_slice(&unsafe { self.set.int8::<W, R>(w, &xs) });
    }
}

impl<'a, S: Multiply, const P: usize> Int8Dot for Planes<'a, S, P> {
    type Set = S;
    type Tile<const N: usize> = [[Row<'a>; P]; N];
    type Sums = [Sums; P];
    const SHORT: usize = if P == 1 { CHUNK } else { JOINED };
    const CHUNK: usize = CHUNK;

    #[inline(always)]
    fn set(self) -> S {
        self.set
    }

    #[inline(always)]
    fn tile<const N: usize>(self, token: usize) -> Self::Tile<N> {
        let mut tile: Self::Tile<N> = [[&[]; P]; N];
        for (i, row) in tile.as_flattened_mut().iter_mut().enumerate() {
            *row = &self.x.row_chunks(token * P + i)[..self.strips];
        }
        tile
    }

    #[inline(always)]
    fn dot<const M: usize, const N: usize, const W: u8>(
        self,
        values: &[Int8Panel<'_>; M],
        x: Self::Tile<N>,
        strips: Range<usize>,
        _: bool,
    ) -> [[Self::Sums; N]; M] {
        let mut sums = [[[self.set.int_panel(self.set.splat_int(0)); P]; N]; M];
        for (w, sums) in values.iter().zip(&mut sums) {
            let (w, strips, rows, out) =
                (w, strips.clone(), x.as_flattened(), sums.as_flattened_mut());
            match N * P {
                1 => self.dot_rows::<W, 1>(w, strips, rows, out),
                2 => self.dot_rows::<W, 2>(w, strips, rows, out),
                4 => self.dot_rows::<W, 4>(w, strips, rows, out),
                _ => self.dot_rows::<W, 6>(w, strips, rows, out),
            }
        }
        sums
    }

    #[inline(always)]
    fn walk<const W: u8>(args: &Int8Args<'_, Self>, panels: Range<usize>, y: &mut Columns<'_>) {
        for panel in panels {
            let mut token = 0;
            while token < args.x.tokens() {
                // A tile of several rows has an even number.
                let tokens = match (args.x.tokens() - token).min(S::ROWS / P) {
                    6.. => 6,
                    4.. => 4,
                    3 if P == 2 => 3,
                    2.. => 2,
                    _ => 1,
                };
                match tokens {
                    6 => args.tile::<1, 6, W>([panel], token, y),
                    4 => args.tile::<1, 4, W>([panel], token, y),
                    3 => args.tile::<1, 3, W>([panel], token, y),
                    2 => args.tile::<1, 2, W>([panel], token, y),
                    _ => args.tile::<1, 1, W>([panel], token, y),
                }
                token += tokens;
            }
        }
    }
}
