//! Measures the arithmetic throughput that limits products.

use super::tiles::{ROW_BYTES, ROWS, Tiles, multiply as multiply_tile, zero};

/// Computes `rounds` times four tiles of 16 × 16 × 64 int8 products.
#[target_feature(enable = "avx512f")]
pub fn multiply(rounds: usize) -> u64 {
    // SAFETY: this table is only handed out where tiles are available; they are configured as long
    // as `_tiles` lives.
    unsafe {
        let _tiles = Tiles::new(ROWS);
        zero::<0>();
        zero::<1>();
        zero::<2>();
        zero::<3>();
        zero::<4>();
        zero::<5>();
        zero::<6>();
        zero::<7>();
        for _ in 0..rounds {
            multiply_tile::<0, 4, 6>(false);
            multiply_tile::<1, 4, 7>(false);
            multiply_tile::<2, 5, 6>(false);
            multiply_tile::<3, 5, 7>(false);
        }
    }
    (4 * ROWS * ROWS * ROW_BYTES * rounds) as u64
}
