//! int8 × int8 with `vpdpbusd`, whose first operand is unsigned. Weights are shifted by 128 in registers,
//! and 128 · Σ q is subtracted once per group of columns. Two planes of activations are multiplied
//! separately, because 8-bit products take half the instructions, and then joined.

mod registers;

use super::Avx512;
use super::lanes::Wide;
use crate::kernel::Quantized;
use crate::kernel::avx2::prefetch_stream;
use crate::kernel::int8::{Int8Args, Int8Dot};
use crate::kernel::packing::{BLOCK, BLOCKS, SIX, UPPER, WHOLE, lines};
use crate::kernel::panels::interleaved_panels;
use crate::kernel::simd::{Simd, align_stack};
use crate::matrix::{INT8_BLOCK_COLS, INT8_PAD_COLS, Int8Panel, Int8Scales, Int8View};
use crate::mem::AlignedVec;
use crate::par::{Columns, Scratch};
use std::arch::x86_64::*;
use std::ops::Range;

/// Prefetch distance to the second-level cache in bytes.
const SECOND_LEVEL: usize = 3072;
/// Prefetch distance to the first-level cache in bytes.
const FIRST_LEVEL: usize = 1024;
/// Prefetch distance of the scales of short groups, in groups.
const GROUPS_AHEAD: usize = 12;
/// Most strips whose products fit 32-bit sums: 16 columns · 128 · 255 · 4,096 strips < 2³¹.
const CHUNK: usize = 4096;
/// Most strips whose sums with joined planes fit 32 bits: 16 columns · 128 · 32,768 · 16 strips < 2³¹.
const SHORT: usize = 16;

/// The shift of weights by 128, as a mask of the bits that it flips.
const SHIFT: i8 = -128;

/// Activations with `P` planes, and the offsets that the shift of weights adds to their products.
#[derive(Clone, Copy)]
struct ShiftedInputs<'a, const P: usize> {
    s: Avx512,
    w: Int8View<'a>,
    x: &'a Quantized<'a>,
    /// 128 · Σ of a token's joined values in each group, `[token][group]`.
    offsets: &'a [i64],
}

/// See the scalar definition.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub fn int8(
    w: Int8View<'_>,
    panels: Range<usize>,
    x: &Quantized<'_>,
    y: &mut Columns<'_>,
    scratch: &mut Scratch,
) {
    let Scratch { ints, rearranged, .. } = scratch;
    let (s, offsets, first) = (Avx512::new(), offsets(w, x, ints), panels.start);
    if registers::applies(w, x) {
        return registers::batch(w, panels, (x, offsets), y, rearranged);
    }
    if x.planes == 1 {
        let dot = ShiftedInputs::<1> { s, w, x, offsets };
        return Int8Args { dot, w, x, first }.product(panels, y);
    }
    let dot = ShiftedInputs::<2> { s, w, x, offsets };
    Int8Args { dot, w, x, first }.product(panels, y);
}

/// Computes the offsets of [`ShiftedInputs`], `[token][group]`.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn offsets<'s>(w: Int8View<'_>, x: &Quantized<'_>, out: &'s mut AlignedVec<i32>) -> &'s [i64] {
    let (groups, tokens) = (w.groups(), x.tokens());
    out.grow(2 * tokens * groups);
    let out: &mut [i64] = bytemuck::cast_slice_mut(&mut out[..2 * tokens * groups]);
    out.fill(0);
    for row in 0..x.rows() {
        let out = &mut out[row / x.planes * groups..][..groups];
        let mut add =
            |g: usize, sum: i32| out[g] = 256 * out[g] - i64::from(SHIFT) * i64::from(sum);
        if groups == 1 {
            add(0, x.sums[row]);
            continue;
        }
        for (g, values) in x.row(row)[..w.cols()].chunks(w.group()).enumerate() {
            add(g, values.iter().map(|&v| i32::from(v)).sum());
        }
    }
    out
}

/// Activations of a token, by plane and block.
type Token<'a, const P: usize> = [&'a [[i8; INT8_BLOCK_COLS]]; P];

