//! Single floats as vectors of length one, for kernels that are written once.

pub use super::exp;
use crate::kernel::kv::{Bf16, Element, F16};
use crate::kernel::simd::{lanes, simd};
use crate::ternary::PANEL_ROWS;

/// The token of plain Rust, which runs everywhere.
#[derive(Clone, Copy)]
pub struct Scalar;

simd!(Scalar, [f32, i32; 1], wide: Wide, chains: 1, registers: 16, super::single);

/// An integer of each of a panel's 16 rows.
pub type Wide = [i64; PANEL_ROWS];

lanes! {
    fn load(x: &[f32; 1]) -> f32 { x[0] }
    fn load_f16(x: &[u16; 1]) -> f32 { F16::decode(x[0]) }
    fn load_bf16(x: &[u16; 1]) -> f32 { Bf16::decode(x[0]) }
    fn store(x: &mut [f32; 1], v: f32) { x[0] = v; }
    fn splat(x: f32) -> f32 { x }
    fn add(a: f32, b: f32) -> f32 { a + b }
    fn sub(a: f32, b: f32) -> f32 { a - b }
    fn mul(a: f32, b: f32) -> f32 { a * b }
    fn div(a: f32, b: f32) -> f32 { a / b }
    fn add_product(a: f32, b: f32, c: f32) -> f32 { a * b + c }
    fn rectified(x: f32) -> f32 { if x < 0.0 { 0.0 } else { x } }
    fn larger_magnitude(x: f32, top: f32) -> f32 { if x.abs() > top { x.abs() } else { top } }
    fn max(v: f32) -> f32 { v }
    fn splat_int(x: i32) -> i32 { x }

    fn round(x: f32, nan: i32) -> i32 {
        if x.is_nan() { nan } else { x.round_ties_even() as i32 }
    }

    fn add_ints(a: i32, b: i32) -> i32 { a.wrapping_add(b) }
    fn sub_ints(a: i32, b: i32) -> i32 { a.wrapping_sub(b) }
    fn left8(x: i32) -> i32 { x << 8 }
    fn right8(x: i32) -> i32 { x >> 8 }
    fn sum_ints(x: i32) -> i32 { x }
    fn floats(x: i32) -> f32 { x as f32 }
    fn ints(x: &[i8; 1]) -> i32 { i32::from(x[0]) }
    fn wide_zero() -> Wide { [0; PANEL_ROWS] }

    fn wide_add(a: Wide, b: [i32; PANEL_ROWS]) -> Wide {
        std::array::from_fn(|row| a[row] + i64::from(b[row]))
    }

    fn wide_join(high: Wide, low: Wide) -> Wide {
        std::array::from_fn(|row| 256 * high[row] + low[row])
    }

    fn wide_sub(a: Wide, b: i64) -> Wide { a.map(|a| a - b) }
    fn wide_round(a: Wide) -> [f32; PANEL_ROWS] { a.map(|a| a as f32) }
    fn narrow(x: [i32; 4], out: &mut [i8; 4]) { *out = x.map(|x| x as i8); }
    fn prefetch(_: *const u8, _: usize) {}
    fn sum(v: f32) -> f32 { v }
    fn hadamard(v: f32) -> f32 { v }
}
