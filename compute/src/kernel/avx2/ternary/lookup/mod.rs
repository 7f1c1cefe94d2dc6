//! Ternary × int8 for large batches, by lookup table.
//!
//! Four ternary weights (a quad) have 81 values. For every four columns, the 81 sums Σ w·q are computed
//! once for a tile of 16 or 32 activation rows, one row in each 16-bit lane. Each weight row then adds
//! the sums that its codes select. That is one addition with a memory operand for 64 multiply-adds,
//! where `vpmaddubsw` and `vpaddw` take two instructions for 32. (T-MAC, arXiv 2407.00088, looks up sums
//! of activations too, with weight rows in the lanes.)
//!
//! The loads of a core limit this. So a weight row's sums are loaded once for eight tables, and the
//! row's eight table indices are a single load.
//!
//! 16-bit sums are widened before they can overflow, whatever the weights: when Σ |q| of some activation
//! row since the last time would exceed 32,767. That takes at least 7 periods of 32 columns, and with
//! ordinary activations many more.

mod indices;
mod sums;
mod tables;

use super::{Avx2, TernaryArgs};
use crate::kernel::simd::by_token;
use crate::mem::AlignedVec;
use crate::par::Columns;
use crate::ternary::{BLOCK_COLS, PANEL_ROWS};
pub use indices::{IndexBuf, IndexWord, PanelIndices, QuadOrder, TWO_BIT};
use std::arch::x86_64::*;
use std::ops::Range;
use sums::OverflowTracker;
pub use tables::Tables;

/// Number of quads of columns that are looked up together.
pub const QUADS: usize = 8;
/// Number of values of four ternary weights.
const VALUES: usize = 81;
/// Number of activation rows in a vector.
const LANES: usize = 16;
/// Most vectors of a tile.
pub const VECTORS: usize = 2;
/// Most activation rows of a tile.
pub const TILE: usize = VECTORS * LANES;
/// Number of tiles that are processed together.
const TILES: usize = 16;
/// Most panels that share a table. Their indices and 16-bit sums stay in the second-level cache.
const PANELS: usize = 160;
/// Number of index words per weight row that are encoded at a time.
pub const WORDS: usize = 12;

/// 16-bit sums of a weight row with a tile.
pub type Sums<const V: usize> = [[i16; LANES]; V];

/// A layout of codes, as an instruction set looks it up.
pub trait Lookup {
    /// Returns the order of columns in index words.
    fn order(&self) -> &'static QuadOrder {
        &TWO_BIT
    }
    /// Writes the indices of a panel in some periods; returns false if it has the fourth code.
    fn encode_indices(
        &self,
        args: &TernaryArgs<'_>,
        panel: usize,
        periods: Range<usize>,
        buf: &mut IndexBuf<'_>,
    ) -> bool;
    /// Adds to each weight row's sums with a whole tile the table entries that its indices select.
    fn add(&self, tables: &Tables<VECTORS>, indices: &[IndexWord], narrow: &mut [Sums<VECTORS>]);
}

/// The two-bit layout.
impl Lookup for Avx2 {
    fn encode_indices(
        &self,
        args: &TernaryArgs<'_>,
        panel: usize,
        periods: Range<usize>,
        buf: &mut IndexBuf<'_>,
    ) -> bool {
        by_token!(self, indices::encode_two_bit(args, panel, periods, buf))
    }

    fn add(&self, tables: &Tables<VECTORS>, indices: &[IndexWord], narrow: &mut [Sums<VECTORS>]) {
        by_token!(self, add(tables, indices, narrow));
    }
}

/// Buffers of [`lookup`].
pub struct LookupBuffers<'s> {
    /// [`IndexWord`]s, `[word][row]`.
    pub indices: &'s mut AlignedVec<u8>,
    pub tables: &'s mut AlignedVec<i16>,
    /// 16-bit sums, `[tile][row][activation row]`.
    pub narrow: &'s mut AlignedVec<i16>,
    pub exact: &'s mut AlignedVec<i32>,
    pub totals: &'s mut AlignedVec<f32>,
}

/// Splits panels into blocks for [`lookup`].
pub fn panel_blocks(panels: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let blocks = panels.len().div_ceil(PANELS);
    let begin = move |i: usize| panels.start + panels.len() * i / blocks;
    (0..blocks).map(move |i| begin(i)..begin(i + 1))
}