impl<'a, const PLANES: usize> Int8Dot for ShiftedInputs<'a, PLANES> {
    type Set = Avx512;
    type Tile<const N: usize> = [Token<'a, PLANES>; N];
    type Sums = [[__m512i; 1]; PLANES];
    const SHORT: usize = SHORT;
    const CHUNK: usize = CHUNK;

    #[inline(always)]
    fn set(self) -> Avx512 {
        self.s
    }

    #[inline(always)]
    fn tile<const N: usize>(self, token: usize) -> [Token<'a, PLANES>; N] {
        let mut xs: [Token<'a, PLANES>; N] = [[&[]; PLANES]; N];
        for (i, blocks) in xs.as_flattened_mut().iter_mut().enumerate() {
            let row = self.x.row_chunks::<INT8_BLOCK_COLS>(token * PLANES + i);
            *blocks = &row[..self.w.strips() * BLOCKS];
        }
        xs
    }

    #[inline(always)]
    fn offset(self, token: usize, group: usize) -> i64 {
        self.offsets[token * self.w.groups() + group]
    }

    #[inline(always)]
    fn fetch_scales(self, scales: &Int8Scales<'_>, group: usize, short: bool) {
        let ahead = if short { GROUPS_AHEAD } else { 0 };
        match scales {
            Int8Scales::Float(scales) => {
                self.s.prefetch(scales[group].as_ptr(), ahead * size_of_val(&scales[0]))
            }
            Int8Scales::Parts(parts, _) => {
                self.s.prefetch(parts[group].as_ptr(), ahead * size_of_val(&parts[0]))
            }
        }
    }

    #[inline(always)]
    fn dot<const P: usize, const N: usize, const W: u8>(
        self,
        values: &[Int8Panel<'_>; P],
        x: [Token<'a, PLANES>; N],
        strips: Range<usize>,
        few: bool,
    ) -> [[Self::Sums; N]; P] {
        // SAFETY: the token proves that the CPU has the features.
        unsafe {
            match few {
                true => Self::sums::<OneChain, P, N, W>(values, &x, strips),
                false => Self::sums::<TwoChains, P, N, W>(values, &x, strips),
            }
        }
    }

    #[inline(always)]
    fn walk<const W: u8>(args: &Int8Args<'_, Self>, panels: Range<usize>, y: &mut Columns<'_>) {
        let (mut left, bytes) = (panels, args.w.panel_bytes());
        // Whole values take so little work that the end of a panel costs more than four streams do.
        if W == WHOLE && args.x.tokens() == 1 {
            let (fours, rest) = interleaved_panels::<4>(left, bytes);
            for four in fours {
                args.tile::<4, 1, W>(four, 0, y);
            }
            left = rest;
        }
        let (pairs, left) = interleaved_panels::<2>(left, bytes);
        for pair in pairs {
            Self::stream::<2, W>(args, pair, y);
        }
        for panel in left {
            Self::stream::<1, W>(args, [panel], y);
        }
    }
}

/// Number of chains of sums that hide the latency of `vpdpbusd`.
trait Chains {
    const COUNT: usize;
}

/// One chain, for short groups, whose products are independent.
struct OneChain;
/// Two chains.
struct TwoChains;

impl Chains for OneChain {
    const COUNT: usize = 1;
}

impl Chains for TwoChains {
    const COUNT: usize = 2;
}

impl<'a, const PLANES: usize> ShiftedInputs<'a, PLANES> {
    /// Multiplies interleaved panels × all tokens.
    #[inline(always)]
    fn stream<const P: usize, const W: u8>(
        args: &Int8Args<'_, Self>,
        panels: [usize; P],
        y: &mut Columns<'_>,
    ) {
        // With short groups, the sums, scales and addresses of four tokens exceed the registers.
        let most = if args.w.group() <= 2 * INT8_PAD_COLS { 2 } else { 4 };
        let mut token = 0;
        while token < args.x.tokens() {
            let tokens = (args.x.tokens() - token).min(most);
            match tokens {
                4 => panels.iter().for_each(|&panel| args.tile::<1, 4, W>([panel], token, y)),
                3 => panels.iter().for_each(|&panel| args.tile::<1, 3, W>([panel], token, y)),
                2 => args.tile::<P, 2, W>(panels, token, y),
                _ => args.tile::<P, 1, W>(panels, token, y),
            }
            token += tokens;
        }
    }

    /// Returns the exact Σ (w + 128)·q of 16 rows of each panel × the planes of `N` tokens over some
    /// strips.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    #[allow(clippy::needless_range_loop)] // All of `values` and `xs` share an index.
    fn sums<C: Chains, const P: usize, const N: usize, const W: u8>(
        values: &[Int8Panel<'_>; P],
        xs: &[Token<'a, PLANES>; N],
        strips: Range<usize>,
    ) -> [[[[__m512i; 1]; PLANES]; N]; P] {
        align_stack();
        let mut chains = [[[[_mm512_setzero_si512(); 2]; PLANES]; N]; P];
        // The same instruction reads a line of each panel in turn. The hardware prefetcher follows
        // addresses that one instruction reads from front to back.
        let lines = const { lines(W).0 };
        for line in strips.start * lines..strips.end * lines {
            for p in 0..P {
                fetch::<W>(&values[p], line);
                for part in 0..BLOCKS / lines {
                    let w = block::<W>(&values[p], line, part, SHIFT);
                    for n in 0..N {
                        for plane in 0..PLANES {
                            let x = xs[n][plane][line * (BLOCKS / lines) + part];
                            let x = _mm512_set1_epi32(bytemuck::must_cast(x));
                            let sum = &mut chains[p][n][plane][part % C::COUNT];
                            *sum = _mm512_dpbusd_epi32(*sum, w, x);
                        }
                    }
                }
            }
        }
        let mut sums = [[[[_mm512_setzero_si512(); 1]; PLANES]; N]; P];
        for p in 0..P {
            for n in 0..N {
                for plane in 0..PLANES {
                    let [first, second] = chains[p][n][plane];
                    sums[p][n][plane] = match C::COUNT {
                        1 => [first],
                        _ => [_mm512_add_epi32(first, second)],
                    };
                }
            }
        }
        sums
    }
}

/// Joins the sums of 16 rows with a token's planes.
#[inline(always)]
pub fn join(s: Avx512, planes: &[__m512i]) -> Wide {
    let mut joined = s.wide_zero();
    for plane in planes {
        joined = s.wide_join(joined, s.wide_add(s.wide_zero(), [*plane]));
    }
    joined
}

/// Prefetches ahead of the `line`-th line of the values and of the lower plane.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn fetch<const W: u8>(w: &Int8Panel<'_>, line: usize) {
    let (values, low) = const { lines(W) };
    prefetch_stream(w.values.as_chunks::<BLOCK>().0[line].as_ptr(), SECOND_LEVEL, FIRST_LEVEL);
    if low == values {
        prefetch_stream(w.low.as_chunks::<BLOCK>().0[line].as_ptr(), SECOND_LEVEL, FIRST_LEVEL);
    } else if low > 0 && line.is_multiple_of(values / low) {
        prefetch_stream(
            w.low.as_chunks::<BLOCK>().0[line * low / values].as_ptr(),
            SECOND_LEVEL,
            FIRST_LEVEL,
        );
    }
}

/// Returns the line of the values that has the `block`-th block of a strip, and the block's index in it.
#[inline]
pub const fn block_position<const W: u8>(strip: usize, block: usize) -> (usize, usize) {
    let lines = const { lines(W).0 };
    (strip * lines + block * lines / BLOCKS, block % (BLOCKS / lines))
}

/// Returns the `part`-th block of the `line`-th line of the values, XOR `flip`. It avoids `map` and
/// `from_fn`, which are compiled without the CPU features and not always inlined.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub fn block<const W: u8>(w: &Int8Panel<'_>, line: usize, part: usize, flip: i8) -> __m512i {
    let values = bytemuck::must_cast(w.values.as_chunks::<BLOCK>().0[line]);
    let flip = _mm512_set1_epi8(flip);
    if W == WHOLE {
        return _mm512_xor_si512(values, flip);
    }
    // Shifts of wider lanes bring in bits of neighboring bytes, which are masked.
    let value = if part == 1 { values } else { _mm512_slli_epi16::<4>(values) };
    let upper = _mm512_set1_epi8(0xf0_u8 as i8);
    if W == UPPER {
        let fill = _mm512_xor_si512(_mm512_set1_epi8(w.fill as i8), flip);
        return masked(value, upper, fill);
    }
    let (low, mask) = if W == SIX {
        let low = bytemuck::must_cast(w.low.as_chunks::<BLOCK>().0[line / 2]);
        // Bits 2k and 2k + 1 of a strip's k-th block are rotated to bits 2 and 3.
        let rotation = 2 * (2 * (line % 2) + part) as i32 - 2;
        (_mm512_rorv_epi32(low, _mm512_set1_epi32(rotation)), _mm512_set1_epi8(0b1100))
    } else {
        let low = bytemuck::must_cast(w.low.as_chunks::<BLOCK>().0[line]);
        let low = if part == 1 { _mm512_srli_epi16::<4>(low) } else { low };
        (low, _mm512_set1_epi8(15))
    };
    masked(value, upper, masked(low, mask, flip))
}

/// Returns (a & mask) ^ rest.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn masked(a: __m512i, mask: __m512i, rest: __m512i) -> __m512i {
    _mm512_ternarylogic_epi32::<0b0110_1010>(a, mask, rest)
}
