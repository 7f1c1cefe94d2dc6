//! Layout of a model's weights. Ternary matrices take two bits per weight, or the tight layout, which
//! reads a sixth less and so is faster where memory bounds decoding. Matrices without zeros take one bit.
//! The head is whole or in planes.

use super::inputs::{Exec, Fill, Inputs};
use super::profile::{Phase, Profile};
use super::{Model, Runtime, screen, work};
use crate::format::{Activations, LayerWeights, Linear, Mixer};
use crate::kernel::Kernels;
use crate::loader::{InMemory, WeightLoader, WeightSource};
use crate::matrix::Matrix;
use crate::mem::AlignedVec;
use crate::par::Bound;
use crate::ternary::{Layout, TernaryMatrix, repack};
use std::hint::black_box;

/// Bytes of ternary matrices that caches may hold from token to token. Up to here a narrow layout
/// gains nothing and costs more to decode.
const CACHED: usize = 48 << 20;
/// Bytes of two-bit matrices that are timed, plus [`SAMPLE_EACH`] per thread. With the copies in the
/// narrow layout, that is more than the caches hold.
const SAMPLE: usize = 88 << 20;
const SAMPLE_EACH: usize = 4 << 20;
/// Number of measurements of both layouts; the majority decides.
const TURNS: usize = 9;

impl Model {
    /// Converts ternary matrices to a layout, where they fit it ([`TernaryMatrix::in_layout`]) and the
    /// kernels read it, and brings all weights from their source to their final memory. `screened`
    /// also enables two-pass logits ([`Self::with_screened_head`]).
    ///
    /// Matrices that one product reads side by side are converted together, so memory holds no more
    /// than these twice. Each worker writes the weights that it will read when decoding.
    #[must_use]
    pub fn repack(
        mut self,
        layout: Layout,
        screened: bool,
        runtime: &Runtime,
        source: &dyn WeightSource,
    ) -> Self {
        let layout = if runtime.kernels.reads(layout) { layout } else { Layout::TwoBit };
        runtime.thread_pool.run(Bound::Memory, |scope| {
            let loader = &mut WeightLoader::new(scope, source);
            self.repack_head(Some(layout), screened, loader);
            let layers = self.weights.layers.iter_mut();
            let mtp = self.weights.mtp.iter_mut().flat_map(|mtp| mtp.groups_mut());
            for group in layers.flat_map(LayerWeights::groups_mut).chain(mtp) {
                repack_group(group, layout, &runtime.kernels, loader);
            }
            if let Some(embed) = self.weights.mtp.as_mut().and_then(|mtp| mtp.embed.as_mut()) {
                *embed = embed.relocate(loader);
            }
        });
        self.work = work(&self.spec, &self.weights, &self.head, self.screened);
        self
    }

    /// Converts the ternary matrices to a layout, where they fit it and the kernels read it. Converted
    /// matrices get their own memory; the others stay views.
    #[must_use]
    pub fn with_layout(self, layout: Layout, runtime: &Runtime) -> Self {
        let screened = self.screened;
        self.repack(layout, screened, runtime, &InMemory)
    }

    /// Enables two-pass logits: four bits of the head's weights select the tokens that get exact
    /// logits, and the other logits are close. Applies to int8 and six-bit heads of large
    /// vocabularies; other heads stay as they are.
    #[must_use]
    pub fn with_screened_head(mut self) -> Self {
        self.repack_head(None, true, &mut WeightLoader::alone());
        self.work = work(&self.spec, &self.weights, &self.head, self.screened);
        self
    }

    /// Quantizes the inputs of the layers' large matrices to 8 bits, also of those that were trained with
    /// more. Those get a scale per group of columns where the weights have groups. The head keeps its
    /// 15 bits: it is computed for few rows, and its errors reach the logits undamped. So do the decays
    /// of linear attention, whose errors add up over a text.
    #[must_use]
    pub fn with_int8_activations(self) -> Self {
        self.with_int8_inputs(|_| true)
    }

    /// As [`with_int8_activations`](Self::with_int8_activations), for matrices in a rotated basis alone.
    /// Their inputs have no outliers, so 8 bits change little.
    #[must_use]
    pub fn with_int8_rotated_activations(self) -> Self {
        self.with_int8_inputs(|linear| linear.rotation.is_some())
    }

