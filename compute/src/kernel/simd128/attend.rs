//! Softmax attention with 4 lanes.

use crate::kernel::attention::attention;

attention!("simd128", 4, 3, 3, 12, super::lanes, []);
