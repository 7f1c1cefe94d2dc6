//! Blocks of little more than one bit a weight, whose weights are not free: in [`Q1_0`] none is 0, in
//! [`STQ1_0`] one of every four is.

use super::TernaryBlockFormat;
use crate::ternary::ZERO_CODE;

/// Codes of the weights −d and +d.
const MINUS: u8 = 0;
const PLUS: u8 = 2;

/// 128 weights in 18 bytes, the scale first, then the signs: a bit of 1 is +d, 0 is −d, from the low
/// bits up.
pub const Q1_0: TernaryBlockFormat = TernaryBlockFormat {
    name: "Q1_0",
    weights: 128,
    bytes: 18,
    scale_at: 0,
    codes_at: 2,
    unpack: |bytes, codes| {
        for (b, c) in bytes.iter().zip(codes.chunks_exact_mut(8)) {
            c.iter_mut().enumerate().for_each(|(i, c)| *c = (b >> i & 1) << 1);
        }
    },
    pack: |codes, bytes| {
        for (b, c) in bytes.iter_mut().zip(codes.chunks_exact(8)) {
            *b = c.iter().enumerate().fold(0, |b, (i, c)| b | c >> 1 << i);
        }
    },
    holds: |codes| codes.iter().all(|&c| c == MINUS || c == PLUS),
    lacks: "a weight of 0 or +2",
};

/// 256 weights in 42 bytes: 32 bytes of slots, 8 of signs, the scale last (Sherry, arXiv 2601.07892).
///
/// Each of 64 groups of four weights, 16 columns apart, has exactly one 0. A slot of four bits, 4z + k,
/// names the weight z that is 0 and the signs of the other three: +, then − for each bit of k. A sign
/// bit of 1 negates the group.
pub const STQ1_0: TernaryBlockFormat = TernaryBlockFormat {
    name: "STQ1_0",
    weights: 256,
    bytes: 42,
    scale_at: 40,
    codes_at: 0,
    unpack: |bytes, codes| {
        let (slots, signs) = bytes.split_at(SLOT_BYTES);
        for group in 0..GROUPS {
            let slot = slots[group / 2] >> (4 * (group % 2)) & 15;
            let negated = signs[group / 8] >> (group % 8) & 1;
            let (zero, mut flips) = (usize::from(slot >> 2), slot << 1);
            for (p, column) in columns(group).enumerate() {
                codes[column] = if p == zero { ZERO_CODE } else { PLUS };
                if p != zero {
                    codes[column] -= PLUS * ((flips ^ negated) & 1);
                    flips >>= 1;
                }
            }
        }
    },
    pack: |codes, bytes| {
        let (slots, signs) = bytes.split_at_mut(SLOT_BYTES);
        for group in 0..GROUPS {
            let zero = columns(group).position(|column| codes[column] == ZERO_CODE);
            let zero = zero.unwrap_or_default() as u8;
            let mut others = columns(group).filter(|&column| codes[column] != ZERO_CODE);
            let negated = others.next().is_some_and(|column| codes[column] == MINUS);
            let sign = if negated { MINUS } else { PLUS };
            let flip = |column: Option<usize>| u8::from(column.is_some_and(|c| codes[c] != sign));
            let flips = flip(others.next()) | flip(others.next()) << 1;
            slots[group / 2] |= (zero << 2 | flips) << (4 * (group % 2));
            signs[group / 8] |= u8::from(negated) << (group % 8);
        }
    },
    holds: |codes| {
        (0..GROUPS).all(|group| {
            let zeros = columns(group).filter(|&column| codes[column] == ZERO_CODE).count();
            zeros == 1 && columns(group).all(|column| codes[column] <= PLUS)
        })
    },
    lacks: "four weights, 16 columns apart, without exactly one 0",
};

const GROUPS: usize = 64;
const SLOT_BYTES: usize = 32;
/// Distance of the weights of a group, in columns.
const STRIDE: usize = 16;

/// The columns of the four weights of a group, counted from the start of the block.
fn columns(group: usize) -> std::iter::StepBy<std::ops::Range<usize>> {
    let first = 4 * STRIDE * (group / STRIDE) + group % STRIDE;
    (first..first + 4 * STRIDE).step_by(STRIDE)
}
