//! Softmax attention with 8 lanes.

use crate::kernel::attention::attention;

attention!("avx2,fma,f16c", 8, 4, 4, 8, super::lanes, [
    F16 u16 load_f16 load_f16_pair in_order in_order,
    Bf16 u16 load_bf16 load_bf16_pair interleave deinterleave,
    Int8 i8 load_int8 load_int8_pair in_order in_order
]);
