//! Encodes weights as lookup-table indices: one index for each four weights.

use super::super::super::lanes::prefetch;
use super::super::TernaryArgs;
use super::{QUADS, WORDS};
use crate::ternary::{BLOCK_BYTES, BLOCK_COLS, Layout, PANEL_ROWS};
use std::arch::x86_64::*;
use std::ops::Range;

/// Table indices of one weight row for eight quads; each is below 81.
pub type IndexWord = [u8; QUADS];
/// Index words of a panel's rows.
pub type PanelIndices = [IndexWord; PANEL_ROWS];

/// The four columns that make each quad, chosen so that their codes become an index in few instructions.
pub struct QuadOrder {
    /// Number of columns of a period, after which the order repeats: whole blocks, at most [`MOST_COLS`].
    pub cols: usize,
    /// Columns of each quad in a period, lowest digit first; eight quads make a word.
    pub words: &'static [[[u8; 4]; QUADS]],
}

/// Most columns of a period.
pub const MOST_COLS: usize = 96;

/// Buffer for the indices of some words and panels, `[word][panel]`.
pub struct IndexBuf<'o> {
    pub out: &'o mut [PanelIndices],
    /// Number of panels from one word to the next.
    pub stride: usize,
    /// The panel that is written.
    pub panel: usize,
}

impl IndexBuf<'_> {
    /// Returns the `i`-th word of the panel.
    #[inline]
    pub fn word(&mut self, i: usize) -> &mut PanelIndices {
        &mut self.out[i * self.stride + self.panel]
    }
}

/// Number of two-bit blocks in a period.
const PAIR: usize = 2;

/// The order of two-bit codes: a byte has the codes of four columns that are four apart.
pub const TWO_BIT: QuadOrder = QuadOrder { cols: PAIR * BLOCK_COLS, words: &[two_bit_quads()] };

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

/// Writes the indices of a panel in some periods, from two-bit codes or single bits. Zeros replace the
/// second block of the last period if it is missing; its activations are zero, too. Returns false if the
/// panel has the fourth code, which is not a ternary weight.
#[target_feature(enable = "avx2,fma,f16c")]
pub fn encode_two_bit(
    args: &TernaryArgs<'_>,
    panel: usize,
    periods: Range<usize>,
    buf: &mut IndexBuf<'_>,
) -> bool {
    let blocks = periods.start * PAIR..(periods.end * PAIR).min(args.blocks);
    let next = args.blocks * BLOCK_BYTES;
    match args.w.layout() {
        Layout::OneBit => {
            let mut buffer = [[0; BLOCK_BYTES]; PAIR * WORDS];
            encode(args.two_bits(panel, blocks, &mut buffer), 0, buf)
        }
        _ => encode(&args.codes(panel)[blocks], next, buf),
    }
}

/// Writes the indices of two-bit codes. Prefetches as many bytes `next` bytes after them.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn encode(codes: &[[u8; BLOCK_BYTES]], next: usize, buf: &mut IndexBuf<'_>) -> bool {
    let mut bad = _mm256_setzero_si256();
    for (i, pair) in codes.chunks(PAIR).enumerate() {
        prefetch(pair[0].as_ptr(), next);
        prefetch(pair[0].as_ptr(), next + BLOCK_BYTES);
        let second = pair.get(1).unwrap_or(&[0; BLOCK_BYTES]);
        let mut halves: [__m256i; 4] = bytemuck::must_cast([pair[0], *second]);
        for half in &mut halves {
            *half = numbers(*half);
            bad = _mm256_or_si256(bad, *half);
        }
        *buf.word(i) = bytemuck::must_cast(interleaved(halves));
    }
    _mm256_movemask_epi8(bad) == 0
}

/// Marks an index with a fourth code.
const BAD: u8 = 0x80;

/// Table of `unit` · (low + 3 · high) for each two codes in four bits.
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

/// Returns Σ code · 3ⁱ of the four codes in each byte: at most 80, or at least [`BAD`] if a code is 3.
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

/// Interleaves the indices of two blocks. Each block is two halves with four bytes for each of 8 rows.
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
