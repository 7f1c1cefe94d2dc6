//! Exact sums of products of 16 weight rows × `N` activation rows, for each instruction set.

use super::Neon;
use super::instructions::{DotProd, I8mm};
use super::lanes::{load_i8, load_u8};
use super::strips::{
    PAIRS, Row, STRIP, TWO_BIT, VECTORS, columns, decode_pairs, decode_whole, of_one_length, pairs,
    strips, vector,
};
use crate::kernel::packing::WHOLE;
use crate::kernel::simd::Simd;
use crate::matrix::Int8Panel;
use crate::ternary::BLOCK_BYTES;
use std::arch::aarch64::*;

/// Most strips whose sums fit 32 bits: 128 · 128 · 16 columns · 4096 = 2³⁰.
pub const CHUNK: usize = 4096;
/// Most strips whose ternary sums fit 16 bits: 3 · 128 · 4 columns of a byte · 21 < 2¹⁵.
const NARROW: usize = 21;

/// Sums of one activation row with the 16 rows of a panel.
pub type Sums = [int32x4_t; VECTORS];

/// Calls a function for each block of a strip, whose number is its last generic parameter.
macro_rules! blocks {
    ($add:ident[$($generic:ident),+] $args:tt) => {
        $add::<$($generic,)+ 0> $args;
        $add::<$($generic,)+ 1> $args;
        $add::<$($generic,)+ 2> $args;
        $add::<$($generic,)+ 3> $args;
    };
}

/// Integer products of an instruction set; a value proves that the CPU has it.
///
/// All methods need NEON, which every target has that this module is compiled for.
pub trait Multiply: Simd<Ints = int32x4_t, IntPanel = Sums> {
    /// Most activation rows of a tile: 2, 4 or 6.
    const ROWS: usize;
    /// Number of activation rows from which ternary weights are decoded to memory, once for all rows.
    const DECODED_ROWS: usize;

    /// Returns Σ w·q of int8 weights over the strips of `xs`, at most [`CHUNK`].
    unsafe fn int8<const W: u8, const N: usize>(
        self,
        w: &Int8Panel<'_>,
        xs: &[Row<'_>; N],
    ) -> [Sums; N];

    /// As [`int8`](Self::int8), of ternary codes.
    unsafe fn two_bit<const N: usize>(self, w: &Int8Panel<'_>, xs: &[Row<'_>; N]) -> [Sums; N];

    /// As [`int8`](Self::int8), of codes that [`decode`](Self::decode) has written.
    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn decoded<const N: usize>(self, w: &Int8Panel<'_>, xs: &[Row<'_>; N]) -> [Sums; N] {
        // SAFETY: the same condition.
        unsafe { self.int8::<WHOLE, N>(w, xs) }
    }

    /// Decodes a panel of ternary codes.
    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn decode(self, w: &Int8Panel<'_>, out: &mut [[u8; STRIP]]) {
        decode_whole(w, out);
    }
}

impl Multiply for Neon {
    const ROWS: usize = 2;
    const DECODED_ROWS: usize = usize::MAX;

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn int8<const W: u8, const N: usize>(
        self,
        w: &Int8Panel<'_>,
        xs: &[Row<'_>; N],
    ) -> [Sums; N] {
        let (xs, mut sums) = (of_one_length(xs), [[[vdupq_n_s32(0); 2]; VECTORS]; N]);
        for i in 0..xs[0].len() {
            let (w, x) = (&strips::<W>(w, i, 1), columns(&xs, i));
            blocks!(add_wide[W, N](w, &x, &mut sums));
        }
        joined(&sums)
    }

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn two_bit<const N: usize>(self, w: &Int8Panel<'_>, xs: &[Row<'_>; N]) -> [Sums; N] {
        let (xs, mut sums) = (of_one_length(xs), [[[vdupq_n_s32(0); 2]; VECTORS]; N]);
        for from in (0..xs[0].len()).step_by(NARROW) {
            let mut narrow = [[[vdupq_n_s16(0); 2]; VECTORS]; N];
            for i in from..xs[0].len().min(from + NARROW) {
                let (w, x) = (&strips::<TWO_BIT>(w, i, 1), columns(&xs, i));
                blocks!(add_narrow[N](w, &x, &mut narrow));
            }
            for n in 0..N {
                for v in 0..VECTORS {
                    for h in 0..2 {
                        sums[n][v][h] = vpadalq_s16(sums[n][v][h], narrow[n][v][h]);
                    }
                }
            }
        }
        joined(&sums)
    }
}

/// Adds the products of a block. Those of 8 bits have 16 bits; pairs of them are added in 32 bits.
#[inline]
#[target_feature(enable = "neon")]
fn add_wide<const W: u8, const N: usize, const BLOCK: i32>(
    w: &Int8Panel<'_>,
    x: &[int8x16_t; N],
    sums: &mut [[[int32x4_t; 2]; VECTORS]; N],
) {
    for v in 0..VECTORS {
        let w = vector::<W>(w, BLOCK as usize, v);
        for n in 0..N {
            let x = repeated::<BLOCK>(x[n]);
            let [low, high] = &mut sums[n][v];
            *low = vpadalq_s16(*low, vmull_s8(vget_low_s8(w), vget_low_s8(x)));
            *high = vpadalq_s16(*high, vmull_high_s8(w, x));
        }
    }
}

