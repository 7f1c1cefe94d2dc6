//! The screened head: which tokens of a large vocabulary deserve exact logits.
//!
//! The head is as much of what decoding a token reads as two thirds of all layers, and of 100,000
//! logits a few matter. So a first product takes the upper four bits of each weight, half of the bytes;
//! the panels of 16 tokens with the largest results, one in 32, are multiplied once more with all
//! eight, and the other tokens keep their first value. What a row gets depends on nothing but the row.
//!
//! What is left out is uniform noise: with weights of 8 bits that are distributed normally and whose
//! largest is at 4 σ, a seventh of the logits' own spread. The largest logit of 128,256 stands 4.3
//! spreads above the mean, what is refined begins at 2.9: ten times the noise away.

use super::inputs::Inputs;
use crate::format::Linear;
use crate::kernel::Kernels;
use crate::matrix::{Matrix, SplitMatrix};
use crate::mem::AlignedVec;
use crate::par::{Chunks, Crew};
use crate::ternary::PANEL_ROWS;

/// One panel in so many gets exact logits, and at least so many.
const SHARE: usize = 32;
const LEAST: usize = 64;
/// Panels from which a head is screened: with fewer, five sixths of it are read all the same.
const WORTH_PANELS: usize = 3 * LEAST;

/// A head in two planes, if it is int8 and so large that screening pays.
pub(super) fn split(head: &Matrix) -> Option<Matrix> {
    match head {
        Matrix::Int8(w) if w.rows() >= WORTH_PANELS * PANEL_ROWS => {
            Some(Matrix::Split(SplitMatrix::new(w)))
        }
        _ => None,
    }
}

/// Bytes of the head that a token reads.
pub(super) fn bytes(w: &SplitMatrix) -> usize {
    let (upper, both) = w.bytes();
    let panels = w.rows().div_ceil(PANEL_ROWS);
    upper + if w.is_exact() { 0 } else { both / panels * refined(panels) }
}

/// How many of so many panels get exact logits.
fn refined(panels: usize) -> usize {
    (panels / SHARE).max(LEAST).min(panels)
}

/// Buffers of the screening.
#[derive(Default)]
pub(super) struct Screen {
    /// The largest logit of each panel, `[rows][panels]`.
    largest: AlignedVec<f32>,
    /// Each row's panels, the chosen ones first and ascending, `[rows][panels]`.
    order: AlignedVec<u32>,
    /// The panels that some row has chosen, ascending.
    chosen: Vec<u32>,
    /// Their exact logits, `[panels][rows][16]`.
    exact: AlignedVec<f32>,
}

impl Screen {
    /// Makes the logits exact that promise most: `logits` is `[rows][vocab_size]`, from the upper
    /// plane of `head`, with its bias.
    pub fn refine(
        &mut self,
        (crew, k): (&mut Crew<'_>, &Kernels),
        inputs: &Inputs,
        head: &Linear,
        logits: &mut [f32],
    ) {
        let (width, panels) = (head.weight.rows(), head.weight.rows().div_ceil(PANEL_ROWS));
        let (rows, kept) = (logits.len() / width, refined(panels));
        self.largest.grow(rows * panels);
        self.order.grow(rows * panels);
        let buffers =
            (Chunks::new(&mut self.largest, panels), Chunks::new(&mut self.order, panels));
        let source = (Chunks::new(logits, width), buffers);
        crew.chunks(rows, rows > 1, source, |_, (logits, (largest, order)), _| {
            choose(logits, kept, largest, order);
        });

        let Self { order, chosen, exact, .. } = self;
        let of_row = |row: usize| &order[row * panels..][..kept];
        chosen.clear();
        (0..rows).for_each(|row| chosen.extend_from_slice(of_row(row)));
        if rows > 1 {
            chosen.sort_unstable();
            chosen.dedup();
        }
        let size = rows * PANEL_ROWS;
        exact.grow(chosen.len() * size);
        crew.chunks(chosen.len(), true, Chunks::new(exact, size), |i, out, scratch| {
            inputs.panel(k, head, chosen[i] as usize, out, scratch);
        });

        for (row, logits) in logits.chunks_exact_mut(width).enumerate() {
            let mut at = 0;
            for &panel in of_row(row) {
                at += chosen[at..].partition_point(|&p| p < panel);
                let exact = &exact[at * size + row * PANEL_ROWS..][..PANEL_ROWS];
                let first = panel as usize * PANEL_ROWS;
                let end = width.min(first + PANEL_ROWS);
                let logits = &mut logits[first..end];
                logits.copy_from_slice(&exact[..end - first]);
                if let Some(bias) = &head.bias {
                    (k.add)(logits, &bias[first..end]);
                }
            }
        }
    }
}

/// Puts the `kept` panels with the largest logits first in `order`, ascending; of equal ones those that
/// come first.
fn choose(logits: &[f32], kept: usize, largest: &mut [f32], order: &mut [u32]) {
    for (largest, panel) in largest.iter_mut().zip(logits.chunks(PANEL_ROWS)) {
        *largest = top(panel);
    }
    (0..).zip(order.iter_mut()).for_each(|(i, panel)| *panel = i);
    if kept < order.len() {
        let of = |panel: u32| largest[panel as usize];
        order.select_nth_unstable_by(kept, |&a, &b| of(b).total_cmp(&of(a)).then(a.cmp(&b)));
    }
    order[..kept].sort_unstable();
}

/// The largest of a panel's logits; what is no number does not count.
fn top(panel: &[f32]) -> f32 {
    let larger = |a: f32, b: f32| if b > a { b } else { a };
    let Ok(mut all) = <[f32; PANEL_ROWS]>::try_from(panel) else {
        return panel.iter().fold(f32::NEG_INFINITY, |a, &b| larger(a, b));
    };
    // By halves, which is vectors.
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

    #[test]
    fn the_panels_with_the_largest_logits_are_chosen() {
        let mut logits = vec![0f32; 10 * PANEL_ROWS - 3];
        for (at, value) in [(5, 3.0), (40, 7.0), (150, 2.0), (151, f32::NAN), (20, -9.0)] {
            logits[at] = value;
        }
        let (mut largest, mut order) = ([0f32; 10], [0u32; 10]);
        choose(&logits, 3, &mut largest, &mut order);
        assert_eq!(order[..3], [0, 2, 9]);
        choose(&logits, 5, &mut largest, &mut order);
        assert_eq!(order[..5], [0, 1, 2, 3, 9], "of equal ones the first");
        choose(&logits, 10, &mut largest, &mut order);
        assert_eq!(order, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    }

    #[test]
    fn what_is_no_number_is_not_the_largest() {
        let mut panel = [f32::NAN; PANEL_ROWS];
        assert_eq!(top(&panel), f32::NEG_INFINITY);
        panel[3] = -1.0;
        assert_eq!((top(&panel), top(&panel[..5])), (-1.0, -1.0));
    }
}
