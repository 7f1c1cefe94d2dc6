//! The loop that all tile products share, in an order that reuses the caches.
//!
//! Two panels and two groups of 16 activation rows give four tiles of sums at a time. Columns are
//! split into chunks, so that a chunk's weights stay in the first-level cache while all rows are
//! multiplied with them. If the activations exceed the second-level cache, several pairs of panels are
//! multiplied with a chunk of them before the next chunk. Sums are kept in memory between chunks.

use super::tiles::{self, ROW_BYTES, ROWS, Sums, Tiles, Weights};
use crate::kernel::Quantized;
use crate::mem::AlignedVec;
use std::ops::Range;

/// Number of panels, and of row groups, that are multiplied at a time.
const PAIR: usize = 2;
/// Most rows of a block.
pub const BLOCK_ROWS: usize = 512;
const BLOCK_GROUPS: usize = BLOCK_ROWS / ROWS;
/// Number of panels that are multiplied with a block of rows before the next block, if the block's
/// activations have more bytes than `LARGE`: a chunk of them and all sums fit a second-level cache of
/// 1 MB.
pub const BLOCK_PANELS: usize = 16;
const LARGE: usize = 768 << 10;

/// Sums of two row groups × two panels.
type QuadSums = [[Sums; PAIR]; PAIR];

/// The chunks of a product's columns.
pub struct ColumnChunks {
    /// Number of steps of [`ROW_BYTES`] columns.
    pub steps: usize,
    /// Number of steps of a chunk.
    pub chunk: usize,
    /// True if each chunk has sums of its own, because it is a scale group.
    pub separate_sums: bool,
}

impl ColumnChunks {
    fn chunks(&self) -> usize {
        self.steps.div_ceil(self.chunk)
    }

    fn steps(&self, chunk: usize) -> Range<usize> {
        chunk * self.chunk..((chunk + 1) * self.chunk).min(self.steps)
    }
}

/// A panel and a range of its steps.
pub struct PanelSteps {
    pub panel: usize,
    pub steps: Range<usize>,
}

/// Buffers of [`product`].
pub struct ProductBuffers<'a> {
    /// Decoded weights.
    pub decoded: &'a mut AlignedVec<u8>,
    /// Sums that wait for the next chunk.
    pub sums: &'a mut AlignedVec<i32>,
}

