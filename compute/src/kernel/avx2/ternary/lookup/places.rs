//! Where in its table the value of each four weights stands.

use super::super::super::lanes::prefetch;
use super::super::Walk;
use super::QUADS;
use crate::ternary::{BLOCK_BYTES, BLOCK_COLS, PANEL_ROWS};
use std::arch::x86_64::*;
use std::ops::Range;

/// For one weight row which entry of its table each quad of a word names: none beyond the 81st.
pub type Places = [u8; QUADS];
/// Those of a panel's rows.
pub type Word = [Places; PANEL_ROWS];

/// Which four columns make a quad: those whose codes become a place with the fewest instructions.
pub struct Order {
    /// Columns after which the same order starts again: whole blocks, [`MOST_COLS`] at most.
    pub cols: usize,
    /// The columns of each quad in such a period, lowest digits first; eight quads make a word.
    pub words: &'static [[[u8; 4]; QUADS]],
}

/// Columns of a period at most.
pub const MOST_COLS: usize = 96;

/// Places of some words and panels, `[word][panel]`.
pub struct Room<'o> {
    pub out: &'o mut [Word],
    /// From one word to the next. Odd, or all words of a panel would meet in a few sets of the caches.
    pub stride: usize,
    /// The panel that is written.
    pub panel: usize,
}

impl Room<'_> {
    /// The `i`-th word of the panel.
    #[inline]
    pub fn word(&mut self, i: usize) -> &mut Word {
        &mut self.out[i * self.stride + self.panel]
    }
}

/// Blocks of two bits that make a period.
const PAIR: usize = 2;

/// The order of codes of two bits: a byte has the codes of four columns, four apart.
pub const TWO_BIT: Order = Order { cols: PAIR * BLOCK_COLS, words: &[two_bit_quads()] };

const fn two_bit_quads() -> [[u8; 4]; QUADS] {
    let mut quads = [[0; 4]; QUADS];
    let mut i = 0;
    while i < QUADS {
        let first = (i / 4 * BLOCK_COLS + i % 4) as u8;
        quads[i] = [first, first + 4, first + 8, first + 12];
        i += 1;
    }
    quads
}

/// Writes the places of a panel's codes of two bits in some periods. A last block without a partner gets
/// one of zeros; its activations are zero, too. Returns `false` where a code 3 occurs, which is no ternary
/// weight.
#[target_feature(enable = "avx2,fma,f16c")]
pub fn two_bit(walk: &Walk<'_>, panel: usize, periods: Range<usize>, room: &mut Room<'_>) -> bool {
    let codes = walk.codes(panel);
    let blocks = periods.start * PAIR..(periods.end * PAIR).min(codes.len());
    let next = walk.blocks * BLOCK_BYTES;
    let mut bad = _mm256_setzero_si256();
    for (i, pair) in codes[blocks].chunks(PAIR).enumerate() {
        prefetch(pair[0].as_ptr(), next);
        prefetch(pair[0].as_ptr(), next + BLOCK_BYTES);
        let second = pair.get(1).unwrap_or(&[0; BLOCK_BYTES]);
        let mut halves: [__m256i; 4] = bytemuck::must_cast([pair[0], *second]);
        for half in &mut halves {
            *half = numbers(*half);
            bad = _mm256_or_si256(bad, *half);
        }
        *room.word(i) = bytemuck::must_cast(interleaved(halves));
    }
    _mm256_movemask_epi8(bad) == 0
}

/// What a fourth code makes of a number.
const BAD: u8 = 0x80;

/// What each two codes in four bits are worth, the lower one times `unit` and the upper one three times
/// that.
const fn pairs_of_codes(unit: u8) -> [u8; 16] {
    let mut out = [BAD; 16];
    let mut i = 0;
    while i < 16 {
        let [low, high] = [i % 4, i / 4];
        if low < 3 && high < 3 {
            out[i as usize] = unit * (low + 3 * high);
        }
        i += 1;
    }
    out
}

/// Σ code · 3ⁱ of the four codes in each byte: 80 at most, or from [`BAD`] on where one is 3.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn numbers(codes: __m256i) -> __m256i {
    const { assert!(BAD > 80) };
    let table = |of: [u8; 16]| _mm256_broadcastsi128_si256(bytemuck::must_cast(of));
    let mask = _mm256_set1_epi8(15);
    let low = _mm256_and_si256(codes, mask);
    let high = _mm256_and_si256(_mm256_srli_epi16::<4>(codes), mask);
    _mm256_adds_epu8(
        _mm256_shuffle_epi8(table(pairs_of_codes(1)), low),
        _mm256_shuffle_epi8(table(pairs_of_codes(9)), high),
    )
}

/// Two blocks' numbers, of two halves each with four bytes for each of 8 rows, side by side.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn interleaved([a, b, c, d]: [__m256i; 4]) -> [__m256i; 4] {
    // Rows 0, 1, 4, 5 and rows 2, 3, 6, 7 of each eight.
    let (ac, ca) = (_mm256_unpacklo_epi32(a, c), _mm256_unpackhi_epi32(a, c));
    let (bd, db) = (_mm256_unpacklo_epi32(b, d), _mm256_unpackhi_epi32(b, d));
    [
        _mm256_permute2x128_si256::<0x20>(ac, ca),
        _mm256_permute2x128_si256::<0x31>(ac, ca),
        _mm256_permute2x128_si256::<0x20>(bd, db),
        _mm256_permute2x128_si256::<0x31>(bd, db),
    ]
}
