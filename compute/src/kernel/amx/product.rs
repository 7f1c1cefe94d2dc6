//! The walk that all tile products share: which weights meet which activations when, so that both
//! come from near caches.
//!
//! Two panels and two groups of 16 activation rows make four tiles of sums at a time. Columns are
//! taken in chunks, so that a chunk's weights stay in the first-level cache while all rows meet
//! them; where activations are too many for the second level, several pairs of panels meet a chunk
//! of them before the next chunk. Sums wait in memory between chunks.

use super::tiles::{self, ROW_BYTES, ROWS, Sums, Tiles, Weights};
use crate::kernel::Quantized;
use crate::mem::AlignedVec;
use std::ops::Range;

/// Panels, and groups of rows, that meet at a time.
const PAIR: usize = 2;
/// Rows of a block at most.
pub const BLOCK_ROWS: usize = 512;
const BLOCK_GROUPS: usize = BLOCK_ROWS / ROWS;
/// Panels that meet a block of rows before it is left, if its activations have more bytes than
/// `LARGE`: a chunk of them and all sums fit a second-level cache of 1 MB.
pub const BLOCK_PANELS: usize = 16;
const LARGE: usize = 768 << 10;

/// Sums of two groups × two panels.
type Four = [[Sums; PAIR]; PAIR];

/// How a product's columns are cut.
pub struct Cut {
    /// Steps of [`ROW_BYTES`] columns, and those of a chunk.
    pub steps: usize,
    pub chunk: usize,
    /// Whether each chunk has sums of its own: a scale group's.
    pub apart: bool,
}

impl Cut {
    fn chunks(&self) -> usize {
        self.steps.div_ceil(self.chunk)
    }

    fn steps(&self, chunk: usize) -> Range<usize> {
        chunk * self.chunk..((chunk + 1) * self.chunk).min(self.steps)
    }
}

/// A panel and some of its steps.
pub type Place = (usize, Range<usize>);

/// Room for decoded weights, and for sums.
pub type Room<'a> = (&'a mut AlignedVec<u8>, &'a mut AlignedVec<i32>);

/// Products of `panels` with all rows of `x`.
///
/// `weights(place, next, room)` gives the place's tiles, one for each step, in the room for them or
/// where they are; `next` is where the walk goes after that. `take(panel, chunk, rows, sums)` gets the
/// sums of some rows: over all columns, with the last chunk, or those of each chunk where they stand
/// apart.
///
/// # Safety
/// [`tiles::available`] has said yes, and `weights` points to as many tiles as it was asked for.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub unsafe fn product<const SIGNED: bool>(
    x: &Quantized<'_>,
    panels: Range<usize>,
    cut: &Cut,
    (decoded, kept): Room<'_>,
    mut weights: impl FnMut(&Place, Option<Place>, &mut [Weights]) -> *const Weights,
    mut take: impl FnMut(usize, usize, Range<usize>, &[[i32; ROWS]]),
) {
    // Rows are read in whole steps, wherever they end.
    assert!(x.stride >= cut.steps * ROW_BYTES && x.values.len() >= x.rows() * x.stride);
    let groups = Groups { x };
    let large = groups.count().min(BLOCK_GROUPS) * ROWS * cut.steps * ROW_BYTES > LARGE;
    let together = if large { BLOCK_PANELS } else { PAIR };
    let fours = together / PAIR * groups.count().min(BLOCK_GROUPS).div_ceil(PAIR);
    decoded.grow(PAIR * cut.chunk * size_of::<Weights>());
    kept.grow(fours * size_of::<Four>() / size_of::<i32>());
    let decoded: &mut [Weights] = decoded.as_chunks_mut().0.as_chunks_mut().0;
    let kept: &mut [Four] = as_fours(kept);

    // SAFETY: the caller's promise.
    let _tiles = unsafe { Tiles::new(x.rows()) };
    for block in pieces(0..groups.count(), BLOCK_GROUPS) {
        for panels in pieces(panels.clone(), together) {
            let pairs = panels.len().div_ceil(PAIR);
            let twos = block.len().div_ceil(PAIR);
            for at in 0..cut.chunks() * pairs {
                let place = |at: usize, p: usize| {
                    let panel = panels.start + at % pairs * PAIR + p;
                    (panel < panels.end).then(|| (panel, cut.steps(at / pairs)))
                };
                let mut from = [std::ptr::null(); PAIR];
                for (p, room) in decoded.chunks_exact_mut(cut.chunk).take(PAIR).enumerate() {
                    let next = if at + 1 < cut.chunks() * pairs { place(at + 1, p) } else { None };
                    if let Some(place) = place(at, p) {
                        from[p] = weights(&place, next, room);
                    }
                }
                let chunk = at / pairs;
                let last = chunk + 1 == cut.chunks();
                // A single four stays in the tiles from chunk to chunk.
                let stays = pairs * twos == 1 && !cut.apart;
                let begin = match chunk {
                    _ if chunk == 0 || cut.apart => Begin::Zero,
                    _ if stays => Begin::Stay,
                    _ => Begin::Load,
                };
                for (i, two) in pieces(block.clone(), PAIR).enumerate() {
                    let sums = &mut kept[at % pairs * twos + i];
                    let four =
                        Meeting { groups: &groups, two, weights: from, steps: cut.steps(chunk) };
                    // SAFETY: the tiles are configured; the weights are those of all steps.
                    unsafe { four.run::<SIGNED>(begin, !stays || last, sums) };
                    if cut.apart || last {
                        four.each_tile(sums, |p, rows, sums| {
                            take(panels.start + at % pairs * PAIR + p, chunk, rows, sums);
                        });
                    }
                }
            }
        }
    }
}

