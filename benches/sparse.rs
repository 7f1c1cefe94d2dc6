//! Measures the gain of skipping blocks of zeros. A token has only some live blocks of 16 columns; a kernel
//! that skips the others alternates with one that does not, in one process: `cargo bench --bench sparse`.
//!
//! Each product reads several matrices, so that those of the 2B model come from memory and those of the small
//! model from the cache, as in a forward pass.

mod common;
#[path = "common/timing.rs"]
mod timing;

use common::Noise;
use wrinklefree::kernel::{Isa, Kernels, Quantized};
use wrinklefree::par::{Columns, Scratch};
use wrinklefree::ternary::{BLOCK_COLS, TernaryMatrix};

/// Outputs, inputs and number of matrices: BitNet b1.58 2B-4T and the embedded model.
const SHAPES: [(usize, usize, usize); 4] =
    [(2560, 6912, 24), (6912, 2560, 24), (192, 512, 6), (512, 192, 6)];
/// Percentages of live blocks.
const LIVE: [usize; 6] = [100, 80, 70, 50, 30, 10];

/// Returns a token with `live` percent of live blocks: the first ones if `together`, else scattered.
fn token(cols: usize, live: usize, together: bool, noise: &mut Noise) -> Vec<i8> {
    let mut values = vec![0; Quantized::stride_of(cols)];
    let blocks = cols / BLOCK_COLS;
    // A step that shares no factor with the number of blocks scatters the live ones.
    let first = if together { 1 } else { blocks * 5 / 8 };
    let step = (first..).find(|step| gcd(*step, blocks) == 1).expect("one is prime");
    for i in 0..(blocks * live).div_ceil(100) {
        let at = i * step % blocks * BLOCK_COLS;
        values[at..at + BLOCK_COLS].fill_with(|| noise.bits() as i8 | 1);
    }
    values
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Multiplies a token with all matrices.
fn multiply(
    k: &Kernels,
    matrices: &[TernaryMatrix],
    values: &[i8],
    y: &mut [f32],
    s: &mut Scratch,
) {
    let sums = [values.iter().map(|&v| i32::from(v)).sum()];
    let x = Quantized {
        values,
        stride: values.len(),
        sums: &sums,
        steps: &[0.01],
        planes: 1,
        groups: None,
    };
    let rows = y.len();
    for w in matrices {
        k.ternary(w, 0..rows / 16, &x, &mut Columns::whole(y, rows), s);
    }
}

fn main() {
    let mut noise = Noise(1);
    for (rows, cols, copies) in SHAPES {
        let matrices: Vec<_> =
            (0..copies).map(|_| common::ternary(rows, cols, &mut noise)).collect();
        for k in Kernels::all().filter(|k| k.isa() != Isa::Scalar) {
            for (live, together) in LIVE.iter().flat_map(|&n| [(n, false), (n, true)]) {
                let some = token(cols, live, together, &mut noise);
                let (mut y, mut z) = (vec![0f32; rows], vec![0f32; rows]);
                let (mut scratch, mut other) = (Scratch::default(), Scratch::default());
                let a = || multiply(&k.dense(), &matrices, &some, &mut y, &mut scratch);
                let b = || multiply(&k, &matrices, &some, &mut z, &mut other);
                let (isa, ratio) = (k.isa().name(), timing::ratio(a, b, 101));
                let order = if together { "together" } else { "scattered" };
                println!(
                    "{isa}, {rows} × {cols}: {live} % live, {order}: {ratio:.2} times as fast"
                );
            }
        }
    }
}