/// Multiplies `panels`, a block of [`panel_blocks`], with the activation rows `rows`, in tiles from the
/// first on. Returns false, with nothing done, if there are no rows, the panels have the fourth code or
/// a period would cross a group boundary.
#[target_feature(enable = "avx2,fma,f16c")]
pub fn lookup(
    args: &TernaryArgs<'_>,
    ops: &dyn Lookup,
    panels: Range<usize>,
    rows: Range<usize>,
    y: &mut Columns<'_>,
    buffers: &mut LookupBuffers<'_>,
) -> bool {
    let columns = args.group_blocks * BLOCK_COLS;
    let whole = args.groups == 1 || columns.is_multiple_of(ops.order().cols);
    let stripes = rows.clone().step_by(TILES * TILE);
    let mut stripes = stripes.map(|row| row..rows.end.min(row + TILES * TILE));
    // If the first stripe succeeds, all do, because they read the same weights.
    whole
        && !rows.is_empty()
        && stripes.all(|rows| {
            let product = LookupProduct { args, ops, panels: panels.clone(), rows };
            product.run(y, buffers)
        })
}

/// Product of some panels with the activation rows of at most [`TILES`] tiles.
struct LookupProduct<'a> {
    args: &'a TernaryArgs<'a>,
    ops: &'a dyn Lookup,
    panels: Range<usize>,
    rows: Range<usize>,
}

impl LookupProduct<'_> {
    /// Number of weight rows.
    fn weights(&self) -> usize {
        self.panels.len() * PANEL_ROWS
    }

    fn tiles(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let rows = self.rows.clone();
        rows.clone().step_by(TILE).map(move |row| row..rows.end.min(row + TILE))
    }

    /// Returns the periods of group `g`.
    fn periods(&self, g: usize) -> Range<usize> {
        let Range { start, end } = self.args.group(g);
        let period = self.ops.order().cols / BLOCK_COLS;
        start / period..end.div_ceil(period)
    }

    #[target_feature(enable = "avx2,fma,f16c")]
    fn run(&self, y: &mut Columns<'_>, buffers: &mut LookupBuffers<'_>) -> bool {
        let sums = self.tiles().count() * self.weights() * TILE;
        buffers.narrow.grow(sums);
        buffers.narrow[..sums].fill(0);
        buffers.exact.grow(sums);
        buffers.totals.grow(if self.args.groups == 1 { PANEL_ROWS * TILE } else { sums });
        buffers.tables.grow(QUADS * VALUES * TILE);
        let mut trackers = [OverflowTracker::default(); TILES];
        let words = self.ops.order().words.len();
        for g in 0..self.args.groups {
            let periods = self.periods(g);
            for first in periods.clone().step_by(WORDS / words) {
                let periods = first..periods.end.min(first + WORDS / words);
                if !self.encode_indices(periods.clone(), buffers.indices) {
                    return false;
                }
                for (tile, tracker) in self.tiles().enumerate().zip(&mut trackers) {
                    let periods = periods.clone();
                    match tile.1.len() {
                        ..=LANES => self.accumulate(tile, periods, tracker, buffers, |t, i, n| {
                            add::<1>(t, i, n);
                        }),
                        _ => self.accumulate(tile, periods, tracker, buffers, |t, i, n| {
                            self.ops.add(t, i, n);
                        }),
                    }
                }
            }
            for (tile, tracker) in self.tiles().enumerate().zip(&mut trackers) {
                match tile.1.len() {
                    ..=LANES => self.finish::<1>(tile, g, tracker, buffers, y),
                    _ => self.finish::<VECTORS>(tile, g, tracker, buffers, y),
                }
            }
        }
        true
    }

    /// Writes the indices of all panels in some periods; returns false if there is a fourth code.
    #[target_feature(enable = "avx2,fma,f16c")]
    fn encode_indices(&self, periods: Range<usize>, indices: &mut AlignedVec<u8>) -> bool {
        let words = periods.len() * self.ops.order().words.len();
        let stride = self.stride();
        indices.grow(words * stride * size_of::<PanelIndices>());
        let out =
            bytemuck::cast_slice_mut(&mut indices[..words * stride * size_of::<PanelIndices>()]);
        let mut buf = IndexBuf { out, stride, panel: 0 };
        let mut valid = true;
        for (p, panel) in self.panels.clone().enumerate() {
            buf.panel = p;
            valid &= self.ops.encode_indices(self.args, panel, periods.clone(), &mut buf);
        }
        valid
    }

    /// Number of panels from one index word of a row to the next. Odd, because otherwise all words of a
    /// panel would fall into a few cache sets.
    fn stride(&self) -> usize {
        self.panels.len() | 1
    }

    /// Adds the products of some periods, whose indices [`LookupProduct::encode_indices`] has written, to
    /// the sums of the `t`-th tile.
    #[target_feature(enable = "avx2,fma,f16c")]
    fn accumulate<const V: usize>(
        &self,
        (t, tile): (usize, Range<usize>),
        periods: Range<usize>,
        tracker: &mut OverflowTracker,
        buffers: &mut LookupBuffers<'_>,
        add: impl Fn(&Tables<V>, &[IndexWord], &mut [Sums<V>]),
    ) {
        let weights = self.weights();
        let narrow = tile_slice(buffers.narrow, t, weights);
        let exact = tile_slice(buffers.exact, t, weights);
        let entries: &mut [Sums<V>] = tile_slice(buffers.tables, 0, QUADS * VALUES);
        let tables: &mut Tables<V> = &mut entries.as_chunks_mut().0.as_chunks_mut().0[0];
        let indices = bytemuck::cast_slice::<_, IndexWord>(buffers.indices);
        let mut words = indices.chunks(self.stride() * PANEL_ROWS);
        let mut x = [[_mm256_setzero_si256(); V]; indices::MOST_COLS];
        for period in periods {
            let order = self.ops.order();
            let magnitudes = tables::transpose(self.args, &tile, (order, period), &mut x);
            tracker.reserve(&magnitudes, narrow, exact);
            for (quads, indices) in order.words.iter().zip(&mut words) {
                tables::tabulate(&x, quads, tables);
                add(tables, &indices[..weights], narrow);
            }
        }
    }

    /// Scales the sums of the `t`-th tile in group `g`, and stores them after the last group.
    #[target_feature(enable = "avx2,fma,f16c")]
    fn finish<const V: usize>(
        &self,
        (t, tile): (usize, Range<usize>),
        g: usize,
        tracker: &mut OverflowTracker,
        buffers: &mut LookupBuffers<'_>,
        y: &mut Columns<'_>,
    ) {
        let weights = self.weights();
        let narrow = tile_slice(buffers.narrow, t, weights);
        let exact = tile_slice(buffers.exact, t, weights);
        // With a single group they are read at once and stay in the first-level cache.
        let totals = match self.args.groups {
            1 => tile_slice(buffers.totals, 0, PANEL_ROWS),
            _ => tile_slice(buffers.totals, t, weights),
        };
        tracker.finish::<V>(self.args, g, (self.panels.clone(), tile), (narrow, exact, totals), y);
    }
}

