//! Compares products in the tight layout with those in the two-bit layout, alternating in one process and on
//! one thread: `cargo bench --bench layout`.
//!
//! Each product reads the number of matrices that its line names: many come from memory, as in a large
//! model, and a single one from the cache.

mod common;
#[path = "common/timing.rs"]
mod timing;

use common::Noise;
use std::time::Instant;
use wrinklefree::kernel::{Kernels, Quantized};
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

fn main() {
    let mut noise = Noise(1);
    let sets: Vec<Kernels> = Kernels::all().filter(|k| k.reads(Layout::Tight)).collect();
    if sets.is_empty() {
        println!("no instruction set of this machine reads the tight layout");
    }
    for (rows, cols, copies) in SHAPES {
        let plain: Vec<_> = (0..copies).map(|_| common::ternary(rows, cols, &mut noise)).collect();
        let tight: Vec<_> = plain.iter().map(|w| w.in_layout(Layout::Tight).unwrap()).collect();
        for (k, batch) in sets.iter().flat_map(|k| BATCHES.map(|batch| (k, batch))) {
            let x = Activations::new(batch, cols, &mut noise);
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
            let (mut both, mut ratios) = (Vec::new(), Vec::new());
            for _ in 0..if batch < 33 { 21 } else { 7 } {
                let (a, b) = (multiply(&plain), multiply(&tight));
                both.push(b);
                ratios.push(a / b);
            }
            both.sort_by(f64::total_cmp);
            ratios.sort_by(f64::total_cmp);
            let bytes: usize = tight.iter().map(|w| w.codes().len()).sum();
            println!(
                "{}, {copies} of {rows} × {cols}, {batch} rows: {:.2} times as fast, {:.1} GB/s",
                k.isa().name(),
                ratios[ratios.len() / 2],
                bytes as f64 / both[both.len() / 2] / 1e9
            );
        }
    }
}
