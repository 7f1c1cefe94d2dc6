//! In which layout the ternary matrices of the layers stand: two bits a weight, or the tight one with a
//! sixth less to read where memory is what decoding waits for.

use super::inputs::Inputs;
use super::{Model, Runtime, work};
use crate::format::Linear;
use crate::matrix::Matrix;
use crate::mem::AlignedVec;
use crate::par::{Bound, Chunks};
use crate::ternary::{Layout, TernaryMatrix};
use std::hint::black_box;

/// Bytes of ternary matrices up to which caches may hold them from token to token: there is nothing to
/// gain, and decoding bits costs more.
const CACHED: usize = 48 << 20;
/// Bytes of them that are measured: more than most caches hold.
const SAMPLE: usize = 160 << 20;
/// The best of so many passes counts.
const PASSES: usize = 4;

impl Model {
    /// The same model with its ternary matrices in a layout, as far as they fit it
    /// ([`TernaryMatrix::in_layout`]) and the kernels read it. Matrices that change get memory of their
    /// own.
    #[must_use]
    pub fn in_layout(mut self, layout: Layout, runtime: &Runtime) -> Self {
        let layout = if runtime.kernels.reads(layout) { layout } else { Layout::TwoBit };
        let mut matrices: Vec<&mut TernaryMatrix> = self.weights.ternary_mut().collect();
        let count = matrices.len();
        runtime.team.run(Bound::Arithmetic, |crew| {
            let chunks = Chunks::new(&mut matrices, 1);
            crew.chunks(count, true, chunks, |_, matrix, _| matrix[0].set_layout(layout));
        });
        self.work = work(&self.weights, &self.head, self.screened);
        self
    }

    /// The same model in the layout that decodes faster here: products with its matrices are measured
    /// where they are more than caches hold. `now` tells the time in seconds, from any beginning.
    #[must_use]
    pub fn in_fastest_layout(self, runtime: &Runtime, now: impl Fn() -> f64) -> Self {
        let layout =
            if self.is_faster_tight(runtime, now) { Layout::Tight } else { Layout::TwoBit };
        self.in_layout(layout, runtime)
    }

    /// The same model in two bits where its matrices stand in a layout that the kernels do not read:
    /// products with those are right, but come from the scalar definition and take many times as long.
    #[must_use]
    pub fn readable(self, runtime: &Runtime) -> Self {
        match self.is_tight() && !runtime.kernels.reads(Layout::Tight) {
            true => self.in_layout(Layout::TwoBit, runtime),
            false => self,
        }
    }

    /// Whether ternary matrices stand in the tight layout: some may, and others not fit it.
    pub fn is_tight(&self) -> bool {
        let tight = |m: &Matrix| matches!(m, Matrix::Ternary(w) if w.layout() == Layout::Tight);
        self.matrices().any(tight)
    }

    fn is_faster_tight(&self, runtime: &Runtime, now: impl Fn() -> f64) -> bool {
        let bytes: usize = self.ternary().map(|(_, w)| two_bits(w)).sum();
        if bytes < CACHED || !runtime.kernels.reads(Layout::Tight) {
            return false;
        }
        let mut left = SAMPLE;
        let fits = self.ternary().map_while(|(linear, w)| {
            left = left.checked_sub(two_bits(w))?;
            let other = |layout| w.in_layout(layout).map(|w| with(linear, w));
            Some((other(Layout::TwoBit)?, other(Layout::Tight)?))
        });
        let (plain, tight): (Vec<Linear>, Vec<Linear>) = fits.unzip();
        let mut best = [f64::INFINITY; 2];
        // By turns, so that what disturbs one disturbs the other.
        for _ in 0..PASSES {
            for (linears, best) in [&plain, &tight].into_iter().zip(&mut best) {
                let begin = now();
                pass(linears, runtime);
                *best = best.min(now() - begin);
            }
        }
        best[1] < best[0]
    }

    fn ternary(&self) -> impl Iterator<Item = (&Linear, &TernaryMatrix)> {
        let linears = self.weights.layers.iter().flat_map(|layer| layer.linears());
        linears.filter_map(|linear| match &linear.weight {
            Matrix::Ternary(w) => Some((linear, w)),
            _ => None,
        })
    }
}

/// Bytes of a matrix's codes in two bits.
fn two_bits(w: &TernaryMatrix) -> usize {
    TernaryMatrix::code_bytes(w.rows(), w.cols()).unwrap_or(usize::MAX)
}

/// A layer with other weights and no bias.
fn with(linear: &Linear, w: TernaryMatrix) -> Linear {
    Linear { weight: Matrix::Ternary(w), bias: None, activations: linear.activations }
}

/// The product of each with a row, as decoding takes them.
fn pass(linears: &[Linear], runtime: &Runtime) {
    let (mut inputs, mut out) = (Inputs::default(), AlignedVec::default());
    runtime.team.run(Bound::Memory, |crew| {
        let k = &runtime.kernels;
        for linear in linears {
            let width = linear.weight.cols();
            let row = |_, row: &mut [f32], ()| row.iter_mut().for_each(|x| *x = 1.0);
            inputs.fill((crew, k), (1, width), &[linear], (), row);
            inputs.product((crew, k), &[linear], &mut out);
            black_box(&out);
        }
    });
}