/// Adds the products of a block of ternary codes, in 16 bits.
#[inline]
#[target_feature(enable = "neon")]
fn add_narrow<const N: usize, const BLOCK: i32>(
    w: &Int8Panel<'_>,
    x: &[int8x16_t; N],
    sums: &mut [[[int16x8_t; 2]; VECTORS]; N],
) {
    for v in 0..VECTORS {
        let w = vector::<TWO_BIT>(w, BLOCK as usize, v);
        for n in 0..N {
            let x = repeated::<BLOCK>(x[n]);
            let [low, high] = &mut sums[n][v];
            *low = vmlal_s8(*low, vget_low_s8(w), vget_low_s8(x));
            *high = vmlal_high_s8(*high, w, x);
        }
    }
}

/// Repeats the `BLOCK`-th four activations.
#[inline]
#[target_feature(enable = "neon")]
fn repeated<const BLOCK: i32>(x: int8x16_t) -> int8x16_t {
    vreinterpretq_s8_s32(vdupq_laneq_s32::<BLOCK>(vreinterpretq_s32_s8(x)))
}

/// Adds neighboring pairs of sums, which belong to one row.
#[inline]
#[target_feature(enable = "neon")]
fn joined<const N: usize>(sums: &[[[int32x4_t; 2]; VECTORS]; N]) -> [Sums; N] {
    let mut out = [[vdupq_n_s32(0); VECTORS]; N];
    for n in 0..N {
        for v in 0..VECTORS {
            out[n][v] = vpaddq_s32(sums[n][v][0], sums[n][v][1]);
        }
    }
    out
}

impl Multiply for DotProd {
    const ROWS: usize = 6;
    const DECODED_ROWS: usize = 12;

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn int8<const W: u8, const N: usize>(
        self,
        w: &Int8Panel<'_>,
        xs: &[Row<'_>; N],
    ) -> [Sums; N] {
        let (xs, mut sums) = (of_one_length(xs), [[vdupq_n_s32(0); VECTORS]; N]);
        for i in 0..xs[0].len() {
            let (w, x) = (&strips::<W>(w, i, 1), columns(&xs, i));
            blocks!(add_dots[W, N](self, w, &x, &mut sums));
        }
        sums
    }

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn two_bit<const N: usize>(self, w: &Int8Panel<'_>, xs: &[Row<'_>; N]) -> [Sums; N] {
        match N {
            1 => [masked(self, w, xs[0]); N],
            // SAFETY: the same condition.
            _ => unsafe { self.int8::<TWO_BIT, N>(w, xs) },
        }
    }
}

/// Adds the products of a block.
#[inline]
#[target_feature(enable = "neon")]
fn add_dots<const W: u8, const N: usize, const BLOCK: usize>(
    set: DotProd,
    w: &Int8Panel<'_>,
    x: &[int8x16_t; N],
    sums: &mut [Sums; N],
) {
    // Calls, because the compiler would not unroll a loop over many sums.
    add_dot::<N, BLOCK>(set, vector::<W>(w, BLOCK, 0), x, sums, 0);
    add_dot::<N, BLOCK>(set, vector::<W>(w, BLOCK, 1), x, sums, 1);
    add_dot::<N, BLOCK>(set, vector::<W>(w, BLOCK, 2), x, sums, 2);
    add_dot::<N, BLOCK>(set, vector::<W>(w, BLOCK, 3), x, sums, 3);
}

/// Adds the products of the `v`-th four rows of a block.
#[inline]
#[target_feature(enable = "neon")]
fn add_dot<const N: usize, const BLOCK: usize>(
    set: DotProd,
    w: int8x16_t,
    x: &[int8x16_t; N],
    sums: &mut [Sums; N],
    v: usize,
) {
    for n in 0..N {
        sums[n][v] = set.add::<BLOCK>(sums[n][v], w, x[n]);
    }
}

/// Returns Σ c·q of one activation row. Codes are masked but not shifted, except the highest ones, so that
/// a code takes one instruction. Codes that are 4 or 16 times too large have sums of their own.
#[inline]
#[target_feature(enable = "neon")]
fn masked(set: DotProd, w: &Int8Panel<'_>, x: Row<'_>) -> Sums {
    let mut sums = [[vdupq_n_s32(0); 3]; VECTORS];
    for (block, x) in w.values.as_chunks::<BLOCK_BYTES>().0.iter().zip(x) {
        let x = load_i8(x);
        for (codes, sums) in block.as_chunks().0.iter().zip(&mut sums) {
            let codes = load_u8(codes);
            let mask = |bits| vreinterpretq_s8_u8(vandq_u8(codes, vdupq_n_u8(bits)));
            let fourth = vreinterpretq_s8_u8(vshrq_n_u8::<6>(codes));
            let [ones, fours, sixteens] = sums;
            *ones = set.add::<0>(*ones, mask(3), x);
            *fours = set.add::<1>(*fours, mask(3 << 2), x);
            *sixteens = set.add::<2>(*sixteens, mask(3 << 4), x);
            *ones = set.add::<3>(*ones, fourth, x);
        }
    }
    sums.map(|[ones, fours, sixteens]| vsraq_n_s32::<4>(vsraq_n_s32::<2>(ones, fours), sixteens))
}

