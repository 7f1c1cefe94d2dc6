//! Moves ternary matrices to the memory that kernels read, and into another layout.

use super::{BLOCK_COLS, Layout, PANEL_ROWS, Scales, TernaryMatrix, tight};
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
        for (share, part) in shares.iter().zip(&mut parts) {
            let panels = share.end.min(end).saturating_sub(share.start.max(begin));
            if panels > 0 {
                let codes = codes.split_off(..panels * from).expect("of each panel");
                let out = out.split_off_mut(..panels * to).expect("for each panel");
                part.push(PanelConversion {
                    panels,
                    layouts: (w.layout, layout),
                    group_blocks: (w.group_blocks(w.layout), w.group_blocks(layout)),
                    codes,
                    out,
                    fits,
                });
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
        Layout::TwoBit => true,
    };
    let bytes = TernaryMatrix::layout_bytes(layout, (w.rows, w.cols), w.scales.group(w.cols))?;
    moves.then(|| WeightVec::try_zeroed(bytes)).flatten()
}

/// Converts some panels of a matrix from one layout to another, or copies them.
struct PanelConversion<'a> {
    panels: usize,
    layouts: (Layout, Layout),
    /// Blocks of a group in both layouts.
    group_blocks: (usize, usize),
    codes: &'a [u8],
    out: &'a mut [u8],
    /// False once a code of the matrix does not fit the layout.
    fits: &'a AtomicBool,
}

impl PanelConversion<'_> {
    fn run(&mut self, staging: &mut StagingBuffer<'_>) {
        let (from, to) = (self.codes.len() / self.panels, self.out.len() / self.panels);
        let (group_from, group_to) = self.group_blocks;
        let convert = |from: &[u8], to: &mut [u8]| match self.layouts.1 {
            Layout::Tight => {
                let (from, to) = (from.as_chunks().0, to.as_chunks_mut().0);
                let groups = from.chunks(group_from).zip(to.chunks_mut(group_to));
                groups.for_each(|(from, to)| tight::pack(from, to));
            }
            Layout::TwoBit => {
                let (from, to) = (from.as_chunks().0, to.as_chunks_mut().0);
                let groups = from.chunks(group_from).zip(to.chunks_mut(group_to));
                groups.for_each(|(from, to)| tight::unpack(from, to));
            }
        };
        if self.layouts.0 == self.layouts.1 {
            return staging.source.read(self.codes, self.out);
        }
        let codes = staging.fetch(self.codes);
        if self.layouts.1 == Layout::Tight && tight::has_fourth(codes) {
            self.fits.store(false, Ordering::Relaxed);
        }
        let panels = codes.chunks_exact(from).zip(self.out.chunks_exact_mut(to));
        panels.for_each(|(from, to)| convert(from, to));
    }
}
