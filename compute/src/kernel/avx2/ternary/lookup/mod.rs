//! Ternary × int8 for large batches, by table.
//!
//! Four ternary weights have 81 values. For every four columns the 81 sums Σ w·q are computed once
//! for a tile of 16 or 32 activation rows, one row in each 16-bit lane; each weight row then adds the
//! sums that its codes name: one addition with a memory operand for 64 multiply-adds, where
//! `vpmaddubsw` and `vpaddw` take two instructions for 32. (T-MAC, arXiv 2407.00088, looks up sums
//! of activations too, with weight rows in the lanes.)
//!
//! A core's loads bound this, so a weight row's sums are fetched once for eight tables, and the row's
//! eight places in them are a single load.
//!
//! Sums of 16 bits widen before they can overflow, whatever the weights: when Σ |q| of some
//! activation row since the last time would exceed 32,767. That is after 7 periods of 32 columns at the
//! worst; ordinary activations are seldom near their row's largest, and last much longer.

mod places;
mod sums;
mod tables;

use super::Walk;
use crate::mem::AlignedVec;
use crate::par::Columns;
use crate::ternary::{BLOCK_COLS, PANEL_ROWS};
pub use places::{Order, Places, Room, Word};
use std::arch::x86_64::*;
use std::ops::Range;
use sums::State;
pub use tables::Tables;

/// Quads of columns that are looked up together.
pub const QUADS: usize = 8;
/// Values of four ternary weights.
const VALUES: usize = 81;
/// Activation rows in a vector.
const LANES: usize = 16;
/// Vectors of a tile at most.
pub const VECTORS: usize = 2;
/// Activation rows of a tile at most.
pub const TILE: usize = VECTORS * LANES;
/// Tiles that are walked together.
const TILES: usize = 16;
/// Panels that share a table at most, and words of places that are found at a time: with the panels' 16-bit
/// sums they stay in the second-level cache.
const PANELS: usize = 160;
const WORDS: usize = 12;

/// Sums of a weight row with a tile.
pub type Sums<const V: usize> = [[i16; LANES]; V];

/// How a set of instructions reads a layout of codes.
#[derive(Clone, Copy)]
pub struct Reader {
    pub order: &'static Order,
    /// Writes the places of a panel in some periods; `false` where it has a fourth code.
    pub locate: unsafe fn(&Walk<'_>, usize, Range<usize>, &mut Room<'_>) -> bool,
    /// Adds to each weight row's sums with a whole tile the entries that it names.
    pub add: unsafe fn(&Tables<VECTORS>, &[Places], &mut [Sums<VECTORS>]),
}

/// Two bits, with AVX2.
pub const TWO_BIT: Reader =
    Reader { order: &places::TWO_BIT, locate: places::two_bit, add: add::<VECTORS> };

/// Buffers of [`lookup`].
pub struct Buffers<'s> {
    /// `[word][row]`.
    pub places: &'s mut AlignedVec<u8>,
    pub tables: &'s mut AlignedVec<i16>,
    /// Sums, `[tile][row][activation row]`.
    pub narrow: &'s mut AlignedVec<i16>,
    pub exact: &'s mut AlignedVec<i32>,
    pub totals: &'s mut AlignedVec<f32>,
}

/// Cuts panels into shares that [`lookup`] takes.
pub fn shares(panels: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let shares = panels.len().div_ceil(PANELS);
    let begin = move |i: usize| panels.start + panels.len() * i / shares;
    (0..shares).map(move |i| begin(i)..begin(i + 1))
}

