//! The numerical core of WrinkleFree: packed matrices, SIMD kernels and the thread pool.
//!
//! It is a crate of its own for three reasons. All `unsafe` code of the core is here. It is optimized
//! for speed even where a browser's module is optimized for size. Its tests build without the rest.
//!
//! | module | contents |
//! | --- | --- |
//! | [`kernel`] | one table of functions per instruction set: products, attention, norms |
//! | [`matrix`] | ternary, int8 and float matrices in the layouts that kernels read |
//! | [`ternary`] | the packed layouts of ternary weights |
//! | [`loader`] | moves weights from a file to memory, on all workers |
//! | [`par`] | the thread pool |
//! | [`mem`] | aligned buffers, weights on huge pages |
//! | [`batch_types`] | attention masks and logits, which decoders and the forward pass share |
//!
//! A module imports only from modules below it in this table.
//!
//! A product of one row of activations with a ternary matrix:
//!
//! ```
//! use wrinklefree_compute::kernel::{Kernels, Quantized};
//! use wrinklefree_compute::par::{Columns, Scratch};
//! use wrinklefree_compute::ternary::{Scales, TernaryMatrix};
//!
//! // W = 0.5 · [[-1, 0, 1], [1, 1, 1]], as codes w + 1.
//! let codes = [[0, 1, 2], [2, 2, 2]];
//! let w = TernaryMatrix::pack(2, 3, Scales::Tensor(0.5), |row, out| {
//!     out.copy_from_slice(&codes[row]);
//! })?;
//!
//! // Quantize the activations to 8 bits.
//! let kernels = Kernels::best();
//! let stride = Quantized::stride_of(3);
//! let mut values = vec![0; stride];
//! let (sum, step) = (kernels.quantize8)(&[1.0, 2.0, 4.0], &mut values[..3]);
//! let (sums, steps) = (&[sum], &[step]);
//! let x = Quantized { values: &values, stride, sums, steps, planes: 1, groups: None };
//!
//! // One panel of up to 16 rows; the output has one row of two columns.
//! let mut y = [0.0; 2];
//! kernels.ternary(&w, 0..1, &x, &mut Columns::whole(&mut y, 2), &mut Scratch::default());
//! assert!((y[0] - 1.5).abs() < 0.05 && (y[1] - 3.5).abs() < 0.05);
//! # Ok::<(), wrinklefree_compute::ternary::LayoutError>(())
//! ```

pub mod batch_types;
pub mod kernel;
pub mod loader;
pub mod matrix;
pub mod mem;
pub mod par;
pub mod ternary;
