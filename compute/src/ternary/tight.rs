//! The tight layout: three codes in five bits (1.67 bits per weight), for files and for products that
//! memory bandwidth limits.
//!
//! A block of 40 bytes holds 16 rows × 12 columns as 64 numbers of five bits; the first number is in
//! the lowest bits of the first byte. Number `4·r + j` is c₀ + 3·c₁ + 9·c₂, with the codes cᵢ of row
//! `r` and column `4·i + j`. The numbers 27 to 31 are not a sum of three codes below 3 and read as
//! c₂ = 3. As in the two-bit layout, a field is 16 rows × 4 columns, in the order of the columns.
//!
//! Columns that share a scale begin with a block of their own. So a group of 128 columns takes 11 blocks,
//! whose last field is padding (1.72 bits per weight), and a group of 64 takes 6 (1.88).

use super::{BLOCK_BYTES, ZERO_BYTE};

/// Number of columns in a block.
pub const COLS: usize = 12;
/// Bytes in a block of 16 rows × 12 columns.
pub const BYTES: usize = 40;
/// Number of fields in a block.
pub const FIELDS: usize = 3;
/// Most columns that a matrix may have: 16 times the sum of its products fits 32 bits.
pub const MOST_COLS: usize = 1 << 18;

/// Bytes of eight numbers.
const EIGHT: usize = 5;
/// Mask of a number of five bits.
const NUMBER: u64 = 31;

/// The three codes of each number, two bits each, the first code in the lowest bits.
pub const CODES: [u8; 32] = {
    let mut codes = [0; 32];
    let mut n = 0;
    while n < 32 {
        let number = n as u8;
        let [first, second, third] = [number % 3, number / 3 % 3, number / 9];
        codes[n] = first | second << 2 | third << 4;
        n += 1;
    }
    codes
};

type Block = [u8; BYTES];
type TwoBitBlock = [u8; BLOCK_BYTES];

/// Returns the code at a row and column of a block.
pub(super) fn code(block: &Block, row: usize, column: usize) -> u8 {
    let bit = 5 * (4 * row + column % 4);
    let pair = u16::from(block[bit / 8]) | u16::from(*block.get(bit / 8 + 1).unwrap_or(&0)) << 8;
    CODES[usize::from(pair >> (bit % 8)) & NUMBER as usize] >> (2 * (column / 4)) & 3
}

/// Returns true if these two-bit codes contain the fourth code, which the layout cannot hold.
pub(super) fn has_fourth(codes: &[u8]) -> bool {
    codes.iter().fold(0, |found, byte| found | byte & byte >> 1) & 0b01_01_01_01 != 0
}

/// Packs a panel's two-bit blocks of a group.
pub(super) fn pack(codes: &[TwoBitBlock], out: &mut [Block]) {
    let padding = [ZERO_BYTE; BLOCK_BYTES];
    for (i, block) in out.iter_mut().enumerate() {
        let field = |f: usize| {
            let at = i * FIELDS + f;
            (codes.get(at / 4).unwrap_or(&padding), at % 4 * 2)
        };
        let [first, second, third] = [field(0), field(1), field(2)];
        let code = |(bytes, shift): (&TwoBitBlock, usize), n: usize| bytes[n] >> shift & 3;
        let mut numbers = [0u8; BLOCK_BYTES];
        for (n, number) in numbers.iter_mut().enumerate() {
            let upper = code(second, n) + 3 * code(third, n);
            *number = code(first, n) + 3 * upper;
        }
        for (eight, out) in numbers.as_chunks().0.iter().zip(block.as_chunks_mut::<EIGHT>().0) {
            *out = *join_eight(u64::from_le_bytes(*eight))
                .to_le_bytes()
                .first_chunk()
                .expect("5 of 8");
        }
    }
}

/// Moves eight numbers, one per byte, to the low forty bits.
fn join_eight(x: u64) -> u64 {
    let x = x & 0x001f_001f_001f_001f | (x & 0x1f00_1f00_1f00_1f00) >> 3;
    let x = x & 0x0000_03ff_0000_03ff | (x & 0x03ff_0000_03ff_0000) >> 6;
    x & 0xf_ffff | x >> 12 & 0xff_fff0_0000
}

/// Moves eight numbers of five bits to a byte each; the inverse of [`join_eight`].
fn split_eight(x: u64) -> u64 {
    let x = x & 0xf_ffff | (x & 0xff_fff0_0000) << 12;
    let x = x & 0x0000_03ff_0000_03ff | (x & 0x000f_fc00_000f_fc00) << 6;
    x & 0x001f_001f_001f_001f | (x & 0x03e0_03e0_03e0_03e0) << 3
}

/// Unpacks a panel's blocks of a group into two-bit blocks; the inverse of [`pack`].
pub(super) fn unpack(codes: &[Block], out: &mut [TwoBitBlock]) {
    out.as_flattened_mut().fill(0);
    let fields = out.len() * 4;
    for (i, block) in codes.iter().enumerate() {
        let mut numbers = [0u8; BLOCK_BYTES];
        for (eight, out) in block.as_chunks::<EIGHT>().0.iter().zip(numbers.as_chunks_mut().0) {
            let mut bytes = [0; 8];
            bytes[..EIGHT].copy_from_slice(eight);
            *out = split_eight(u64::from_le_bytes(bytes)).to_le_bytes();
        }
        // The same as looking up [`CODES`], by comparisons, which compile to vector instructions.
        let [mut second, mut third] = [[0u8; BLOCK_BYTES]; 2];
        for (number, code) in numbers.iter_mut().zip(&mut third) {
            *code = u8::from(*number >= 9) + u8::from(*number >= 18) + u8::from(*number >= 27);
            *number -= 9 * *code;
        }
        for (number, code) in numbers.iter_mut().zip(&mut second) {
            *code = u8::from(*number >= 3) + u8::from(*number >= 6);
            *number -= 3 * *code;
        }
        for (at, codes) in (i * FIELDS..fields).zip([&numbers, &second, &third]) {
            for (byte, code) in out[at / 4].iter_mut().zip(codes) {
                *byte |= code << (at % 4 * 2);
            }
        }
    }
    for at in codes.len() * FIELDS..fields {
        out[at / 4].iter_mut().for_each(|byte| *byte |= ZERO_BYTE & 3 << (at % 4 * 2));
    }
}
