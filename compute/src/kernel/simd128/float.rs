//! Float × f32. Each output has eight partial sums for every batch size, so a row's result does not
//! depend on the rows beside it.

use super::lanes::{load, sum, widen_8_f16};
use crate::matrix::{FloatMatrix, FloatType};
use crate::par::Columns;
use std::arch::wasm32::*;
use std::ops::Range;

/// A [`FloatType`] known at compile time.
trait Element {
    /// Number of bytes of an element.
    const SIZE: usize;
    /// Reads 8 elements from the first `8 · SIZE` bytes.
    fn read(bytes: &[u8]) -> [v128; 2];
}

struct F32;
struct F16;
struct Bf16;

impl Element for F32 {
    const SIZE: usize = 4;
    #[inline]
    fn read(bytes: &[u8]) -> [v128; 2] {
        bytemuck::must_cast(*bytes.first_chunk::<32>().expect("8 elements"))
    }
}

impl Element for F16 {
    const SIZE: usize = 2;
    #[inline]
    fn read(bytes: &[u8]) -> [v128; 2] {
        widen_8_f16(bytemuck::must_cast(*bytes.first_chunk::<16>().expect("8 elements")))
    }
}

impl Element for Bf16 {
    const SIZE: usize = 2;
    #[inline]
    fn read(bytes: &[u8]) -> [v128; 2] {
        let bits = bytemuck::must_cast(*bytes.first_chunk::<16>().expect("8 elements"));
        let zero = i16x8_splat(0);
        [
            i16x8_shuffle::<0, 8, 1, 9, 2, 10, 3, 11>(zero, bits),
            i16x8_shuffle::<4, 12, 5, 13, 6, 14, 7, 15>(zero, bits),
        ]
    }
}

/// See the scalar definition.
pub fn float(w: &FloatMatrix, rows: Range<usize>, x: &[f32], y: &mut Columns<'_>) {
    match w.dtype() {
        FloatType::F32 => product::<F32>(w, rows, x, y),
        FloatType::F16 => product::<F16>(w, rows, x, y),
        FloatType::Bf16 => product::<Bf16>(w, rows, x, y),
    }
}

fn product<E: Element>(w: &FloatMatrix, rows: Range<usize>, x: &[f32], y: &mut Columns<'_>) {
    let first = rows.start;
    let batch = x.len() / w.cols();
    let mut row = rows.start;
    while row < rows.end {
        let (mut b, wide) = (0, rows.end - row >= 2);
        while b < batch {
            let at = (row - first, b);
            b += match (wide, batch - b) {
                (true, 2..) => tile::<E, 2, 2>(w, row, x, at, y),
                (true, _) => tile::<E, 2, 1>(w, row, x, at, y),
                (false, 2..) => tile::<E, 1, 2>(w, row, x, at, y),
                (false, _) => tile::<E, 1, 1>(w, row, x, at, y),
            };
        }
        row += if wide { 2 } else { 1 };
    }
}

/// Multiplies `R` weight rows × `N` activation rows; `column` and `b` are the first column of the view
/// and the first batch row. Returns `N`.
#[inline]
fn tile<E: Element, const R: usize, const N: usize>(
    w: &FloatMatrix,
    row: usize,
    x: &[f32],
    (column, b): (usize, usize),
    y: &mut Columns<'_>,
) -> usize {
    let cols = w.cols();
    let ws: [&[u8]; R] = std::array::from_fn(|r| w.row(row + r));
    let xs: [&[f32]; N] = std::array::from_fn(|n| &x[(b + n) * cols..][..cols]);
    let mut sums = [[[f32x4_splat(0.0); 2]; N]; R];
    let whole = cols / 8;
    let x_lanes = xs.map(|x| &x.as_chunks::<8>().0[..whole]);
    for k in 0..whole {
        let w = ws.map(|w| E::read(&w[8 * E::SIZE * k..][..8 * E::SIZE]));
        add(&mut sums, &w, x_lanes.map(|x| &x[k]));
    }
    let rest = cols - 8 * whole;
    if rest > 0 {
        let w = ws.map(|w| {
            let mut bytes = [0u8; 32];
            bytes[..rest * E::SIZE].copy_from_slice(&w[8 * whole * E::SIZE..]);
            E::read(&bytes)
        });
        let lanes = xs.map(|x| {
            let mut lanes = [0f32; 8];
            lanes[..rest].copy_from_slice(&x[8 * whole..]);
            lanes
        });
        add(&mut sums, &w, lanes.each_ref());
    }
    for (r, sums) in sums.iter().enumerate() {
        for (n, lanes) in sums.iter().enumerate() {
            y.row(b + n)[column + r] = sum(f32x4_add(lanes[0], lanes[1]));
        }
    }
    N
}

/// Adds the products of 8 columns.
#[inline]
fn add<const R: usize, const N: usize>(
    sums: &mut [[[v128; 2]; N]; R],
    w: &[[v128; 2]; R],
    x: [&[f32; 8]; N],
) {
    for n in 0..N {
        for h in 0..2 {
            let x = load(&x[n].as_chunks().0[h]);
            for r in 0..R {
                sums[r][n][h] = f32x4_add(sums[r][n][h], f32x4_mul(w[r][h], x));
            }
        }
    }
}