impl Multiply for I8mm {
    const ROWS: usize = 4;
    const DECODED_ROWS: usize = 8;

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn int8<const W: u8, const N: usize>(
        self,
        w: &Int8Panel<'_>,
        xs: &[Row<'_>; N],
    ) -> [Sums; N] {
        match N {
            // SAFETY: the same condition.
            1 | 2 => unsafe { self.dotprod.int8::<W, N>(w, xs) },
            _ => by_pairs::<W, N>(self, w, xs),
        }
    }

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn two_bit<const N: usize>(self, w: &Int8Panel<'_>, xs: &[Row<'_>; N]) -> [Sums; N] {
        match N {
            // SAFETY: the same condition.
            1 | 2 => unsafe { self.dotprod.two_bit(w, xs) },
            _ => by_pairs::<TWO_BIT, N>(self, w, xs),
        }
    }

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn decoded<const N: usize>(self, w: &Int8Panel<'_>, xs: &[Row<'_>; N]) -> [Sums; N] {
        if N == 1 {
            return [by_pairs::<PAIRS, 2>(self, w, &[xs[0]; 2])[0]; N];
        }
        by_pairs::<PAIRS, N>(self, w, xs)
    }

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn decode(self, w: &Int8Panel<'_>, out: &mut [[u8; STRIP]]) {
        decode_pairs(w, out);
    }
}

/// Returns Σ w·q, of pairs of weight rows × pairs of activation rows. `N` is even. Not inlined, so that the
/// compiler keeps the sums in registers.
#[inline(never)]
#[target_feature(enable = "neon")]
fn by_pairs<const W: u8, const N: usize>(
    set: I8mm,
    w: &Int8Panel<'_>,
    xs: &[Row<'_>; N],
) -> [Sums; N] {
    // `[pair of activation rows][first or second pair of four weight rows][vector of weight rows]`.
    let (xs, mut sums) = (of_one_length(xs), [[vdupq_n_s32(0); VECTORS]; N]);
    for i in 0..xs[0].len() {
        let (w, x) = (&strips::<W>(w, i, 1), columns(&xs, i));
        add_half::<W, N, 0>(set, w, &x, &mut sums);
        add_half::<W, N, 1>(set, w, &x, &mut sums);
    }
    for two in sums.as_chunks_mut::<2>().0 {
        for v in 0..VECTORS {
            let (a, b) = (two[0][v], two[1][v]);
            (two[0][v], two[1][v]) = (vuzp1q_s32(a, b), vuzp2q_s32(a, b));
        }
    }
    sums
}

/// Adds the products of eight columns of a strip.
#[inline]
#[target_feature(enable = "neon")]
fn add_half<const W: u8, const N: usize, const HALF: usize>(
    set: I8mm,
    w: &Int8Panel<'_>,
    x: &[int8x16_t; N],
    sums: &mut [Sums; N],
) {
    let x = &interleaved(x, HALF);
    add_pairs(set, pairs::<W>(w, HALF, 0), x, sums, 0);
    add_pairs(set, pairs::<W>(w, HALF, 1), x, sums, 1);
    add_pairs(set, pairs::<W>(w, HALF, 2), x, sums, 2);
    add_pairs(set, pairs::<W>(w, HALF, 3), x, sums, 3);
}

/// Adds the products of eight columns of the `v`-th four rows.
#[inline]
#[target_feature(enable = "neon")]
fn add_pairs<const N: usize>(
    set: I8mm,
    pairs: [int8x16_t; 2],
    x: &[int8x16_t; N],
    sums: &mut [Sums; N],
    v: usize,
) {
    for n in 0..N {
        sums[n][v] = set.add(sums[n][v], pairs[n % 2], x[n / 2]);
    }
}

/// Joins eight columns of each pair of activation rows; the other half of the result is unused.
#[inline]
#[target_feature(enable = "neon")]
fn interleaved<const N: usize>(x: &[int8x16_t; N], half: usize) -> [int8x16_t; N] {
    let mut out = *x;
    for (n, two) in x.as_chunks::<2>().0.iter().enumerate() {
        let [a, b] = two.map(|x| vreinterpretq_s64_s8(x));
        let pair = if half == 0 { vzip1q_s64(a, b) } else { vzip2q_s64(a, b) };
        out[n] = vreinterpretq_s8_s64(pair);
    }
    out
}
