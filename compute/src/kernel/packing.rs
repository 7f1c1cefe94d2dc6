//! [`Packing`] as a const parameter, so that each packing gets its own loops.

use crate::matrix::{INT8_BLOCK_COLS, INT8_PAD_COLS, Packing};
use crate::ternary::PANEL_ROWS;

pub const WHOLE: u8 = Packing::Whole as u8;
pub const UPPER: u8 = Packing::Upper as u8;
pub const SIX: u8 = Packing::Six as u8;
pub const SPLIT: u8 = Packing::Split as u8;

/// Number of bytes of a block of 16 rows × 4 columns, and of a line.
pub const BLOCK: usize = PANEL_ROWS * INT8_BLOCK_COLS;
/// Number of blocks of a strip.
pub const BLOCKS: usize = INT8_PAD_COLS / INT8_BLOCK_COLS;

/// See [`Packing::lines`].
#[cfg(any(target_arch = "aarch64", target_arch = "x86_64"))]
pub const fn lines(packing: u8) -> (usize, usize) {
    match packing {
        WHOLE => Packing::Whole.lines(),
        UPPER => Packing::Upper.lines(),
        SIX => Packing::Six.lines(),
        _ => Packing::Split.lines(),
    }
}
