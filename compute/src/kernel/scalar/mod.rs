//! The definition of every kernel, in plain Rust. All other instruction sets compute the same.

mod attend;
mod limits;
mod product;
pub mod row;
mod single;

pub use attend::{KV, attend};
pub use limits::{multiply, read};
pub use product::{float, int8, ternary};
pub use row::{add, exp, quantize8, quantize16, relu2_mul, rms_norm, rope, silu_mul};
pub use single::Scalar;
