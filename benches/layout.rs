//! Compares products in the tight and the one-bit layout with those in the two-bit layout, alternating in one
//! process and on one thread: `cargo bench --bench layout`.
//!
//! Each product reads the number of matrices that its line names: many come from memory, as in a large
//! model, and a single one from the cache.

mod common;
#[path = "common/timing.rs"]
mod timing;

use common::Noise;
use half::f16;
use std::time::Instant;
use wrinklefree::kernel::{Kernels, Quantized};
use wrinklefree::matrix::{GroupScales, Scales};
use wrinklefree::mem::AlignedVec;
use wrinklefree::par::{Columns, Scratch};
use wrinklefree::ternary::{Layout, TernaryMatrix};

/// Outputs, inputs and number of matrices.
const SHAPES: [(usize, usize, usize); 3] = [(6912, 2560, 1), (2560, 6912, 48), (6912, 2560, 48)];
/// Numbers of activation rows.
const BATCHES: [usize; 7] = [1, 2, 4, 5, 9, 33, 256];

/// Quantized noise.
struct Activations {
    values: AlignedVec<i8>,
    stride: usize,
    sums: Vec<i32>,
    steps: Vec<f32>,
}

impl Activations {
    fn new(rows: usize, cols: usize, noise: &mut Noise) -> Self {
        let stride = Quantized::stride_of(cols);
        let mut values = AlignedVec::zeroed(rows * stride);
        values
            .chunks_exact_mut(stride)
            .for_each(|row| row[..cols].fill_with(|| noise.bits() as i8));
        let sums = values.chunks_exact(stride).map(|r| r.iter().map(|&v| i32::from(v)).sum());
        Self { stride, sums: sums.collect(), steps: vec![0.01; rows], values }
    }

    fn view(&self) -> Quantized<'_> {
        let Self { values, stride, sums, steps } = self;
        Quantized { values, stride: *stride, sums, steps, planes: 1, groups: None }
    }
}

/// Random signs, with a scale for each 128 columns.
fn signs(rows: usize, cols: usize, noise: &mut Noise) -> TernaryMatrix {
    let scales = GroupScales::from_rows(rows, cols, 128, |_, s| {
        s.fill_with(|| f16::from_f32(noise.float()))
    });
    TernaryMatrix::pack(rows, cols, Scales::Groups(scales.unwrap()), |_, codes| {
        for codes in codes.chunks_mut(64) {
            let bits = noise.bits();
            codes.iter_mut().enumerate().for_each(|(i, c)| *c = 2 * (bits >> i & 1) as u8);
        }
    })
    .unwrap()
}

/// Compares products with the same matrices in two layouts, the second one the faster, as expected.
fn compare(layouts: [Layout; 2], plain: &[TernaryMatrix], noise: &mut Noise) {
    let (rows, cols) = (plain[0].rows(), plain[0].cols());
    let [first, second] = layouts
        .map(|layout| plain.iter().map(|w| w.in_layout(layout).unwrap()).collect::<Vec<_>>());
    let sets: Vec<Kernels> =
        Kernels::all().filter(|k| layouts.iter().all(|layout| k.reads(*layout))).collect();
    for (k, batch) in sets.iter().flat_map(|k| BATCHES.map(|batch| (k, batch))) {
        let x = Activations::new(batch, cols, noise);
        let mut y = vec![0f32; batch * rows];
        let mut scratch = Scratch::default();
        let mut multiply = |matrices: &[TernaryMatrix]| {
            let begin = Instant::now();
            for w in matrices {
                let out = &mut Columns::whole(&mut y, rows);
                k.ternary(w, 0..rows / 16, &x.view(), out, &mut scratch);
            }
            begin.elapsed().as_secs_f64()
        };
        let (mut times, mut ratios) = (Vec::new(), Vec::new());
        for _ in 0..if batch < 33 { 21 } else { 7 } {
            let (a, b) = (multiply(&first), multiply(&second));
            times.push(b);
            ratios.push(a / b);
        }
        times.sort_by(f64::total_cmp);
        ratios.sort_by(f64::total_cmp);
        let bytes: usize = second.iter().map(|w| w.codes().len()).sum();
        println!(
            "{}, {} of {rows} × {cols}, {batch} rows, {} for {}: {:.2} times as fast, {:.1} GB/s",
            k.isa().name(),
            plain.len(),
            layouts[1].name(),
            layouts[0].name(),
            ratios[ratios.len() / 2],
            bytes as f64 / times[times.len() / 2] / 1e9
        );
    }
}

fn main() {
    let mut noise = Noise(1);
    for (rows, cols, copies) in SHAPES {
        let plain: Vec<_> = (0..copies).map(|_| common::ternary(rows, cols, &mut noise)).collect();
        compare([Layout::TwoBit, Layout::Tight], &plain, &mut noise);
        let plain: Vec<_> = (0..copies).map(|_| signs(rows, cols, &mut noise)).collect();
        compare([Layout::TwoBit, Layout::OneBit], &plain, &mut noise);
        compare([Layout::Tight, Layout::OneBit], &plain, &mut noise);
    }
}