    fn with_int8_inputs(mut self, applies: impl Fn(&Linear) -> bool) -> Self {
        let mtp = self.weights.mtp.as_mut().map(|mtp| &mut mtp.layer);
        for layer in self.weights.layers.iter_mut().chain(mtp) {
            let decays = match &layer.mixer {
                Mixer::Attention(_) => None,
                Mixer::Linear(w) => Some([w.alpha.activations, w.beta.activations]),
            };
            for linear in layer.groups_mut().flatten().filter(|linear| applies(linear)) {
                linear.activations = int8(linear);
            }
            if let (Mixer::Linear(w), Some(decays)) = (&mut layer.mixer, decays) {
                [w.alpha.activations, w.beta.activations] = decays;
            }
        }
        self
    }

    /// Brings the head and the embeddings to their final memory. A ternary head takes one bit per weight if
    /// the layers do and it fits, otherwise two.
    fn repack_head(
        &mut self,
        layout: Option<Layout>,
        screened: bool,
        loader: &mut WeightLoader<'_, '_>,
    ) {
        let head = &self.head.weight;
        let split = screened.then(|| screen::split(head, loader)).flatten().map(Matrix::Split);
        self.screened = split.is_some();
        let ternary = match (head, layout) {
            (Matrix::Ternary(w), Some(Layout::OneBit)) => Some((w, Layout::OneBit)),
            (Matrix::Ternary(w), Some(_)) => Some((w, Layout::TwoBit)),
            _ => None,
        };
        let packed = ternary.and_then(|(w, layout)| repack(&[w], layout, loader).pop().flatten());
        let packed = split.or(packed.map(Matrix::Ternary));
        self.head.weight = packed.unwrap_or_else(|| head.relocate(loader));
        // A tied head shares its bytes with the embeddings: a copy would be half a model more.
        match &mut self.weights.head {
            Some(head) => {
                head.weight = self.head.weight.clone();
                self.weights.embed = self.weights.embed.relocate(loader);
            }
            None => self.weights.embed = self.head.weight.clone(),
        }
    }

    /// Returns the layout in which the model decodes faster on this machine. Models that fit in caches
    /// take two bits; others are decided by timing some of their products in two layouts: two bits, and one
    /// bit if weights have no zeros, otherwise the tight layout. `now` returns the time in seconds, from any
    /// origin.
    pub fn fastest_layout(
        &self,
        runtime: &Runtime,
        source: &dyn WeightSource,
        now: impl Fn() -> f64,
    ) -> Layout {
        let bytes: usize = self.ternary().map(|(_, w)| two_bits(w)).sum();
        if bytes < CACHED {
            return Layout::TwoBit;
        }
        let readable = |layout: &Layout| runtime.kernels.reads(*layout);
        let narrow = [Layout::OneBit, Layout::Tight].into_iter().filter(readable);
        let sampled = |layout| (layout, self.sample(layout, runtime, source));
        let Some((layout, narrow)) = narrow.map(sampled).find(|(_, sample)| !sample.is_empty())
        else {
            return Layout::TwoBit;
        };
        let plain = self.sample(Layout::TwoBit, runtime, source);
        let both = plain.len().min(narrow.len());
        let seconds = |linears: &[Linear]| {
            let begin = now();
            pass(&linears[..both], runtime);
            now() - begin
        };
        // The layouts take turns, because memory bandwidth changes over time.
        let narrow_is_faster = |_: &usize| seconds(&plain) > seconds(&narrow);
        if (0..TURNS).filter(narrow_is_faster).count() > TURNS / 2 {
            layout
        } else {
            Layout::TwoBit
        }
    }

    /// Converts the model to two bits if the kernels do not read its layout. Without that, products
    /// are correct but run in the scalar kernels, which take many times as long.
    #[must_use]
    pub fn with_supported_layout(self, runtime: &Runtime) -> Self {
        let unread = |layout| self.has_layout(layout) && !runtime.kernels.reads(layout);
        if [Layout::Tight, Layout::OneBit].into_iter().any(unread) {
            self.with_layout(Layout::TwoBit, runtime)
        } else {
            self
        }
    }

