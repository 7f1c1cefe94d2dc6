//! Moves ternary matrices to the memory that kernels read, and into another layout.

use super::{BLOCK_BYTES, BLOCK_COLS, Layout, PANEL_ROWS, Scales, TernaryMatrix, one_bit, tight};
use crate::loader::{StagingBuffer, WeightLoader};
use crate::mem::WeightVec;
use std::borrow::Borrow;
use std::sync::atomic::{AtomicBool, Ordering};

/// Loads matrices that are multiplied together, in `layout`.
///
/// A matrix becomes `None` if it does not fit the layout ([`TernaryMatrix::in_layout`]) or memory has
/// no room for it. A matrix that is in the layout already and may stay is shared, not copied.
pub fn repack(
    group: &[impl Borrow<TernaryMatrix>],
    layout: Layout,
    loader: &mut WeightLoader<'_, '_>,
) -> Vec<Option<TernaryMatrix>> {
    let group: Vec<&TernaryMatrix> = group.iter().map(Borrow::borrow).collect();
    let mut outputs: Vec<_> = group.iter().map(|w| output(w, layout, loader)).collect();
    let fit: Vec<_> = group.iter().map(|_| AtomicBool::new(true)).collect();

    let total = group.iter().map(|w| panels(w)).sum();
    let bytes = group.iter().map(|w| w.codes.len() / panels(w).max(1)).max();
    let shares: Vec<_> = loader.shares(total, bytes.unwrap_or(0)).collect();
    // For each share, the panels that it has of each matrix.
    let mut parts: Vec<Vec<PanelConversion<'_>>> = shares.iter().map(|_| Vec::new()).collect();
    let mut first = 0;
    for ((w, output), fits) in group.iter().zip(&mut outputs).zip(&fit) {
        let (begin, end) = (first, first + panels(w));
        first = end;
        let Some(output) = output.as_deref_mut().filter(|o| !o.is_empty()) else { continue };
        let (mut codes, mut out) = (&w.codes[..], output);
        let (from, to) = (codes.len() / panels(w), out.len() / panels(w));
        let mut rows = w.rows;
        for (share, part) in shares.iter().zip(&mut parts) {
            let panels = share.end.min(end).saturating_sub(share.start.max(begin));
            if panels > 0 {
                let codes = codes.split_off(..panels * from).expect("of each panel");
                let out = out.split_off_mut(..panels * to).expect("for each panel");
                part.push(PanelConversion { w, rows, panels, layout, codes, out, fits });
                rows = rows.saturating_sub(panels * PANEL_ROWS);
            }
        }
    }
    loader.run(parts, |part, staging| part.iter_mut().for_each(|panels| panels.run(staging)));

    let repacked = group.iter().zip(outputs).zip(fit).map(|((w, output), fits)| {
        let codes = match output {
            Some(output) => fits.into_inner().then(|| output.into_bytes())?,
            None if layout == w.layout => w.codes.clone(),
            None => return None,
        };
        Some(TernaryMatrix { layout, codes, scales: w.scales.relocate(loader), ..**w })
    });
    repacked.collect()
}

impl TernaryMatrix {
    /// Loads the matrix in its layout.
    #[must_use]
    pub fn relocate(&self, loader: &mut WeightLoader<'_, '_>) -> Self {
        repack(&[self], self.layout, loader).pop().flatten().expect("it is in this layout")
    }
}

fn panels(w: &TernaryMatrix) -> usize {
    w.rows.div_ceil(PANEL_ROWS)
}

/// Allocates memory for a matrix that moves. Returns `None` for one that stays, cannot fit the layout,
/// or does not fit memory.
fn output(
    w: &TernaryMatrix,
    layout: Layout,
    loader: &WeightLoader<'_, '_>,
) -> Option<WeightVec<u8>> {
    let small_groups = matches!(&w.scales, Scales::Groups(g) if g.size() == BLOCK_COLS);
    let moves = match layout {
        _ if layout == w.layout => loader.must_copy(&w.codes),
        Layout::Tight => w.cols <= tight::MOST_COLS && !small_groups,
        Layout::OneBit => one_bit::takes(w.cols, &w.scales),
        Layout::TwoBit => true,
    };
    let bytes = TernaryMatrix::layout_bytes(layout, (w.rows, w.cols), w.scales.group(w.cols))?;
    moves.then(|| WeightVec::try_zeroed(bytes)).flatten()
}

