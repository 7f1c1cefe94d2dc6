//! Two-pass (coarse-to-fine) logits: a *screened* output head.
//!
//! Decoding one token reads as many bytes of the head as of two thirds of all layers, yet only a few
//! of 100,000 logits matter. The first pass uses the upper four bits of each weight, half of the bytes.
//! It selects the panels of 16 tokens with the largest logits, one in 32. The second pass computes
//! these panels exactly, with all bits. The difference between both passes estimates the noise. While
//! the noise allows another panel to have the largest logit, the second pass repeats with twice as many
//! panels.
//!
//! The other tokens keep their coarse logits. Where one of these is above the smallest of the refined
//! panels, all coarse logits are lowered by the same amount. A row's logits depend on that row alone.
//!
//! The most likely token has an exact logit if the noise is similar in all panels;
//! `docs/performance.md` has measurements.

use super::inputs::{Exec, Inputs};
use crate::format::Linear;
use crate::loader::WeightLoader;
use crate::matrix::{Matrix, SplitMatrix};
use crate::mem::AlignedVec;
use crate::par::Chunks;
use crate::ternary::PANEL_ROWS;
use std::ops::Range;

/// One panel of this many is refined.
const SHARE: usize = 32;
/// Smallest number of refined panels.
const LEAST: usize = 64;
/// Number of panels from which a head is screened. A smaller one would still read five sixths of it.
const WORTH_PANELS: usize = 3 * LEAST;

/// A panel may have the largest logit if its coarse one is less than this many times the noise below.
/// The noise is the root mean square difference of both passes in the refined panels.
const MARGIN: f32 = 4.0;

/// Splits a head into two planes, if its kind allows that and it is large enough to gain from it.
pub(super) fn split(head: &Matrix, loader: &mut WeightLoader<'_, '_>) -> Option<SplitMatrix> {
    let split = match head {
        _ if head.rows() < WORTH_PANELS * PANEL_ROWS => return None,
        Matrix::Int8(w) => SplitMatrix::repacked(w, loader),
        Matrix::Split(w) => w.relocate(loader),
        Matrix::Ternary(_) | Matrix::Float(_) => return None,
    };
    (!split.is_exact()).then_some(split)
}

/// Bytes of a screened head that one token reads, at least.
pub(super) fn bytes(w: &SplitMatrix) -> usize {
    let (upper, both) = w.bytes();
    let panels = w.view().rows().div_ceil(PANEL_ROWS);
    upper + both / panels * refined(panels)
}

/// Number of panels that are refined at first, of `panels` in total.
fn refined(panels: usize) -> usize {
    (panels / SHARE).max(LEAST).min(panels)
}

/// Buffers of two-pass logits.
#[derive(Default)]
pub(super) struct HeadScreen {
    rows: Vec<RowScreen>,
    /// Panels that any row has chosen, ascending.
    chosen: Vec<u32>,
    /// Their exact logits, `[panels][rows][16]`.
    exact: AlignedVec<f32>,
}

impl HeadScreen {
    /// Runs the second pass. `logits` is `[rows][vocab_size]`, from the upper plane of `head`, with its
    /// bias.
    pub fn refine(
        &mut self,
        exec: &mut Exec<'_, '_>,
        inputs: &Inputs,
        head: &Linear,
        logits: &mut [f32],
    ) {
        let width = head.weight.rows();
        let (count, kernels) = (logits.len() / width, exec.kernels);
        self.rows.resize_with(count.max(self.rows.len()), RowScreen::default);
        let rows = &mut self.rows[..count];
        let pairs = (Chunks::new(logits, width), Chunks::new(rows, 1));
        exec.scope.chunks(count, count > 1, pairs, |_, (logits, row), _| row[0].begin(logits));

        let size = count * PANEL_ROWS;
        let tokens = |panel: u32| {
            let first = panel as usize * PANEL_ROWS;
            first..width.min(first + PANEL_ROWS)
        };
        let chosen = &mut self.chosen;
        while rows.iter().any(|row| !row.chosen().is_empty()) {
            chosen.clear();
            rows.iter().for_each(|row| chosen.extend_from_slice(row.chosen()));
            chosen.sort_unstable();
            chosen.dedup();
            self.exact.grow(chosen.len() * size);
            let out = Chunks::new(&mut self.exact, size);
            exec.scope.chunks(chosen.len(), true, out, |i, out, scratch| {
                inputs.panel(kernels, head, chosen[i] as usize, out, scratch);
                let Some(bias) = &head.bias else { return };
                let bias = &bias[tokens(chosen[i])];
                let out = out.chunks_exact_mut(PANEL_ROWS);
                out.for_each(|row| (kernels.add)(&mut row[..bias.len()], bias));
            });
            let pairs = (Chunks::new(logits, width), Chunks::new(rows, 1));
            exec.scope.chunks(count, count > 1, pairs, |i, (logits, row), _| {
                row[0].accept(logits, |panel| {
                    let at = chosen.binary_search(&panel).expect("a row's panels are among all");
                    let tokens = tokens(panel);
                    let exact = &self.exact[at * size + i * PANEL_ROWS..][..tokens.len()];
                    (tokens, exact)
                });
            });
        }
    }
}

