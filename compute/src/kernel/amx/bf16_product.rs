//! Products of bf16 tiles whose left operand has two planes, a high one and a low one.

use super::tiles::{self, ROW_BYTES};
use crate::kernel::avx2::prefetch;

/// Number of tiles of sums at a time.
pub const SUM_TILES: usize = 4;

/// The left operand: up to two tiles, whose rows need not be contiguous.
pub struct LeftTiles {
    /// High planes of the first step's tiles.
    pub tiles: [*const u8; 2],
    /// Bytes from one step to the next.
    pub step: usize,
    /// Bytes from one row to the next.
    pub row: usize,
    /// Bytes from the high plane to the low one.
    pub low: usize,
}

/// The right operand: up to four tiles with contiguous rows.
pub struct RightTiles<'a> {
    /// Tiles of step 0.
    pub tiles: [*const u8; SUM_TILES],
    /// The steps, in the order in which they are multiplied.
    pub order: &'a [u32],
    /// Bytes from one step to the next.
    pub step: usize,
    /// Number of bytes of the following step to prefetch.
    pub ahead: usize,
}

impl RightTiles<'_> {
    /// Moves the `p`-th tile by `offset(p)` bytes.
    #[must_use]
    pub fn with_tile_offsets(mut self, offset: impl Fn(usize) -> usize) -> Self {
        for (p, tile) in self.tiles.iter_mut().enumerate() {
            *tile = tile.wrapping_add(offset(p));
        }
        self
    }
}

/// Sum over all steps of the products of left and right tiles.
pub struct Bf16TileProduct<'a> {
    pub left: &'a LeftTiles,
    pub right: &'a RightTiles<'a>,
}

impl Bf16TileProduct<'_> {
    /// Multiplies `G` left tiles × `P` right tiles. The sums of left tile `g` go to `to[g]`, with rows
    /// `row` bytes and tiles `tile` bytes apart. Sums are in the tiles 0 to 3, the left operand in 4 and
    /// 5, the right one in 6 and 7.
    ///
    /// # Safety
    /// [`Tiles`](tiles::Tiles) exist, and all pointers are those of whole tiles.
    #[inline(always)]
    pub unsafe fn run<const G: usize, const P: usize>(
        &self,
        to: [*mut u8; 2],
        row: usize,
        tile: usize,
    ) {
        const { assert!(G * P == SUM_TILES || G * P == 2) };
        /// Adds the products of both left planes and a right tile to a tile of sums.
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
            if G * P == SUM_TILES {
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
                if P == SUM_TILES {
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
            if P == SUM_TILES {
                tiles::store_rows::<2>(to[0].add(2 * tile), row);
                tiles::store_rows::<3>(to[0].add(3 * tile), row);
            }
        }
    }
}

/// Loads both planes of a left tile.
///
/// # Safety
/// As [`Bf16TileProduct::run`].
#[inline(always)]
unsafe fn load_left(high: *const u8, left: &LeftTiles) {
    // SAFETY: the caller's promise.
    unsafe {
        tiles::load::<4>(high, left.row);
        tiles::load::<5>(high.add(left.low), left.row);
    }
}