/// Multiplies `panels` with all rows of `x`.
///
/// `weights(panel_steps, next, out)` returns the tiles of some steps of a panel, one per step. It
/// decodes them to `out` or points to where they are. `next` is what will be read after that.
/// `emit(panel, chunk, rows, sums)` gets the sums of some rows: over all columns with the last chunk,
/// or those of each chunk if chunks have separate sums.
///
/// # Safety
/// [`tiles::available`] has returned true, and `weights` returns a pointer to a tile per step.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub unsafe fn product<const SIGNED: bool>(
    x: &Quantized<'_>,
    panels: Range<usize>,
    split: &ColumnChunks,
    ProductBuffers { decoded, sums: sums_buffer }: ProductBuffers<'_>,
    mut weights: impl FnMut(&PanelSteps, Option<PanelSteps>, &mut [Weights]) -> *const Weights,
    mut emit: impl FnMut(usize, usize, Range<usize>, &[[i32; ROWS]]),
) {
    // Rows are read in whole steps, also past their last column.
    assert!(x.stride >= split.steps * ROW_BYTES && x.values.len() >= x.rows() * x.stride);
    let groups = RowGroups { x };
    let large = groups.count().min(BLOCK_GROUPS) * ROWS * split.steps * ROW_BYTES > LARGE;
    let together = if large { BLOCK_PANELS } else { PAIR };
    let quads = together / PAIR * groups.count().min(BLOCK_GROUPS).div_ceil(PAIR);
    decoded.grow(PAIR * split.chunk * size_of::<Weights>());
    sums_buffer.grow(quads * size_of::<QuadSums>() / size_of::<i32>());
    let decoded: &mut [Weights] = decoded.as_chunks_mut().0.as_chunks_mut().0;
    let sums_buffer: &mut [QuadSums] = as_quads(sums_buffer);

    // SAFETY: the caller's promise.
    let _tiles = unsafe { Tiles::new(x.rows()) };
    for block in subranges(0..groups.count(), BLOCK_GROUPS) {
        for panels in subranges(panels.clone(), together) {
            let pairs = panels.len().div_ceil(PAIR);
            let group_pairs = block.len().div_ceil(PAIR);
            for at in 0..split.chunks() * pairs {
                let panel_steps = |at: usize, p: usize| {
                    let panel = panels.start + at % pairs * PAIR + p;
                    (panel < panels.end)
                        .then(|| PanelSteps { panel, steps: split.steps(at / pairs) })
                };
                let mut tiles_of = [std::ptr::null(); PAIR];
                for (p, out) in decoded.chunks_exact_mut(split.chunk).take(PAIR).enumerate() {
                    let next =
                        if at + 1 < split.chunks() * pairs { panel_steps(at + 1, p) } else { None };
                    if let Some(panel_steps) = panel_steps(at, p) {
                        tiles_of[p] = weights(&panel_steps, next, out);
                    }
                }
                let chunk = at / pairs;
                let last = chunk + 1 == split.chunks();
                // If there is a single quad of sums, it stays in the tiles from chunk to chunk.
                let keeps = pairs * group_pairs == 1 && !split.separate_sums;
                let begin = match chunk {
                    _ if chunk == 0 || split.separate_sums => SumsStart::Zero,
                    _ if keeps => SumsStart::Keep,
                    _ => SumsStart::Load,
                };
                for (i, pair) in subranges(block.clone(), PAIR).enumerate() {
                    let sums = &mut sums_buffer[at % pairs * group_pairs + i];
                    let tile_product = TileProduct {
                        groups: &groups,
                        pair,
                        weights: tiles_of,
                        steps: split.steps(chunk),
                    };
                    // SAFETY: the tiles are configured; the weights are those of all steps.
                    unsafe {
                        let (t, stores) = (&tile_product, !keeps || last);
                        match (t.pair.len(), t.weights[1].is_null()) {
                            (1, true) => t.multiply::<1, 1, SIGNED>(begin, stores, sums),
                            (1, false) => t.multiply::<1, 2, SIGNED>(begin, stores, sums),
                            (_, true) => t.multiply::<2, 1, SIGNED>(begin, stores, sums),
                            (_, false) => t.multiply::<2, 2, SIGNED>(begin, stores, sums),
                        }
                    }
                    if split.separate_sums || last {
                        tile_product.each_tile(sums, |p, rows, sums| {
                            emit(panels.start + at % pairs * PAIR + p, chunk, rows, sums);
                        });
                    }
                }
            }
        }
    }
}

/// Splits a range into ranges of `size`; the last one may be shorter.
fn subranges(range: Range<usize>, size: usize) -> impl Iterator<Item = Range<usize>> {
    range.clone().step_by(size).map(move |at| at..range.end.min(at + size))
}

/// Views the buffer of sums as whole quads.
fn as_quads(sums: &mut [i32]) -> &mut [QuadSums] {
    let rows: &mut [[i32; ROWS]] = sums.as_chunks_mut().0;
    let tiles: &mut [Sums] = rows.as_chunks_mut().0;
    let pairs: &mut [[Sums; PAIR]] = tiles.as_chunks_mut().0;
    pairs.as_chunks_mut().0
}

/// Activation rows in groups of 16. The last group overlaps the one before it, so that all groups are
/// whole. Only with fewer than 16 rows is there a smaller group, with smaller tiles.
struct RowGroups<'a> {
    x: &'a Quantized<'a>,
}

impl RowGroups<'_> {
    fn count(&self) -> usize {
        self.x.rows().div_ceil(ROWS)
    }

    /// Returns a group's first row.
    fn start(&self, group: usize) -> usize {
        (group * ROWS).min(self.x.rows().saturating_sub(ROWS))
    }

    /// Returns the rows of a group that no group before it has.
    fn own(&self, group: usize) -> Range<usize> {
        group * ROWS..((group + 1) * ROWS).min(self.x.rows())
    }

    /// Returns a group's activations from a step on.
    fn activations(&self, group: usize, step: usize) -> *const u8 {
        let row = &self.x.values[self.start(group) * self.x.stride..];
        row[step * ROW_BYTES..].as_ptr().cast()
    }
}