/// Products of `panels`, a share of some, with the activation rows `rows`, in tiles from the first on.
/// Returns `false`, with nothing done, where there are no rows, the panels hold the fourth code or
/// periods would straddle groups.
///
/// # Safety
/// The CPU has what `reader`'s functions need.
#[target_feature(enable = "avx2,fma,f16c")]
pub unsafe fn lookup(
    walk: &Walk<'_>,
    reader: &Reader,
    panels: Range<usize>,
    rows: Range<usize>,
    y: &mut Columns<'_>,
    buffers: &mut Buffers<'_>,
) -> bool {
    let columns = walk.group_blocks * BLOCK_COLS;
    let whole = walk.groups == 1 || columns.is_multiple_of(reader.order.cols);
    let stripes = rows.clone().step_by(TILES * TILE);
    let mut stripes = stripes.map(|row| row..rows.end.min(row + TILES * TILE));
    // Weights that the first stripe could read, all can.
    whole
        && !rows.is_empty()
        && stripes.all(|rows| {
            let product = Product { walk, reader, panels: panels.clone(), rows };
            // SAFETY: the caller's promise.
            unsafe { product.run(y, buffers) }
        })
}

/// Some panels and the activation rows of at most [`TILES`] tiles.
struct Product<'a> {
    walk: &'a Walk<'a>,
    reader: &'a Reader,
    panels: Range<usize>,
    rows: Range<usize>,
}

impl Product<'_> {
    /// Weight rows.
    fn weights(&self) -> usize {
        self.panels.len() * PANEL_ROWS
    }

    fn tiles(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let rows = self.rows.clone();
        rows.clone().step_by(TILE).map(move |row| row..rows.end.min(row + TILE))
    }

    /// The periods of group `g`.
    fn periods(&self, g: usize) -> Range<usize> {
        let Walk { blocks, group_blocks, .. } = *self.walk;
        let (from, to) = (g * group_blocks, ((g + 1) * group_blocks).min(blocks));
        let period = self.reader.order.cols / BLOCK_COLS;
        from / period..to.div_ceil(period)
    }

    /// # Safety
    /// As [`lookup`].
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn run(&self, y: &mut Columns<'_>, buffers: &mut Buffers<'_>) -> bool {
        let sums = self.tiles().count() * self.weights() * TILE;
        buffers.narrow.grow(sums);
        buffers.narrow[..sums].fill(0);
        buffers.exact.grow(sums);
        buffers.totals.grow(if self.walk.groups == 1 { PANEL_ROWS * TILE } else { sums });
        buffers.tables.grow(QUADS * VALUES * TILE);
        let mut states = [State::default(); TILES];
        let words = self.reader.order.words.len();
        for g in 0..self.walk.groups {
            let periods = self.periods(g);
            for first in periods.clone().step_by(WORDS / words) {
                let periods = first..periods.end.min(first + WORDS / words);
                // SAFETY: the caller's promise.
                if !unsafe { self.locate(periods.clone(), buffers.places) } {
                    return false;
                }
                for (tile, state) in self.tiles().enumerate().zip(&mut states) {
                    let periods = periods.clone();
                    match tile.1.len() {
                        // SAFETY: every CPU that is here has AVX2.
                        ..=LANES => unsafe { self.extend(tile, periods, state, buffers, add::<1>) },
                        // SAFETY: the caller's promise.
                        _ => unsafe { self.extend(tile, periods, state, buffers, self.reader.add) },
                    }
                }
            }
            for (tile, state) in self.tiles().enumerate().zip(&mut states) {
                match tile.1.len() {
                    ..=LANES => self.finish::<1>(tile, g, state, buffers, y),
                    _ => self.finish::<VECTORS>(tile, g, state, buffers, y),
                }
            }
        }
        true
    }

    /// Writes the places of all panels in some periods; returns `false` where there is a fourth code.
    ///
    /// # Safety
    /// As [`lookup`].
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn locate(&self, periods: Range<usize>, places: &mut AlignedVec<u8>) -> bool {
        let words = periods.len() * self.reader.order.words.len();
        let stride = self.stride();
        places.grow(words * stride * size_of::<Word>());
        let out = bytemuck::cast_slice_mut(&mut places[..words * stride * size_of::<Word>()]);
        let mut room = Room { out, stride, panel: 0 };
        let mut fine = true;
        for (p, panel) in self.panels.clone().enumerate() {
            room.panel = p;
            // SAFETY: the caller's promise.
            fine &= unsafe { (self.reader.locate)(self.walk, panel, periods.clone(), &mut room) };
        }
        fine
    }

    /// Panels from one word of places to the next.
    fn stride(&self) -> usize {
        self.panels.len() | 1
    }

    /// Adds what some periods make to the sums of the `t`-th tile.
    ///
    /// # Safety
    /// The CPU has what `add` needs; [`Product::locate`] has written the places.
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn extend<const V: usize>(
        &self,
        (t, tile): (usize, Range<usize>),
        periods: Range<usize>,
        state: &mut State,
        buffers: &mut Buffers<'_>,
        add: unsafe fn(&Tables<V>, &[Places], &mut [Sums<V>]),
    ) {
        let weights = self.weights();
        let narrow = part(buffers.narrow, t, weights);
        let exact = part(buffers.exact, t, weights);
        let entries: &mut [Sums<V>] = part(buffers.tables, 0, QUADS * VALUES);
        let tables: &mut Tables<V> = &mut entries.as_chunks_mut().0.as_chunks_mut().0[0];
        let places = bytemuck::cast_slice::<_, Places>(buffers.places);
        let mut words = places.chunks(self.stride() * PANEL_ROWS);
        let mut x = [[_mm256_setzero_si256(); V]; places::MOST_COLS];
        for period in periods {
            let order = self.reader.order;
            let magnitudes = tables::transpose(self.walk, &tile, (order, period), &mut x);
            state.raise(&magnitudes, narrow, exact);
            for (quads, places) in order.words.iter().zip(&mut words) {
                tables::tabulate(&x, quads, tables);
                // SAFETY: the caller's promise.
                unsafe { add(tables, &places[..weights], narrow) };
            }
        }
    }

    /// Scales the sums of the `t`-th tile in group `g`, and stores them after the last group.
    #[target_feature(enable = "avx2,fma,f16c")]
    fn finish<const V: usize>(
        &self,
        (t, tile): (usize, Range<usize>),
        g: usize,
        state: &mut State,
        buffers: &mut Buffers<'_>,
        y: &mut Columns<'_>,
    ) {
        let weights = self.weights();
        let narrow = part(buffers.narrow, t, weights);
        let exact = part(buffers.exact, t, weights);
        // Of a single group they are read at once, and stay in the first-level cache.
        let totals = match self.walk.groups {
            1 => part(buffers.totals, 0, PANEL_ROWS),
            _ => part(buffers.totals, t, weights),
        };
        state.finish::<V>(self.walk, g, (self.panels.clone(), tile), (narrow, exact, totals), y);
    }
}

