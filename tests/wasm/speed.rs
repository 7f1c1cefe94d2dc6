//! Measures the products in 10⁹ multiply-adds per second, alternating between the instruction sets.

use crate::{page, say};
use wrinklefree_compute::kernel::{Isa, Kernels, Quantized};
use wrinklefree_compute::matrix::{
    FloatMatrix, FloatType, Int8Matrix, Scales, SplitMatrix, TernaryMatrix,
};
use wrinklefree_compute::par::{Columns, Scratch};

/// Shape of a layer of a model that is small enough for a page.
const ROWS: usize = 2816;
const COLS: usize = 1024;
/// Numbers of activation rows: decoding, drafts, diffusion blocks, a chunk of a prompt.
const BATCHES: [usize; 7] = [1, 2, 4, 8, 16, 32, 128];
/// Number of rounds. The fastest counts, because other programs only slow a round down.
const ROUNDS: usize = 12;
/// Least milliseconds of a measurement, because a page's clock is coarse.
const TURN: f64 = 8.0;

/// A kernel with its weights; it gets a batch's activations and outputs.
type Product<'a> = dyn Fn(&Kernels, &Activations, &mut Columns<'_>, &mut Scratch) + 'a;

/// Activations of a batch, quantized and as floats.
struct Activations {
    values: Vec<i8>,
    floats: Vec<f32>,
    sums: Vec<i32>,
    steps: Vec<f32>,
}

impl Activations {
    fn new(batch: usize) -> Self {
        // Enough for two planes.
        let values: Vec<i8> = (0..2 * batch * COLS).map(|i| (i * 37 % 251) as u8 as i8).collect();
        let sums = values.chunks(COLS).map(|r| r.iter().map(|&v| i32::from(v)).sum()).collect();
        let floats = values[..batch * COLS].iter().map(|&v| f32::from(v) / 128.0).collect();
        Self { values, floats, sums, steps: vec![0.01; 2 * batch] }
    }

    /// Returns the quantized activations of `batch` tokens.
    fn planes(&self, batch: usize, planes: usize) -> Quantized<'_> {
        const { assert!(COLS.is_multiple_of(64), "whole cache lines, as kernels read them") };
        let rows = batch * planes;
        Quantized {
            values: &self.values[..rows * COLS],
            stride: COLS,
            sums: &self.sums[..rows],
            steps: &self.steps[..rows],
            planes,
            groups: None,
        }
    }
}

/// Measures all products.
pub fn all() {
    let ternary = TernaryMatrix::pack(ROWS, COLS, Scales::Tensor(0.5), |r, codes| {
        codes.iter_mut().enumerate().for_each(|(c, code)| *code = ((r * 7 + c * 5) % 11 % 3) as u8);
    })
    .expect("codes fit");
    let int8 = Int8Matrix::pack(ROWS, COLS, COLS, |r, values, scales| {
        values.iter_mut().enumerate().for_each(|(c, v)| *v = ((r * 7 + c * 5) % 255) as u8 as i8);
        scales.fill(0.5);
    })
    .expect("values fit");
    // Heads of GGUF files have six bits; `joined` is the same head as int8.
    let six = SplitMatrix::pack_six(
        (ROWS, COLS, 16),
        |r, values| (0..).zip(values).for_each(|(c, v)| *v = ((r * 7 + c * 5) % 64) as i8 - 32),
        |r, parts, factors| {
            parts.fill(r as i8);
            factors.fill(0.5);
        },
    )
    .expect("values fit");
    let joined = six.joined();
    let f16 = FloatMatrix::new(ROWS, COLS, FloatType::F16, vec![0x35; 2 * ROWS * COLS].into());
    let bf16 = FloatMatrix::new(ROWS, COLS, FloatType::Bf16, vec![0x3C; 2 * ROWS * COLS].into());
    let (f16, bf16) = (f16.expect("bytes fit"), bf16.expect("bytes fit"));
    let panels = 0..ROWS / 16;
    let batch = |a: &Columns<'_>| a.rows();
    let kernels: [(&str, &Product<'_>); 7] = [
        ("ternary", &|k, x, y, s| {
            k.ternary(&ternary, panels.clone(), &x.planes(batch(y), 1), y, s);
        }),
        ("int8", &|k, x, y, s| (k.int8)(int8.view(), panels.clone(), &x.planes(batch(y), 1), y, s)),
        ("int8, two planes", &|k, x, y, s| {
            (k.int8)(int8.view(), panels.clone(), &x.planes(batch(y), 2), y, s);
        }),
        ("int8/g16, two", &|k, x, y, s| {
            (k.int8)(joined.view(), panels.clone(), &x.planes(batch(y), 2), y, s);
        }),
        ("int6/g16, two", &|k, x, y, s| {
            (k.int8)(six.view(), panels.clone(), &x.planes(batch(y), 2), y, s);
        }),
        ("f16", &|k, x, y, _| (k.float)(&f16, 0..ROWS, &x.floats[..batch(y) * COLS], y)),
        ("bf16", &|k, x, y, _| (k.float)(&bf16, 0..ROWS, &x.floats[..batch(y) * COLS], y)),
    ];
    for (name, product) in kernels {
        for batch in BATCHES {
            compare(name, batch, product);
        }
    }
}

/// Measures every instruction set in turn and prints how they compare.
fn compare(name: &str, batch: usize, product: &Product<'_>) {
    let x = Activations::new(batch);
    let (mut y, mut scratch) = (vec![0f32; batch * ROWS], Scratch::default());
    let sets: Vec<Kernels> = Kernels::all().collect();
    let mut best = vec![f64::INFINITY; sets.len()];
    for round in 0..ROUNDS {
        for (k, best) in sets.iter().zip(&mut best) {
            // The scalar kernels are slow and need no precision.
            if k.isa() == Isa::Scalar && round > 0 {
                continue;
            }
            let (start, mut runs, mut took) = (page::now(), 0.0, 0.0);
            while took < TURN {
                product(k, &x, &mut Columns::whole(&mut y, ROWS), &mut scratch);
                runs += 1.0;
                took = page::now() - start;
            }
            *best = best.min(took / runs);
        }
    }
    let macs = (batch * ROWS * COLS) as f64 / 1e6;
    let mut line = format!("{name:16} × {batch:3}:");
    for (i, (k, time)) in sets.iter().zip(&best).enumerate() {
        line += &format!("  {} {:6.1} GMAC/s", k.isa().name(), macs / time);
        let over =
            |other: usize| format!("{:.1} × {}", best[other] / time, sets[other].isa().name());
        line += &match i {
            0 => String::new(),
            1 => format!(" ({})", over(0)),
            _ => format!(" ({}, {})", over(0), over(1)),
        };
    }
    say(&line);
}