/// Choice of a row's panels to refine.
#[derive(Default)]
struct RowScreen {
    /// Largest coarse logit of each panel.
    largest: Vec<f32>,
    /// All panels, the chosen ones first and ascending.
    order: Vec<u32>,
    /// Number of chosen panels; 0 once the logits are final.
    kept: usize,
    /// Largest coarse logit of all other panels.
    rest: f32,
}

impl RowScreen {
    fn begin(&mut self, logits: &[f32]) {
        self.largest.clear();
        self.largest.extend(logits.chunks(PANEL_ROWS).map(top));
        self.order.clear();
        self.order.extend(0..self.largest.len() as u32);
        self.choose(refined(self.largest.len()));
    }

    /// Chooses the `count` panels with the largest logits; of equal ones the first.
    fn choose(&mut self, count: usize) {
        self.kept = count.min(self.order.len());
        self.rest = f32::NEG_INFINITY;
        if self.kept < self.order.len() {
            let of = |panel: u32| self.largest[panel as usize];
            let order = |a: &u32, b: &u32| of(*b).total_cmp(&of(*a)).then(a.cmp(b));
            let (_, next, _) = self.order.select_nth_unstable_by(self.kept, order);
            self.rest = of(*next);
        }
        self.order[..self.kept].sort_unstable();
    }

    fn chosen(&self) -> &[u32] {
        &self.order[..self.kept]
    }

    /// Takes over the exact logits of the chosen panels; `of` returns a panel's tokens and their
    /// logits. If another panel may have the largest logit, chooses twice as many panels instead.
    fn accept<'e>(&mut self, logits: &mut [f32], of: impl Fn(u32) -> (Range<usize>, &'e [f32])) {
        if self.kept == 0 {
            return;
        }
        let (mut best, mut least) = (f32::NEG_INFINITY, f32::INFINITY);
        let (mut squares, mut count) = (0f32, 0);
        for (tokens, exact) in self.chosen().iter().map(|&panel| of(panel)) {
            (best, least) = (best.max(top(exact)), least.min(top(exact)));
            let off = logits[tokens].iter().zip(exact).map(|(a, b)| a - b);
            for off in off.filter(|off| off.is_finite()) {
                (squares, count) = (squares + off * off, count + 1);
            }
        }
        let noise = (squares / count.max(1) as f32).sqrt();
        if best < self.rest + MARGIN * noise {
            return self.choose(2 * self.kept);
        }
        // Lowered and not cut off: grammars choose among unlikely tokens, too.
        let excess = (self.rest - least).max(0.0);
        logits.iter_mut().for_each(|logit| *logit -= excess);
        for (tokens, exact) in self.chosen().iter().map(|&panel| of(panel)) {
            logits[tokens].copy_from_slice(exact);
        }
        self.kept = 0;
    }
}

/// The largest logit of a panel, ignoring NaN.
fn top(panel: &[f32]) -> f32 {
    let larger = |a: f32, b: f32| if b > a { b } else { a };
    let Ok(mut all) = <[f32; PANEL_ROWS]>::try_from(panel) else {
        return panel.iter().fold(f32::NEG_INFINITY, |a, &b| larger(a, b));
    };
    // Comparing halves lets the compiler use vectors.
    for half in [8, 4, 2, 1] {
        for i in 0..half {
            all[i] = larger(larger(f32::NEG_INFINITY, all[i]), all[i + half]);
        }
    }
    all[0]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Logits of ten panels; the last one has 13 tokens.
    fn logits() -> Vec<f32> {
        let mut logits = vec![0f32; 10 * PANEL_ROWS - 3];
        for (at, value) in [(5, 3.0), (40, 7.0), (150, 2.0), (151, f32::NAN), (20, -9.0)] {
            logits[at] = value;
        }
        logits
    }

    #[test]
    fn the_panels_with_the_largest_logits_are_chosen() {
        let mut row = RowScreen::default();
        row.begin(&logits());
        for (count, want, rest) in [
            (3, &[0, 2, 9][..], 0.0),
            (2, &[0, 2], 2.0),
            (5, &[0, 1, 2, 3, 9], 0.0),
            (99, &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9], f32::NEG_INFINITY),
        ] {
            row.choose(count);
            assert_eq!((row.chosen(), row.rest), (want, rest));
        }
    }

    #[test]
    fn more_are_chosen_where_another_could_be_the_largest() {
        let exact = vec![5.0; 10 * PANEL_ROWS];
        let of = |panel: u32| {
            let tokens = panel as usize * PANEL_ROWS
                ..(10 * PANEL_ROWS - 3).min((panel as usize + 1) * PANEL_ROWS);
            (tokens.clone(), &exact[tokens])
        };
        let (mut row, mut found) = (RowScreen::default(), logits());
        found[151] = 0.0;
        row.begin(&found);
        row.choose(1);
        // The chosen panel's exact logits are 5.0, far off the coarse ones, so another may be larger.
        let before = found.clone();
        row.accept(&mut found, of);
        assert_eq!((row.chosen(), &found), (&[0, 2][..], &before));
        while row.kept > 0 {
            row.accept(&mut found, of);
        }
        assert!(found.iter().all(|&logit| logit == 5.0), "all were needed");
    }

    #[test]
    fn nan_is_not_the_largest() {
        let mut panel = [f32::NAN; PANEL_ROWS];
        assert_eq!(top(&panel), f32::NEG_INFINITY);
        panel[3] = -1.0;
        assert_eq!((top(&panel), top(&panel[..5])), (-1.0, -1.0));
    }
}
