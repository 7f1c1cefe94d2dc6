//! 8-bit activations of models that were not trained with them: groups of columns have scales of their
//! own, and models with a trained scale per token keep theirs.

use crate::common::{Noise, bitnet, odd, ternary};
use crate::hybrid::Kind;
use half::f16;
use wrinklefree::cache::{KvConfig, KvPool};
use wrinklefree::format::{Linear, Spec};
use wrinklefree::kernel::Kernels;
use wrinklefree::matrix::{GroupScales, Matrix, Scales, TernaryMatrix};
use wrinklefree::model::{AttentionMask, LogitRows, Model, Runtime, Span, Sparsity, Workspace};
use wrinklefree::par::ThreadPool;

/// Number of columns that share a scale.
const GROUP: usize = 128;
/// Factor between the inputs of the first group of columns and the others.
const FACTOR: f32 = 64.0;

fn logits(model: &Model, kernels: Kernels) -> Vec<u32> {
    let rt = Runtime { kernels, thread_pool: ThreadPool::new(1).unwrap() };
    let mut kv = KvPool::new(model.spec(), 2, KvConfig::EXACT).unwrap();
    let seq = kv.open(40).unwrap();
    let tokens: Vec<u32> = (0..40).map(|i| i * 37 % 131).collect();
    let (attention_mask, logits) = (AttentionMask::Causal, LogitRows::All);
    let span = Span { seq, start: 0, tokens: &tokens, attention_mask, logits };
    let (mut ws, bits) = (Workspace::default(), |logit: &f32| logit.to_bits());
    model.forward(&rt, &mut kv, &[span], &mut ws).values().iter().map(bits).collect()
}

/// A matrix whose first group of columns has weights as much smaller as its inputs are larger.
fn balanced(rows: usize, cols: usize, noise: &mut Noise) -> Linear {
    let size = 1.5 / (cols as f32).sqrt();
    let scales = GroupScales::from_rows(rows, cols, GROUP, |_, scales| {
        scales.fill(f16::from_f32(size));
        scales[0] = f16::from_f32(size / FACTOR);
    });
    let codes = ternary(rows, cols, noise).codes().clone();
    let scales = Scales::Groups(scales.unwrap());
    let weight = TernaryMatrix::from_panels(rows, cols, codes, scales).unwrap();
    Linear::new(Matrix::Ternary(weight), None)
}

/// A model whose feed-forward layers read a group of large inputs next to small ones.
fn uneven() -> Model {
    let spec = Spec { hidden_size: 512, intermediate_size: 640, ..crate::hybrid::plain() };
    let mut weights = crate::hybrid::weights(&spec, Kind::Ternary, false, 5);
    let mut noise = Noise(6);
    for layer in &mut weights.layers {
        layer.ffn_norm[..GROUP].iter_mut().for_each(|weight| *weight *= FACTOR);
        layer.gate = balanced(spec.intermediate_size, spec.hidden_size, &mut noise);
        layer.up = balanced(spec.intermediate_size, spec.hidden_size, &mut noise);
    }
    Model::new(spec, weights).unwrap()
}

/// Returns √(Σ (a − b)² / Σ b²).
fn distance(a: &[u32], b: &[u32]) -> f64 {
    let floats = a.iter().zip(b).map(|(a, b)| [*a, *b].map(|x| f64::from(f32::from_bits(x))));
    let (off, size) =
        floats.fold((0.0, 0.0), |(off, size), [a, b]| (off + (a - b).powi(2), size + b * b));
    (off / size).sqrt()
}

#[test]
fn small_columns_keep_their_bits_beside_large_ones() {
    let exact = logits(&uneven(), Kernels::best());
    let [groups, mut rows] = [uneven(), uneven()].map(Model::with_int8_activations);
    // A rule compares all values of a row, so the row has one scale. This one keeps all values.
    rows.sparsity = "threshold:0".parse::<Sparsity>().unwrap();
    let [groups, rows] =
        [groups, rows].map(|model| distance(&logits(&model, Kernels::best()), &exact));
    println!("distance {groups} with scales of groups, {rows} with a scale per row");
    assert!(groups > 0.0 && groups < 0.2 && rows > 3.0 * groups, "{groups} and {rows}");
}

#[test]
fn models_that_were_trained_with_eight_bits_keep_their_arithmetic() {
    let model = Model::new(odd(), bitnet(&odd(), 5)).unwrap();
    let trained = logits(&model, Kernels::best());
    assert!(logits(&model.with_int8_activations(), Kernels::best()) == trained);
}

#[test]
fn matrices_in_a_rotated_basis_may_have_eight_bits_alone() {
    let bits = |rotated: bool, change: fn(Model) -> Model| {
        let spec = if rotated { crate::hybrid::rotated() } else { crate::hybrid::plain() };
        let weights = crate::hybrid::weights(&spec, Kind::Ternary, rotated, 5);
        logits(&change(Model::new(spec, weights).unwrap()), Kernels::best())
    };
    let [exact, chosen] = [|model| model, Model::with_int8_rotated_activations];
    assert!(bits(false, chosen) == bits(false, exact), "nothing is rotated");
    assert!(bits(true, chosen) != bits(true, exact));
    let off = distance(&bits(true, chosen), &bits(true, exact));
    println!("distance {off}");
    assert!(off < 0.2, "{off}");
}