/// Returns the part of a buffer that belongs to the `t`-th tile, `[row][vector][lane]`. Each tile has the
/// space of a whole one.
fn tile_slice<T, const V: usize>(
    buffer: &mut [T],
    t: usize,
    rows: usize,
) -> &mut [[[T; LANES]; V]] {
    let vectors = buffer[t * rows * TILE..].as_chunks_mut().0;
    &mut vectors.as_chunks_mut().0[..rows]
}

/// Adds to each weight row's sums the table entries that its indices select. Not inlined, so that the
/// compiler keeps the sums in registers.
#[inline(never)]
#[target_feature(enable = "avx2,fma,f16c")]
fn add<const V: usize>(tables: &Tables<V>, indices: &[IndexWord], narrow: &mut [Sums<V>]) {
    for (indices, narrow) in indices.iter().zip(narrow) {
        let mut sums: [__m256i; V] = narrow.map(bytemuck::must_cast);
        let word = u64::from_le_bytes(*indices);
        for (i, table) in tables.iter().enumerate() {
            let index = (word >> (8 * i)) & 0xFF;
            // SAFETY: `encode_indices` has rejected codes whose index would exceed the table.
            let entry = unsafe { table.get_unchecked(index as usize) };
            for v in 0..V {
                sums[v] = _mm256_add_epi16(sums[v], bytemuck::must_cast(entry[v]));
            }
        }
        *narrow = sums.map(bytemuck::must_cast);
    }
}
