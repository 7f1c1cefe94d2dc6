//! Softmax attention with 8 lanes.

use crate::kernel::attention::attention;

attention!("avx2,fma,f16c", 8, 4, 4, 8, super::lanes, [F16 load_f16, Bf16 load_bf16]);
