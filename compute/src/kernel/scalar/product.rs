//! Matrix products.

use crate::kernel::Quantized;
use crate::kernel::operands::MatrixGroupSteps;
use crate::matrix::{FloatMatrix, FloatType, Int8View};
use crate::par::{Columns, Scratch};
use crate::ternary::{BLOCK_COLS, PANEL_ROWS, Scales, TernaryMatrix};
use half::{bf16, f16};
use std::ops::Range;

/// Computes ternary × int8: (Σ over groups of (Σ c·q − Σ q) · group step · scale) · step, groups from
/// left to right. Rows without scales of groups leave out their factor.
pub fn ternary(
    w: &TernaryMatrix,
    panels: Range<usize>,
    x: &Quantized<'_>,
    y: &mut Columns<'_>,
    _: &mut Scratch,
) {
    let group = match w.scales() {
        Scales::Tensor(_) => w.cols().next_multiple_of(BLOCK_COLS),
        Scales::Groups(g) => g.size(),
    };
    let steps = x.matrix_group_steps(w.cols(), group);
    let mut codes = vec![0u8; w.cols()];
    let first = panels.start * PANEL_ROWS;
    for row in first..(panels.end * PANEL_ROWS).min(w.rows()) {
        w.unpack_row(row, &mut codes);
        for b in 0..x.rows() {
            let q = &x.values[b * x.stride..][..w.cols()];
            let mut sum = 0f32;
            for (g, (c, q)) in codes.chunks(group).zip(q.chunks(group)).enumerate() {
                let products = c.iter().zip(q).map(|(&c, &q)| i32::from(c) * i32::from(q));
                let offset: i32 = q.iter().map(|&q| i32::from(q)).sum();
                let exact = products.sum::<i32>() - offset;
                let value = with_step(exact as f32, steps, b, g);
                sum += value * w.scale_at(row, g * group);
            }
            store(y, x, b, row - first, sum);
        }
    }
}

/// Returns a group's value times its activations' scale, if they have one.
fn with_step(value: f32, steps: Option<MatrixGroupSteps<'_>>, row: usize, g: usize) -> f32 {
    steps.map_or(value, |steps| value * steps.of(row, g))
}

/// Computes int8 × int8 or, with two planes, int8 × 15 bits: (Σ over groups of (Σ w·q) · group step ·
/// scale) · step, groups from left to right.
///
/// Σ w·q is exact (it may need more than 32 bits) and rounded once. With two planes q = 256 · high + low
/// and the step is the low plane's.
pub fn int8(
    w: Int8View<'_>,
    panels: Range<usize>,
    x: &Quantized<'_>,
    y: &mut Columns<'_>,
    _: &mut Scratch,
) {
    let steps = x.matrix_group_steps(w.cols(), w.group());
    let mut values = vec![0i8; w.cols()];
    let first = panels.start * PANEL_ROWS;
    for row in first..(panels.end * PANEL_ROWS).min(w.rows()) {
        w.unpack_row(row, &mut values);
        for token in 0..x.tokens() {
            let mut sum = 0f32;
            for (g, values) in values.chunks(w.group()).enumerate() {
                let products = values
                    .iter()
                    .enumerate()
                    .map(|(k, &v)| i64::from(v) * i64::from(x.joined(token, g * w.group() + k)));
                let value = with_step(products.sum::<i64>() as f32, steps, token, g);
                sum += value * w.scale(row, g);
            }
            y.row(token)[row - first] = sum * x.joined_step(token);
        }
    }
}

/// Writes a product, or adds it if it belongs to the second plane of its token.
fn store(y: &mut Columns<'_>, x: &Quantized<'_>, b: usize, column: usize, sum: f32) {
    let (row, adds) = x.target(b);
    let out = &mut y.row(row)[column];
    let product = sum * x.steps[b];
    *out = if adds { *out + product } else { product };
}

/// Computes float × f32, one output after the other.
pub fn float(w: &FloatMatrix, rows: Range<usize>, x: &[f32], y: &mut Columns<'_>) {
    let first = rows.start;
    for row in rows {
        let weights = w.row(row);
        for (b, x) in x.chunks_exact(w.cols()).enumerate() {
            y.row(b)[row - first] = match w.dtype() {
                FloatType::F32 => dot(weights, x, f32::from_le_bytes),
                FloatType::F16 => dot(weights, x, |b| f16::from_le_bytes(b).to_f32()),
                FloatType::Bf16 => dot(weights, x, |b| bf16::from_le_bytes(b).to_f32()),
            };
        }
    }
}

fn dot<const N: usize>(weights: &[u8], x: &[f32], read: impl Fn([u8; N]) -> f32) -> f32 {
    weights.as_chunks().0.iter().zip(x).map(|(&w, x)| read(w) * x).sum()
}
