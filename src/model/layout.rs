//! How the weights of a model stand: the ternary matrices of its layers in two bits, or in the tight
//! layout with a sixth less to read where memory is what decoding waits for; the head whole or in planes.

use super::inputs::Inputs;
use super::{Model, Runtime, screen, work};
use crate::format::{LayerWeights, Linear};
use crate::loader::{InMemory, WeightLoader, WeightSource};
use crate::matrix::Matrix;
use crate::mem::AlignedVec;
use crate::par::Bound;
use crate::ternary::{Layout, TernaryMatrix, repack};
use std::hint::black_box;

/// Bytes of ternary matrices up to which caches may hold them from token to token: there is nothing to
/// gain, and decoding bits costs more.
const CACHED: usize = 48 << 20;
/// Bytes of them, in two bits, that are measured, and so many more for each worker of the thread pool. In both
/// layouts, which take turns, they are nearly twice as many: more than the caches of these cores hold.
const SAMPLE: usize = 88 << 20;
const SAMPLE_EACH: usize = 4 << 20;
/// So often the two are measured; the one that is faster more often is the faster one.
const TURNS: usize = 9;

impl Model {
    /// The same model with its ternary matrices in a layout, as far as they fit it
    /// ([`TernaryMatrix::in_layout`]) and the kernels read it, and with a screened head if that is asked
    /// for ([`Self::screened`]). The matrices that a product reads side by side go together from their
    /// origin to where they stay: beside the model, memory holds at most these. Each worker of the thread pool
    /// that decodes writes what it reads of them.
    #[must_use]
    pub fn arranged(
        mut self,
        layout: Layout,
        screened: bool,
        runtime: &Runtime,
        origin: &dyn WeightSource,
    ) -> Self {
        let layout = if runtime.kernels.reads(layout) { layout } else { Layout::TwoBit };
        runtime.thread_pool.run(Bound::Memory, |scope| {
            let loader = &mut WeightLoader::new(scope, origin);
            self.arrange_head(screened, loader);
            let layers = self.weights.layers.iter_mut();
            for group in layers.flat_map(LayerWeights::groups_mut) {
                arrange_group(group, layout, loader);
            }
        });
        self.work = work(&self.weights, &self.head, self.screened);
        self
    }

    /// The same model with its ternary matrices in a layout, as far as they fit it and the kernels read
    /// it. Matrices that change get memory of their own.
    #[must_use]
    pub fn in_layout(self, layout: Layout, runtime: &Runtime) -> Self {
        let screened = self.screened;
        self.arranged(layout, screened, runtime, &InMemory)
    }

    /// The same model with a screened head: four bits of its weights decide which tokens deserve exact
    /// logits, and the others' are close. For int8 heads of large vocabularies, and those of six bits;
    /// others stay as they are.
    #[must_use]
    pub fn screened(mut self) -> Self {
        self.arrange_head(true, &mut WeightLoader::alone());
        self.work = work(&self.weights, &self.head, self.screened);
        self
    }

    fn arrange_head(&mut self, screened: bool, loader: &mut WeightLoader<'_, '_>) {
        let head = &self.head.weight;
        let split = screened.then(|| screen::split(head, loader)).flatten().map(Matrix::Split);
        self.screened = split.is_some();
        self.head.weight = split.unwrap_or_else(|| head.relocate(loader));
        // Two copies of a head would be half a model more.
        match &mut self.weights.head {
            Some(head) => {
                head.weight = self.head.weight.clone();
                self.weights.embed = self.weights.embed.relocate(loader);
            }
            None => self.weights.embed = self.head.weight.clone(),
        }
    }

    /// The layout in which the model decodes faster here: products with its matrices are measured where
    /// they are more than caches hold. `now` tells the time in seconds, from any beginning.
    pub fn fastest_layout(
        &self,
        runtime: &Runtime,
        origin: &dyn WeightSource,
        now: impl Fn() -> f64,
    ) -> Layout {
        let bytes: usize = self.ternary().map(|(_, w)| two_bits(w)).sum();
        if bytes < CACHED || !runtime.kernels.reads(Layout::Tight) {
            return Layout::TwoBit;
        }
        let [plain, tight] =
            [Layout::TwoBit, Layout::Tight].map(|layout| self.sample(layout, runtime, origin));
        let both = plain.len().min(tight.len());
        let seconds = |linears: &[Linear]| {
            let begin = now();
            pass(&linears[..both], runtime);
            now() - begin
        };
        // By turns, each of which decides alone: what memory gives changes from one to the next.
        let is_faster_tight = |_: &usize| seconds(&plain) > seconds(&tight);
        match (0..TURNS).filter(is_faster_tight).count() > TURNS / 2 {
            true => Layout::Tight,
            false => Layout::TwoBit,
        }
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

    /// The first matrices in a layout, as far as they fit it.
    fn sample(&self, layout: Layout, runtime: &Runtime, origin: &dyn WeightSource) -> Vec<Linear> {
        let mut left = SAMPLE + SAMPLE_EACH * runtime.thread_pool.threads();
        runtime.thread_pool.run(Bound::Arithmetic, |scope| {
            let loader = &mut WeightLoader::new(scope, origin);
            let sample = self.ternary().map_while(|(linear, w)| {
                left = left.checked_sub(two_bits(w))?;
                Some(with(linear, repack(&[w], layout, loader).pop()??))
            });
            sample.collect()
        })
    }

    fn ternary(&self) -> impl Iterator<Item = (&Linear, &TernaryMatrix)> {
        let linears = self.weights.layers.iter().flat_map(|layer| layer.linears());
        linears.filter_map(|linear| match &linear.weight {
            Matrix::Ternary(w) => Some((linear, w)),
            _ => None,
        })
    }
}

/// Brings matrices that a product reads side by side to where they stay.
fn arrange_group(group: Vec<&mut Linear>, layout: Layout, loader: &mut WeightLoader<'_, '_>) {
    let ternary = |linear: &Linear| match &linear.weight {
        Matrix::Ternary(w) => Some(w.clone()),
        _ => None,
    };
    let matrices: Vec<_> = group.iter().filter_map(|linear| ternary(linear)).collect();
    let mut carried = repack(&matrices, layout, loader).into_iter();
    for linear in group {
        let fits = matches!(linear.weight, Matrix::Ternary(_)).then(|| carried.next()).flatten();
        linear.weight = match fits.flatten() {
            Some(w) => Matrix::Ternary(w),
            None => linear.weight.relocate(loader),
        };
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
    runtime.thread_pool.run(Bound::Memory, |scope| {
        let k = &runtime.kernels;
        for linear in linears {
            let width = linear.weight.cols();
            let row = |_, row: &mut [f32], ()| row.iter_mut().for_each(|x| *x = 1.0);
            inputs.fill((scope, k), (1, width), &[linear], (), row);
            inputs.product((scope, k), &[linear], &mut out);
            black_box(&out);
        }
    });
}
