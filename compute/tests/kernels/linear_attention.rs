//! Cases of the kernels for rotated weights and for linear attention.

use super::{Noise, bits, sets};
use wrinklefree_compute::kernel::{DeltaRows, DeltaShape, Kernels};
use wrinklefree_compute::par::{Columns, Scratch};

fn with_scalar(test: &str) -> impl Iterator<Item = Kernels> {
    std::iter::once(Kernels::SCALAR).chain(sets(test))
}

/// Compares with the definition: y[r] = Σ (−1)^popcount(r AND c) · x[c] / √block.
pub fn transforms_are_walsh_hadamard() {
    let mut noise = Noise(31);
    for kernels in with_scalar("hadamard") {
        for (block, blocks) in
            [(1, 5), (2, 3), (4, 3), (8, 2), (16, 3), (64, 1), (128, 3), (512, 2)]
        {
            let x = noise.floats(block * blocks);
            let mut y = x.clone();
            (kernels.hadamard)(&mut y, block);
            for (i, y) in y.iter().enumerate() {
                let (start, r) = (i / block * block, i % block);
                let sign =
                    |c: usize| if (r & c).count_ones().is_multiple_of(2) { 1.0 } else { -1.0 };
                let sum: f64 = (0..block).map(|c| sign(c) * f64::from(x[start + c])).sum();
                let want = sum / (block as f64).sqrt();
                let isa = kernels.isa();
                assert!((f64::from(*y) - want).abs() < 2e-6, "{isa:?} {block}: {y} for {want}");
            }
            // The transform is its own inverse.
            (kernels.hadamard)(&mut y, block);
            assert!(x.iter().zip(&y).all(|(x, y)| (x - y).abs() < 1e-6));
        }
    }
}

/// Compares σ(gate) · x with f64, for every rest.
pub fn gates_are_sigmoids() {
    let mut noise = Noise(7);
    for kernels in with_scalar("sigmoid") {
        for width in [1, 3, 8, 16, 37] {
            let (gate, x) = (noise.floats(width), noise.floats(width));
            let mut out: Vec<f32> = gate.iter().map(|g| g * 20.0).collect();
            let gates = out.clone();
            (kernels.sigmoid_mul)(&mut out, &x);
            for ((out, g), x) in out.iter().zip(gates).zip(&x) {
                let want = f64::from(*x) / (1.0 + (-f64::from(g)).exp());
                assert!((f64::from(*out) - want).abs() < 1e-6, "{:?}", kernels.isa());
            }
        }
    }
}

/// Random inputs of a text.
struct Text {
    shape: DeltaShape,
    conv: Vec<f32>,
    inputs: Vec<f32>,
    decays: Vec<f32>,
    betas: Vec<f32>,
}

impl Text {
    fn new(shape: DeltaShape, rows: usize, noise: &mut Noise) -> Self {
        let channels = shape.channels();
        // Padded channels are zero.
        let mut padded = |count: usize| {
            let mut x = noise.floats(count * channels);
            for row in x.chunks_exact_mut(channels) {
                let (keys, values) = row.split_at_mut(2 * shape.key_width());
                keys.chunks_exact_mut(shape.key_width()).for_each(|k| k[shape.key_dim..].fill(0.0));
                let values = values.chunks_exact_mut(shape.value_width());
                values.for_each(|v| v[shape.value_dim..].fill(0.0));
            }
            x
        };
        let (conv, inputs) = (padded(shape.taps), padded(rows));
        let decays = (0..rows * shape.values).map(|_| -noise.float().abs().powi(4)).collect();
        let betas = (0..rows * shape.values).map(|_| noise.float().abs()).collect();
        Self { shape, conv, inputs, decays, betas }
    }

    fn rows(&self) -> usize {
        self.inputs.len() / self.shape.channels()
    }

    /// Runs positions `from..to` and returns their outputs.
    fn run(&self, kernels: &Kernels, state: &mut [f32], from: usize, to: usize) -> Vec<f32> {
        let (shape, width) = (self.shape, self.shape.values * self.shape.value_dim);
        let rows = DeltaRows {
            shape,
            position: from,
            conv: &self.conv,
            inputs: &self.inputs[from * shape.channels()..to * shape.channels()],
            decays: &self.decays[from * shape.values..to * shape.values],
            betas: &self.betas[from * shape.values..to * shape.values],
        };
        let mut out = vec![0.0; (to - from) * width];
        let columns = &mut Columns::whole(&mut out, width);
        (kernels.delta)(&rows, state, columns, &mut Scratch::default());
        out
    }