/// Initial value of the tiles of sums.
#[derive(Clone, Copy)]
enum SumsStart {
    Zero,
    /// The sums that are in the tiles.
    Keep,
    /// The sums that were stored to memory.
    Load,
}

/// Product of up to two row groups × up to two panels, over the steps of a chunk.
struct TileProduct<'a> {
    groups: &'a RowGroups<'a>,
    /// The groups.
    pair: Range<usize>,
    /// Each panel's tiles; null if there is no such panel.
    weights: [*const Weights; PAIR],
    steps: Range<usize>,
}

impl TileProduct<'_> {
    /// Multiplies `G` groups × `P` panels. Sums are in the tiles 0 to 3, activations in 4 and 5, weights
    /// in 6 and 7.
    ///
    /// # Safety
    /// [`Tiles`] exist, and `weights` are those of all steps.
    unsafe fn multiply<const G: usize, const P: usize, const SIGNED: bool>(
        &self,
        begin: SumsStart,
        stores: bool,
        sums: &mut QuadSums,
    ) {
        let [[s0, s1], [s2, s3]] = sums;
        let x: [*const u8; PAIR] = std::array::from_fn(|g| {
            self.groups.activations(self.pair.start + g.min(G - 1), self.steps.start)
        });
        let stride = self.groups.x.stride;
        // SAFETY: tiles are configured. Activations: all rows of a group are rows of `x`, and its
        // stride has room for whole steps. Weights: the caller's promise.
        unsafe {
            match begin {
                SumsStart::Keep => {}
                SumsStart::Zero => {
                    tiles::zero::<0>();
                    tiles::zero::<1>();
                    tiles::zero::<2>();
                    tiles::zero::<3>();
                }
                SumsStart::Load => {
                    tiles::load::<0>((&raw const *s0).cast(), ROW_BYTES);
                    if P == 2 {
                        tiles::load::<1>((&raw const *s1).cast(), ROW_BYTES);
                    }
                    if G == 2 {
                        tiles::load::<2>((&raw const *s2).cast(), ROW_BYTES);
                    }
                    if G == 2 && P == 2 {
                        tiles::load::<3>((&raw const *s3).cast(), ROW_BYTES);
                    }
                }
            }
            for step in 0..self.steps.len() {
                tiles::load::<4>(x[0].add(step * ROW_BYTES), stride);
                tiles::load::<6>(self.weights[0].add(step).cast(), ROW_BYTES);
                tiles::multiply::<0, 4, 6>(SIGNED);
                if P == 2 {
                    tiles::load::<7>(self.weights[1].add(step).cast(), ROW_BYTES);
                    tiles::multiply::<1, 4, 7>(SIGNED);
                }
                if G == 2 {
                    tiles::load::<5>(x[1].add(step * ROW_BYTES), stride);
                    tiles::multiply::<2, 5, 6>(SIGNED);
                }
                if G == 2 && P == 2 {
                    tiles::multiply::<3, 5, 7>(SIGNED);
                }
            }
            if !stores {
                return;
            }
            tiles::store::<0>(s0);
            if P == 2 {
                tiles::store::<1>(s1);
            }
            if G == 2 {
                tiles::store::<2>(s2);
            }
            if G == 2 && P == 2 {
                tiles::store::<3>(s3);
            }
        }
    }

    /// Calls `emit(panel of the pair, rows, sums)` for every tile, with the rows that no earlier group
    /// has.
    #[inline(always)]
    fn each_tile(
        &self,
        sums: &QuadSums,
        mut emit: impl FnMut(usize, Range<usize>, &[[i32; ROWS]]),
    ) {
        for (group, sums) in self.pair.clone().zip(sums) {
            let (rows, start) = (self.groups.own(group), self.groups.start(group));
            for (p, sums) in sums.iter().enumerate().filter(|(p, _)| !self.weights[*p].is_null()) {
                emit(p, rows.clone(), &sums[rows.start - start..rows.end - start]);
            }
        }
    }
}