/// What the `t`-th tile has of a buffer, `[row][vector][lane]`: it begins where whole tiles would.
fn part<T, const V: usize>(buffer: &mut [T], t: usize, rows: usize) -> &mut [[[T; LANES]; V]] {
    let vectors = buffer[t * rows * TILE..].as_chunks_mut().0;
    &mut vectors.as_chunks_mut().0[..rows]
}

/// Adds to each weight row's sums the entries that it names. Out of line, for its registers' sake.
#[inline(never)]
#[target_feature(enable = "avx2,fma,f16c")]
fn add<const V: usize>(tables: &Tables<V>, places: &[Places], narrow: &mut [Sums<V>]) {
    for (places, narrow) in places.iter().zip(narrow) {
        let mut sums: [__m256i; V] = narrow.map(bytemuck::must_cast);
        let word = u64::from_le_bytes(*places);
        for (i, table) in tables.iter().enumerate() {
            let place = (word >> (8 * i)) & 0xFF;
            // SAFETY: `locate` has refused all codes that make a place beyond the 81st entry.
            let entry = unsafe { table.get_unchecked(place as usize) };
            for v in 0..V {
                sums[v] = _mm256_add_epi16(sums[v], bytemuck::must_cast(entry[v]));
            }
        }
        *narrow = sums.map(bytemuck::must_cast);
    }
}
