//! Single floats as vectors of length one, for kernels that are written once.

pub use super::exp;
use crate::kernel::simd::simd;

/// The token of plain Rust, which runs everywhere.
#[derive(Clone, Copy)]
pub struct Scalar;

simd!(Scalar, 1, f32, super::single);

/// Loads a float.
pub fn load(x: &[f32; 1]) -> f32 {
    x[0]
}

/// Stores a float.
pub fn store(x: &mut [f32; 1], v: f32) {
    x[0] = v;
}

/// Returns the float.
pub fn splat(x: f32) -> f32 {
    x
}

/// Returns a + b.
pub fn add(a: f32, b: f32) -> f32 {
    a + b
}

/// Returns a − b.
pub fn sub(a: f32, b: f32) -> f32 {
    a - b
}

/// Returns a · b.
pub fn mul(a: f32, b: f32) -> f32 {
    a * b
}

/// Returns a / b.
pub fn div(a: f32, b: f32) -> f32 {
    a / b
}

/// Returns a · b + c, rounded twice.
pub fn add_product(a: f32, b: f32, c: f32) -> f32 {
    a * b + c
}

/// Returns the float.
pub fn sum(v: f32) -> f32 {
    v
}

/// Returns the float: a transform of one number.
pub fn hadamard(v: f32) -> f32 {
    v
}