    /// Returns true if any ternary matrix is in the tight layout; others may not fit it.
    pub fn is_tight(&self) -> bool {
        self.has_layout(Layout::Tight)
    }

    /// Narrowest layout that any ternary matrix is in.
    pub fn layout(&self) -> Layout {
        let mut narrow = [Layout::OneBit, Layout::Tight].into_iter();
        narrow.find(|layout| self.has_layout(*layout)).unwrap_or(Layout::TwoBit)
    }

    /// Returns true if any ternary matrix is in this layout.
    pub fn has_layout(&self, layout: Layout) -> bool {
        let has = |m: &Matrix| matches!(m, Matrix::Ternary(w) if w.layout() == layout);
        self.matrices().any(has)
    }

    /// Copies of the first ternary matrices in a layout, up to one that does not fit it.
    fn sample(&self, layout: Layout, runtime: &Runtime, source: &dyn WeightSource) -> Vec<Linear> {
        let mut left = SAMPLE + SAMPLE_EACH * runtime.thread_pool.threads();
        runtime.thread_pool.run(Bound::Arithmetic, |scope| {
            let loader = &mut WeightLoader::new(scope, source);
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

/// Returns the 8-bit form of a matrix's activations. Models that were trained with 8 bits keep one
/// scale.
fn int8(linear: &Linear) -> Activations {
    match (linear.activations, linear.group_columns()) {
        (Activations::Int16, Some(_)) => Activations::Int8Groups,
        (Activations::Int16, None) => Activations::Int8,
        (chosen, _) => chosen,
    }
}

/// Repacks the matrices that one product reads side by side. Those that do not fit the layout stay in
/// theirs if the kernels read it, and otherwise take two bits.
fn repack_group(
    group: Vec<&mut Linear>,
    layout: Layout,
    kernels: &Kernels,
    loader: &mut WeightLoader<'_, '_>,
) {
    let ternary = |linear: &Linear| match &linear.weight {
        Matrix::Ternary(w) => Some(w.clone()),
        _ => None,
    };
    let matrices: Vec<_> = group.iter().filter_map(|linear| ternary(linear)).collect();
    let mut packed = repack(&matrices, layout, loader).into_iter();
    for linear in group {
        let Matrix::Ternary(w) = &linear.weight else {
            linear.weight = linear.weight.relocate(loader);
            continue;
        };
        let plain = |loader: &mut WeightLoader<'_, '_>| {
            if kernels.reads(w.layout()) {
                None
            } else {
                repack(&[w], Layout::TwoBit, loader).pop().flatten()
            }
        };
        let fitting = packed.next().flatten().or_else(|| plain(loader));
        linear.weight = Matrix::Ternary(fitting.unwrap_or_else(|| w.relocate(loader)));
    }
}

/// Bytes of a matrix's codes in two bits.
fn two_bits(w: &TernaryMatrix) -> usize {
    TernaryMatrix::code_bytes(w.rows(), w.cols()).unwrap_or(usize::MAX)
}

/// A copy of a layer with other weights and no bias.
fn with(linear: &Linear, w: TernaryMatrix) -> Linear {
    let (weight, activations) = (Matrix::Ternary(w), linear.activations);
    Linear { weight, bias: None, activations, rotation: None }
}

/// Computes the product of each layer with one row, as decoding does.
fn pass(linears: &[Linear], runtime: &Runtime) {
    let (mut inputs, mut out) = (Inputs::default(), AlignedVec::default());
    runtime.thread_pool.run(Bound::Memory, |scope| {
        let profile = &mut Profile::default();
        let exec = &mut Exec { scope, kernels: &runtime.kernels, profile };
        for linear in linears {
            let (width, readers) = (linear.weight.cols(), &[linear]);
            let row = |_, row: &mut [f32], ()| row.iter_mut().for_each(|x| *x = 1.0);
            inputs.fill(exec, &Fill { phase: Phase::Norm, rows: 1, width, readers }, (), row);
            inputs.product(exec, &[linear], &mut out);
            black_box(&out);
        }
    });
}
