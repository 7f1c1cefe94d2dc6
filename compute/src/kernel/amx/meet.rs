//! Products of bf16 tiles whose left side has two planes, a high one and a low one.

use super::tiles::{self, ROW_BYTES};
use crate::kernel::avx2::prefetch;

/// Tiles of sums at a time.
pub const SUMS: usize = 4;

/// Up to two tiles on the left, of rows that stand somewhere in memory.
pub struct Left {
    /// The high planes of the first step's tiles.
    pub tiles: [*const u8; 2],
    /// Bytes to the next step, to the next row, and to the low plane.
    pub step: usize,
    pub row: usize,
    pub low: usize,
}

/// Up to four tiles on the right, each row behind the other.
pub struct Right<'a> {
    /// Those of step 0.
    pub tiles: [*const u8; SUMS],
    /// The steps in the order in which they are taken.
    pub order: &'a [u32],
    /// Bytes to the next step.
    pub step: usize,
    /// Bytes of the step behind that memory is asked for.
    pub ahead: usize,
}

impl Right<'_> {
    /// The same with the `p`-th tile `offset(p)` bytes further.
    #[must_use]
    pub fn across(mut self, offset: impl Fn(usize) -> usize) -> Self {
        for (p, tile) in self.tiles.iter_mut().enumerate() {
            *tile = tile.wrapping_add(offset(p));
        }
        self
    }
}

/// Tiles of both sides, step after step added up.
pub struct Meeting<'a> {
    pub left: &'a Left,
    pub right: &'a Right<'a>,
}

impl Meeting<'_> {
    /// `G` tiles on the left × `P` on the right; the sums of the left's `g` go to `to[g]`, of which the
    /// next row is `row` bytes further and the next tile `tile` bytes. Sums are in the tiles 0 to 3, the
    /// left in 4 and 5, the right in 6 and 7.
    ///
    /// # Safety
    /// [`Tiles`](tiles::Tiles) are there, and all pointers are those of whole tiles.
    #[inline(always)]
    pub unsafe fn run<const G: usize, const P: usize>(
        &self,
        to: [*mut u8; 2],
        row: usize,
        tile: usize,
    ) {
        const { assert!(G * P == SUMS || G * P == 2) };
        /// Adds the products of both planes and a tile on the right to the sums in a tile.
        macro_rules! add {
            ($sums:literal, $right:literal) => {
                tiles::multiply_bf16::<$sums, 4, $right>();
                tiles::multiply_bf16::<$sums, 5, $right>();
            };
        }
        let (left, right) = (self.left, self.right);
        // SAFETY: the caller's promise.
        unsafe {
            tiles::zero::<0>();
            tiles::zero::<1>();
            if G * P == SUMS {
                tiles::zero::<2>();
                tiles::zero::<3>();
            }
            let mut queries = left.tiles;
            for (i, &step) in right.order.iter().enumerate() {
                if let Some(&next) = right.order.get(i + 1) {
                    let next = right.tiles[0].wrapping_add(next as usize * right.step);
                    (0..right.ahead).step_by(ROW_BYTES).for_each(|at| prefetch(next, at));
                }
                let tile = |p: usize| right.tiles[p].add(step as usize * right.step);
                tiles::load::<6>(tile(0), ROW_BYTES);
                tiles::load::<7>(tile(1), ROW_BYTES);
                load_left(queries[0], left);
                add!(0, 6);
                add!(1, 7);
                if G == 2 {
                    load_left(queries[1], left);
                    add!(2, 6);
                    add!(3, 7);
                }
                if P == SUMS {
                    tiles::load::<6>(tile(2), ROW_BYTES);
                    tiles::load::<7>(tile(3), ROW_BYTES);
                    add!(2, 6);
                    add!(3, 7);
                }
                for tile in &mut queries {
                    *tile = tile.wrapping_add(left.step);
                }
            }
            tiles::store_rows::<0>(to[0], row);
            tiles::store_rows::<1>(to[0].add(tile), row);
            if G == 2 {
                tiles::store_rows::<2>(to[1], row);
                tiles::store_rows::<3>(to[1].add(tile), row);
            }
            if P == SUMS {
                tiles::store_rows::<2>(to[0].add(2 * tile), row);
                tiles::store_rows::<3>(to[0].add(3 * tile), row);
            }
        }
    }
}

/// Both planes of a tile on the left.
///
/// # Safety
/// As [`Meeting::run`].
#[inline(always)]
unsafe fn load_left(high: *const u8, left: &Left) {
    // SAFETY: the caller's promise.
    unsafe {
        tiles::load::<4>(high, left.row);
        tiles::load::<5>(high.add(left.low), left.row);
    }
}
