//! Float × f32. Each output has [`SUMS`] partial sums for every batch size, so a row's result does not
//! depend on the rows next to it.

use super::simd::Simd;
use crate::matrix::{FloatMatrix, FloatType};
use crate::par::Columns;
use bytemuck::{AnyBitPattern, pod_read_unaligned};
use std::ops::Range;

/// Number of partial sums of an output.
const SUMS: usize = 8;
/// Number of bytes of as many elements of the largest type.
const MOST_BYTES: usize = SUMS * size_of::<f32>();

/// A [`FloatType`] known at compile time.
trait Element {
    /// A vector's elements in memory.
    type Codes<S: Simd>: AnyBitPattern;
    /// Loads a vector.
    fn load<S: Simd>(s: S, codes: &Self::Codes<S>) -> S::Vector;
}

struct F32;
struct F16;
struct Bf16;

impl Element for F32 {
    type Codes<S: Simd> = S::Array;
    #[inline(always)]
    fn load<S: Simd>(s: S, codes: &S::Array) -> S::Vector {
        s.load(codes)
    }
}

impl Element for F16 {
    type Codes<S: Simd> = S::Codes;
    #[inline(always)]
    fn load<S: Simd>(s: S, codes: &S::Codes) -> S::Vector {
        s.load_f16(codes)
    }
}

impl Element for Bf16 {
    type Codes<S: Simd> = S::Codes;
    #[inline(always)]
    fn load<S: Simd>(s: S, codes: &S::Codes) -> S::Vector {
        s.load_bf16(codes)
    }
}

/// See the scalar definition.
///
/// # Panics
/// If a vector is longer than [`SUMS`].
#[inline(always)]
pub fn float<S: Simd>(s: S, w: &FloatMatrix, rows: Range<usize>, x: &[f32], y: &mut Columns<'_>) {
    match SUMS / S::LANES {
        1 => typed::<S, 1>(s, w, rows, x, y),
        2 => typed::<S, 2>(s, w, rows, x, y),
        _ => unreachable!("vectors of 4 or 8 floats"),
    }
}

/// As [`float`], with `V` vectors of partial sums.
#[inline(always)]
fn typed<S: Simd, const V: usize>(
    s: S,
    w: &FloatMatrix,
    rows: Range<usize>,
    x: &[f32],
    y: &mut Columns<'_>,
) {
    match w.dtype() {
        FloatType::F32 => product::<S, F32, V>(s, w, rows, x, y),
        FloatType::F16 => product::<S, F16, V>(s, w, rows, x, y),
        FloatType::Bf16 => product::<S, Bf16, V>(s, w, rows, x, y),
    }
}

#[inline(always)]
fn product<S: Simd, E: Element, const V: usize>(
    s: S,
    w: &FloatMatrix,
    rows: Range<usize>,
    x: &[f32],
    y: &mut Columns<'_>,
) {
    let first = rows.start;
    let batch = x.len() / w.cols();
    // As many rows as the registers hold sums for.
    let most = if V == 1 || S::REGISTERS > 16 { 4 } else { 2 };
    let mut row = rows.start;
    while row < rows.end {
        let together = if rows.end - row >= most { most } else { 1 };
        let mut b = 0;
        while b < batch {
            let at = (row - first, b);
            b += match (together, batch - b) {
                (4, 2..) => tile::<S, E, V, 4, 2>(s, w, row, x, at, y),
                (4, _) => tile::<S, E, V, 4, 1>(s, w, row, x, at, y),
                (2, 2..) => tile::<S, E, V, 2, 2>(s, w, row, x, at, y),
                (2, _) => tile::<S, E, V, 2, 1>(s, w, row, x, at, y),
                (_, 2..) => tile::<S, E, V, 1, 2>(s, w, row, x, at, y),
                (_, _) => tile::<S, E, V, 1, 1>(s, w, row, x, at, y),
            };
        }
        row += together;
    }
}

/// Multiplies `R` weight rows × `N` activation rows; `column` and `b` are the first column of the view
/// and the first batch row. Returns `N`.
#[inline(always)]
fn tile<S: Simd, E: Element, const V: usize, const R: usize, const N: usize>(
    s: S,
    w: &FloatMatrix,
    row: usize,
    x: &[f32],
    (column, b): (usize, usize),
    y: &mut Columns<'_>,
) -> usize {
    let (cols, size) = (w.cols(), w.dtype().size());
    let whole = cols / SUMS * SUMS;
    let ws: [&[u8]; R] = std::array::from_fn(|r| w.row(row + r));
    let xs: [&[f32]; N] = std::array::from_fn(|n| &x[(b + n) * cols..][..cols]);
    let mut sums = [[[s.splat(0.0); V]; N]; R];
    let mut blocks = ws.map(|w| w[..whole * size].chunks_exact(SUMS * size));
    for k in 0..whole / SUMS {
        let mut bytes: [&[u8]; R] = [&[]; R];
        for (bytes, blocks) in bytes.iter_mut().zip(&mut blocks) {
            *bytes = blocks.next().expect("rows are equally long");
        }
        let mut x: [&[f32]; N] = [&[]; N];
        for (x, row) in x.iter_mut().zip(&xs) {
            *x = &row[..whole][k * SUMS..][..SUMS];
        }
        add_products::<S, E, V, R, N>(s, bytes, x, &mut sums);
    }
    if whole < cols {
        let (mut padded, mut padded_x) = ([[0; MOST_BYTES]; R], [[0.0; SUMS]; N]);
        for (padded, w) in padded.iter_mut().zip(&ws) {
            padded[..(cols - whole) * size].copy_from_slice(&w[whole * size..]);
        }
        for (padded, x) in padded_x.iter_mut().zip(&xs) {
            padded[..cols - whole].copy_from_slice(&x[whole..]);
        }
        let (mut bytes, mut x): ([&[u8]; R], [&[f32]; N]) = ([&[]; R], [&[]; N]);
        bytes.iter_mut().zip(&padded).for_each(|(bytes, padded)| *bytes = padded);
        x.iter_mut().zip(&padded_x).for_each(|(x, padded)| *x = padded);
        add_products::<S, E, V, R, N>(s, bytes, x, &mut sums);
    }
    for (r, sums) in sums.iter().enumerate() {
        for (n, sums) in sums.iter().enumerate() {
            let mut total = sums[0];
            for sum in &sums[1..] {
                total = s.add(total, *sum);
            }
            y.row(b + n)[column + r] = s.sum(total);
        }
    }
    N
}

/// Adds the products of [`SUMS`] columns.
#[inline(always)]
fn add_products<S: Simd, E: Element, const V: usize, const R: usize, const N: usize>(
    s: S,
    bytes: [&[u8]; R],
    x: [&[f32]; N],
    sums: &mut [[[S::Vector; V]; N]; R],
) {
    let size = size_of::<E::Codes<S>>();
    for v in 0..V {
        let mut w = [s.splat(0.0); R];
        for (w, bytes) in w.iter_mut().zip(bytes) {
            *w = E::load(s, &pod_read_unaligned(&bytes[v * size..][..size]));
        }
        for n in 0..N {
            let x = s.load(&S::arrays(x[n])[v]);
            for r in 0..R {
                sums[r][n][v] = s.add_product(w[r], x, sums[r][n][v]);
            }
        }
    }
}
