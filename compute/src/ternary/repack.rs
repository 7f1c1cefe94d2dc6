//! Ternary matrices on their way to where kernels read them, and into another layout.

use super::{Layout, PANEL_ROWS, Scales, TernaryMatrix, tight};
use crate::loader::{StagingBuffer, WeightLoader};
use crate::mem::WeightVec;
use std::borrow::Borrow;
use std::sync::atomic::{AtomicBool, Ordering};

/// Matrices that a product reads side by side, from where their codes are to where they shall stand, in a
/// layout; `None` for each that does not fit it ([`TernaryMatrix::in_layout`]) or that memory has no room
/// for. What is in the layout and does not leave its place is shared, not copied.
pub fn repacked(
    group: &[impl Borrow<TernaryMatrix>],
    layout: Layout,
    loader: &mut WeightLoader<'_, '_>,
) -> Vec<Option<TernaryMatrix>> {
    let group: Vec<&TernaryMatrix> = group.iter().map(Borrow::borrow).collect();
    let mut rooms: Vec<_> = group.iter().map(|w| room(w, layout, loader)).collect();
    let fit: Vec<_> = group.iter().map(|_| AtomicBool::new(true)).collect();

    let total = group.iter().map(|w| panels(w)).sum();
    let bytes = group.iter().map(|w| w.codes.len() / panels(w).max(1)).max();
    let shares: Vec<_> = loader.shares(total, bytes.unwrap_or(0)).collect();
    // Of each share what it has of each matrix.
    let mut parts: Vec<Vec<Piece<'_>>> = shares.iter().map(|_| Vec::new()).collect();
    let mut first = 0;
    for ((w, room), fits) in group.iter().zip(&mut rooms).zip(&fit) {
        let (begin, end) = (first, first + panels(w));
        first = end;
        let Some(room) = room.as_deref_mut().filter(|room| !room.is_empty()) else { continue };
        let (mut codes, mut out) = (&w.codes[..], room);
        let (from, to) = (codes.len() / panels(w), out.len() / panels(w));
        for (share, part) in shares.iter().zip(&mut parts) {
            let panels = share.end.min(end).saturating_sub(share.start.max(begin));
            if panels > 0 {
                let codes = codes.split_off(..panels * from).expect("of each panel");
                let out = out.split_off_mut(..panels * to).expect("for each panel");
                part.push(Piece { panels, layouts: (w.layout, layout), codes, out, fits });
            }
        }
    }
    loader.run(parts, |part, hands| part.iter_mut().for_each(|piece| piece.loader(hands)));

    let made = group.iter().zip(rooms).zip(fit).map(|((w, room), fits)| {
        let codes = match room {
            Some(room) => fits.into_inner().then(|| room.into_bytes())?,
            None if layout == w.layout => w.codes.clone(),
            None => return None,
        };
        Some(TernaryMatrix { layout, codes, scales: w.scales.relocate(loader), ..**w })
    });
    made.collect()
}

impl TernaryMatrix {
    /// The same where it is to stand.
    #[must_use]
    pub fn relocate(&self, loader: &mut WeightLoader<'_, '_>) -> Self {
        repacked(&[self], self.layout, loader).pop().flatten().expect("it is in this layout")
    }
}

fn panels(w: &TernaryMatrix) -> usize {
    w.rows.div_ceil(PANEL_ROWS)
}

/// Memory for a matrix that leaves its place, if there is any; none for one that stays or never fits.
fn room(w: &TernaryMatrix, layout: Layout, loader: &WeightLoader<'_, '_>) -> Option<WeightVec<u8>> {
    let one_scale = matches!(w.scales, Scales::Tensor(_));
    let moves = match layout {
        _ if layout == w.layout => loader.must_copy(&w.codes),
        Layout::Tight => one_scale && w.cols <= tight::MOST_COLS,
        Layout::TwoBit => true,
    };
    let bytes = TernaryMatrix::layout_bytes(layout, w.rows, w.cols)?;
    moves.then(|| WeightVec::try_zeroed(bytes)).flatten()
}

/// Some panels of a matrix, from one layout to another or the same.
struct Piece<'a> {
    panels: usize,
    layouts: (Layout, Layout),
    codes: &'a [u8],
    out: &'a mut [u8],
    /// Whether all codes of the matrix fit the layout, as far as they have been seen.
    fits: &'a AtomicBool,
}

impl Piece<'_> {
    fn loader(&mut self, hands: &mut StagingBuffer<'_>) {
        let (from, to) = (self.codes.len() / self.panels, self.out.len() / self.panels);
        let convert = match self.layouts {
            (from, to) if from == to => return hands.origin.read(self.codes, self.out),
            (_, Layout::Tight) => |from: &[u8], to: &mut [u8]| {
                tight::pack(from.as_chunks().0, to.as_chunks_mut().0);
            },
            (_, Layout::TwoBit) => |from: &[u8], to: &mut [u8]| {
                tight::unpack(from.as_chunks().0, to.as_chunks_mut().0);
            },
        };
        let codes = hands.fetch(self.codes);
        if self.layouts.1 == Layout::Tight && tight::has_fourth(codes) {
            self.fits.store(false, Ordering::Relaxed);
        }
        let panels = codes.chunks_exact(from).zip(self.out.chunks_exact_mut(to));
        panels.for_each(|(from, to)| convert(from, to));
    }
}
