//! The one-bit layout: weights of −1 and +1 with a scale for each 128 columns (1.125 bits per weight).
//!
//! Columns are split into spans: 1024 columns as long as so many are left, then 512, 256 and 128. A
//! panel's span of S columns is S / 32 blocks of 64 bytes. Bit `i` of byte `4·r + j` in block `b` belongs
//! to row `r` and column `i·S/8 + 4·b + j` of the span: 1 is weight +1 and 0 is −1.
//!
//! So a bit selects the columns of one scale, and a product needs neither shifts nor tables: a mask leaves
//! one bit of each byte, whose sum is 2ⁱ times too large. Rows past the edge hold zeros.

use super::{BLOCK_BYTES, BLOCK_COLS, PANEL_ROWS, Scales, ZERO_BYTE};
use std::iter;
use std::ops::Range;

/// Number of columns that share a scale; a matrix has whole groups.
pub const GROUP: usize = 128;
/// Most columns of a span.
pub(crate) const SPAN: usize = 8 * GROUP;
/// Number of columns that a block of 64 bytes holds.
pub(crate) const COLS: usize = 32;

/// A block of 16 rows × 32 columns.
pub(crate) type Block = [u8; BLOCK_BYTES];
type TwoBitBlock = [u8; BLOCK_BYTES];

/// The lowest bit of each byte.
const ONES: u64 = 0x0101_0101_0101_0101;

/// Returns true if matrices of this shape may be in the layout: whole groups of 128 columns.
pub(super) fn takes(cols: usize, scales: &Scales) -> bool {
    cols.is_multiple_of(GROUP) && matches!(scales, Scales::Groups(g) if g.size() == GROUP)
}

/// Returns the spans of `cols` columns, from the one that begins at `first` on.
#[inline]
pub(crate) fn spans(cols: usize, mut first: usize) -> impl Iterator<Item = Range<usize>> {
    iter::from_fn(move || {
        let size = match cols - first {
            0 => return None,
            SPAN.. => SPAN,
            left => 1 << left.ilog2(),
        };
        first += size;
        Some(first - size..first)
    })
}

/// Place of four columns that follow each other: a block of the panel, and a bit of its bytes.
#[inline]
pub(crate) fn place(span: &Range<usize>, column: usize) -> (usize, usize) {
    let (run, at) = (span.len() / 8, column - span.start);
    (span.start / COLS + at % run / 4, at / run)
}

/// Returns the code of a weight: 0 or 2.
pub(super) fn code(panel: &[Block], span: &Range<usize>, row: usize, column: usize) -> u8 {
    let (block, bit) = place(span, column);
    (panel[block][4 * row + column % 4] >> bit & 1) << 1
}

/// Returns true if the first `rows` rows of a panel have no other weights than −1 and +1.
pub(super) fn fits(codes: &[TwoBitBlock], rows: usize) -> bool {
    let zero_or_two =
        |bytes: &[u8]| bytes.iter().fold(0, |found, byte| found | byte) & ZERO_BYTE == 0;
    codes.iter().all(|block| zero_or_two(&block[..4 * rows]))
}

/// Packs a panel's two-bit blocks.
pub(super) fn pack(codes: &[TwoBitBlock], out: &mut [Block]) {
    for span in spans(codes.len() * BLOCK_COLS, 0) {
        let run = span.len() / 8;
        let blocks = &mut out[span.start / COLS..span.end / COLS];
        for (b, out) in blocks.iter_mut().enumerate() {
            *out = [0; BLOCK_BYTES];
            for bit in 0..8 {
                let column = span.start + bit * run + 4 * b;
                let (codes, field) = (&codes[column / BLOCK_COLS], column % BLOCK_COLS / 4);
                for (out, code) in out.iter_mut().zip(codes) {
                    *out |= (code >> (2 * field + 1) & 1) << bit;
                }
            }
        }
    }
}

/// Unpacks some two-bit blocks of a panel of `cols` columns; the inverse of [`pack`].
#[inline(always)]
pub(crate) fn unpack(panel: &[Block], cols: usize, blocks: Range<usize>, out: &mut [TwoBitBlock]) {
    let first = blocks.start * BLOCK_COLS;
    let mut out = out.iter_mut();
    for span in spans(cols, first / SPAN * SPAN) {
        let own = blocks.start.max(span.start / BLOCK_COLS)..blocks.end.min(span.end / BLOCK_COLS);
        for (block, out) in own.zip(&mut out) {
            let (first, bit) = place(&span, block * BLOCK_COLS);
            *out = two_bits(&panel[first..], bit);
        }
    }
}

/// Returns the codes of 16 columns, whose signs are a bit of the first four blocks.
#[inline(always)]
fn two_bits(blocks: &[Block], bit: usize) -> TwoBitBlock {
    let fields: &[Block; 4] = blocks.first_chunk().expect("a run is whole two-bit blocks");
    let mut out = [0; BLOCK_BYTES];
    for (f, field) in fields.iter().enumerate() {
        for (out, bytes) in out.as_chunks_mut::<8>().0.iter_mut().zip(field.as_chunks().0) {
            let signs = u64::from_le_bytes(*bytes) >> bit & ONES;
            *out = (u64::from_le_bytes(*out) | signs << (2 * f + 1)).to_le_bytes();
        }
    }
    out
}

/// Writes code 1 to the rows of a panel from `rows` on, which the matrix does not have.
pub(super) fn pad(codes: &mut [TwoBitBlock], rows: usize) {
    if rows < PANEL_ROWS {
        codes.iter_mut().for_each(|block| block[4 * rows..].fill(ZERO_BYTE));
    }
}