/// Converts some panels of a matrix from one layout to another, or copies them.
struct PanelConversion<'a> {
    w: &'a TernaryMatrix,
    /// Number of rows of the matrix from the first panel on.
    rows: usize,
    panels: usize,
    layout: Layout,
    codes: &'a [u8],
    out: &'a mut [u8],
    /// False once a code of the matrix does not fit the layout.
    fits: &'a AtomicBool,
}

type TwoBitBlock = [u8; BLOCK_BYTES];

impl PanelConversion<'_> {
    fn run(&mut self, staging: &mut StagingBuffer<'_>) {
        if self.w.layout == self.layout {
            return staging.source.read(self.codes, self.out);
        }
        let (from, to) = (self.codes.len() / self.panels, self.out.len() / self.panels);
        let codes = staging.fetch(self.codes);
        let panels = codes.chunks_exact(from).zip(self.out.chunks_exact_mut(to));
        let mut between = Vec::new();
        for ((from, to), row) in panels.zip((0..).step_by(PANEL_ROWS)) {
            let rows = (self.rows - row).min(PANEL_ROWS);
            let fits = match (self.w.layout, self.layout) {
                (Layout::TwoBit, _) => pack(self.w, self.layout, from.as_chunks().0, to, rows),
                (_, Layout::TwoBit) => unpack(self.w, from, to.as_chunks_mut().0, rows),
                _ => {
                    between.resize(self.w.cols.div_ceil(BLOCK_COLS), [0; BLOCK_BYTES]);
                    unpack(self.w, from, &mut between, rows)
                        && pack(self.w, self.layout, &between, to, rows)
                }
            };
            if !fits {
                return self.fits.store(false, Ordering::Relaxed);
            }
        }
    }
}

/// Packs a panel of two-bit codes with `rows` rows. Returns false if they do not fit the layout.
fn pack(
    w: &TernaryMatrix,
    layout: Layout,
    codes: &[TwoBitBlock],
    out: &mut [u8],
    rows: usize,
) -> bool {
    match layout {
        Layout::TwoBit => out.copy_from_slice(codes.as_flattened()),
        Layout::Tight => {
            if tight::has_fourth(codes.as_flattened()) {
                return false;
            }
            let blocks = (w.group_blocks(Layout::TwoBit), w.group_blocks(Layout::Tight));
            let groups = out.as_chunks_mut().0.chunks_mut(blocks.1);
            codes.chunks(blocks.0).zip(groups).for_each(|(from, to)| tight::pack(from, to));
        }
        Layout::OneBit => {
            if !one_bit::fits(codes, rows) {
                return false;
            }
            one_bit::pack(codes, out.as_chunks_mut().0);
        }
    }
    true
}

/// Unpacks a panel with `rows` rows to two-bit codes; returns true.
fn unpack(w: &TernaryMatrix, codes: &[u8], out: &mut [TwoBitBlock], rows: usize) -> bool {
    match w.layout {
        Layout::TwoBit => out.as_flattened_mut().copy_from_slice(codes),
        Layout::Tight => {
            let blocks = (w.group_blocks(Layout::Tight), w.group_blocks(Layout::TwoBit));
            let groups = codes.as_chunks().0.chunks(blocks.0);
            groups.zip(out.chunks_mut(blocks.1)).for_each(|(from, to)| tight::unpack(from, to));
        }
        Layout::OneBit => {
            one_bit::unpack(codes.as_chunks().0, w.cols, 0..out.len(), out);
            one_bit::pad(out, rows);
        }
    }
    true
}