/// A range in pieces of `size`, the last one perhaps smaller.
fn pieces(range: Range<usize>, size: usize) -> impl Iterator<Item = Range<usize>> {
    range.clone().step_by(size).map(move |at| at..range.end.min(at + size))
}

/// The buffer of sums as whole fours.
fn as_fours(sums: &mut [i32]) -> &mut [Four] {
    let rows: &mut [[i32; ROWS]] = sums.as_chunks_mut().0;
    let tiles: &mut [Sums] = rows.as_chunks_mut().0;
    let pairs: &mut [[Sums; PAIR]] = tiles.as_chunks_mut().0;
    pairs.as_chunks_mut().0
}

/// Activation rows in groups of 16. The last group reaches back into the one before it, so that all
/// are whole; only where there are fewer rows than that is it smaller, and so are the tiles.
struct Groups<'a> {
    x: &'a Quantized<'a>,
}

impl Groups<'_> {
    fn count(&self) -> usize {
        self.x.rows().div_ceil(ROWS)
    }

    /// A group's first row.
    fn start(&self, group: usize) -> usize {
        (group * ROWS).min(self.x.rows().saturating_sub(ROWS))
    }

    /// The rows that are in no group before it.
    fn own(&self, group: usize) -> Range<usize> {
        group * ROWS..((group + 1) * ROWS).min(self.x.rows())
    }

    /// A group's activations from a step on.
    fn activations(&self, group: usize, step: usize) -> *const u8 {
        let row = &self.x.values[self.start(group) * self.x.stride..];
        row[step * ROW_BYTES..].as_ptr().cast()
    }
}

/// Where tiles of sums begin.
#[derive(Clone, Copy)]
enum Begin {
    Zero,
    /// With what is in the tiles.
    Stay,
    /// With what was stored.
    Load,
}

/// Up to two groups × up to two panels, over the steps of a chunk.
struct Meeting<'a> {
    groups: &'a Groups<'a>,
    two: Range<usize>,
    /// Each panel's tiles; null for none.
    weights: [*const Weights; PAIR],
    steps: Range<usize>,
}

impl Meeting<'_> {
    /// # Safety
    /// [`Tiles`] are there, and `weights` are those of all steps.
    #[inline(always)]
    unsafe fn run<const SIGNED: bool>(&self, begin: Begin, ends: bool, sums: &mut Four) {
        // SAFETY: the caller's promise.
        unsafe {
            match (self.two.len(), self.weights[1].is_null()) {
                (1, true) => self.multiply::<1, 1, SIGNED>(begin, ends, sums),
                (1, false) => self.multiply::<1, 2, SIGNED>(begin, ends, sums),
                (_, true) => self.multiply::<2, 1, SIGNED>(begin, ends, sums),
                (_, false) => self.multiply::<2, 2, SIGNED>(begin, ends, sums),
            }
        }
    }

    /// `G` groups × `P` panels: their sums are in the tiles 0 to 3, activations in 4 and 5, weights
    /// in 6 and 7.
    ///
    /// # Safety
    /// As [`Meeting::run`].
    unsafe fn multiply<const G: usize, const P: usize, const SIGNED: bool>(
        &self,
        begin: Begin,
        ends: bool,
        sums: &mut Four,
    ) {
        let [[s0, s1], [s2, s3]] = sums;
        let x: [*const u8; PAIR] = std::array::from_fn(|g| {
            self.groups.activations(self.two.start + g.min(G - 1), self.steps.start)
        });
        let stride = self.groups.x.stride;
        // SAFETY: tiles are configured. Activations: all rows of a group are rows of `x`, and its
        // stride has room for whole steps. Weights: the caller's promise.
        unsafe {
            match begin {
                Begin::Stay => {}
                Begin::Zero => {
                    tiles::zero::<0>();
                    tiles::zero::<1>();
                    tiles::zero::<2>();
                    tiles::zero::<3>();
                }
                Begin::Load => {
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
                tiles::multiply::<0, 4, 6, SIGNED>();
                if P == 2 {
                    tiles::load::<7>(self.weights[1].add(step).cast(), ROW_BYTES);
                    tiles::multiply::<1, 4, 7, SIGNED>();
                }
                if G == 2 {
                    tiles::load::<5>(x[1].add(step * ROW_BYTES), stride);
                    tiles::multiply::<2, 5, 6, SIGNED>();
                }
                if G == 2 && P == 2 {
                    tiles::multiply::<3, 5, 7, SIGNED>();
                }
            }
            if !ends {
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

    /// Calls `take(panel of the pair, rows, sums)` for every tile, with the rows that are in no group
    /// before.
    #[inline(always)]
    fn each_tile(&self, sums: &Four, mut take: impl FnMut(usize, Range<usize>, &[[i32; ROWS]])) {
        for (group, sums) in self.two.clone().zip(sums) {
            let (rows, start) = (self.groups.own(group), self.groups.start(group));
            for (p, sums) in sums.iter().enumerate().filter(|(p, _)| !self.weights[*p].is_null()) {
                take(p, rows.clone(), &sums[rows.start - start..rows.end - start]);
            }
        }
    }
}