    /// Computes the recurrence as the paper has it, in f64.
    fn reference(&self) -> Vec<f64> {
        let Self { shape, .. } = self;
        let (channels, keys, values) = (shape.channels(), shape.key_width(), shape.value_width());
        let mut states = vec![vec![0.0; shape.key_dim * shape.value_dim]; shape.values];
        let mut out = Vec::new();
        for t in 0..self.rows() {
            let mixed: Vec<f64> = (0..channels)
                .map(|c| {
                    let taps = (0..shape.taps).filter(|tap| t + 1 + tap >= shape.taps);
                    let sum: f64 = taps
                        .map(|tap| {
                            let row = t + 1 + tap - shape.taps;
                            f64::from(self.inputs[row * channels + c])
                                * f64::from(self.conv[tap * channels + c])
                        })
                        .sum();
                    sum / (1.0 + (-sum).exp())
                })
                .collect();
            let unit = |x: &[f64]| -> Vec<f64> {
                let norm = (x.iter().map(|x| x * x).sum::<f64>() + 1e-6).sqrt();
                x.iter().map(|x| x / norm).collect()
            };
            let q = unit(&mixed[..shape.key_dim]);
            let k = unit(&mixed[keys..keys + shape.key_dim]);
            for (head, state) in states.iter_mut().enumerate() {
                let v = &mixed[2 * keys + head * values..][..shape.value_dim];
                let alpha = f64::from(self.decays[t * shape.values + head]).exp();
                let beta = f64::from(self.betas[t * shape.values + head]);
                state.iter_mut().for_each(|s| *s *= alpha);
                for (c, v) in v.iter().enumerate() {
                    let at = |r: usize| r * shape.value_dim + c;
                    let read: f64 = (0..shape.key_dim).map(|r| state[at(r)] * k[r]).sum();
                    let d = beta * (v - read);
                    (0..shape.key_dim).for_each(|r| state[at(r)] += k[r] * d);
                    let o: f64 = (0..shape.key_dim).map(|r| state[at(r)] * q[r]).sum();
                    out.push(o / (shape.key_dim as f64).sqrt());
                }
            }
        }
        out
    }
}

const SHAPES: [DeltaShape; 4] = [
    DeltaShape { key_dim: 128, value_dim: 128, values: 1, taps: 4 },
    DeltaShape { key_dim: 32, value_dim: 64, values: 3, taps: 4 },
    DeltaShape { key_dim: 8, value_dim: 12, values: 2, taps: 3 },
    DeltaShape { key_dim: 20, value_dim: 40, values: 1, taps: 1 },
];

/// Compares a text of several chunks with the recurrence.
pub fn linear_attention_is_the_recurrence() {
    for (i, shape) in SHAPES.into_iter().enumerate() {
        let text = Text::new(shape, 107, &mut Noise(90 + i as u64));
        let want = text.reference();
        let largest = want.iter().fold(0.0f64, |m, o| m.max(o.abs()));
        for kernels in with_scalar("delta") {
            let mut state = vec![0.0; shape.state_floats()];
            let out = text.run(&kernels, &mut state, 0, text.rows());
            for (i, (o, want)) in out.iter().zip(&want).enumerate() {
                let off = (f64::from(*o) - want).abs() / largest;
                assert!(off < 1e-5, "{:?} {shape:?} at {i}: {o} for {want}", kernels.isa());
            }
        }
    }
}

/// A text that is cut at any place, continued from a snapshot, or computed again after rejected rows, has
/// the same bits.
pub fn linear_attention_does_not_depend_on_cuts() {
    let mut noise = Noise(17);
    for kernels in with_scalar("delta cuts") {
        for shape in SHAPES {
            let text = Text::new(shape, 150, &mut noise);
            let other = Text {
                inputs: noise.floats(text.inputs.len()),
                ..Text::new(shape, 150, &mut noise)
            };
            let mut whole = vec![0.0; shape.state_floats()];
            let want = text.run(&kernels, &mut whole, 0, 150);
            for cut in [1, 7, 31, 32, 33, 63, 64, 65] {
                let (mut state, mut out) = (vec![0.0; shape.state_floats()], Vec::new());
                for from in (0..150).step_by(cut) {
                    // Rows of another text that are rejected, where they complete no chunk.
                    let drafted = (from + shape.rejectable()).min(from / 32 * 32 + 31).min(150);
                    let _ = other.run(&kernels, &mut state, from, drafted.max(from));
                    let end = (from + cut).min(150);
                    out.extend(text.run(&kernels, &mut state, from, end));
                    // A snapshot continues at the last border of a chunk.
                    let mut fresh = noise.floats(state.len());
                    let kept = shape.snapshot_floats();
                    fresh[..kept].copy_from_slice(&state[..kept]);
                    shape.resume(&mut fresh);
                    let border = end / 32 * 32;
                    if border < end {
                        let again = text.run(&kernels, &mut fresh, border, end);
                        let first = border * shape.values * shape.value_dim;
                        assert_eq!(bits(&again), bits(&out[first..]));
                    }
                    state = fresh;
                }
                assert_eq!(bits(&out), bits(&want), "{:?} {shape:?} {cut}", kernels.isa());
            }
        }
    }
}
