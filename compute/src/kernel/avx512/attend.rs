//! Softmax attention with 16 lanes.

use crate::kernel::attention::attention;

attention!("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,fma,f16c", 16, 8, 4, 16, super::lanes,
    [
    F16 u16 load_f16 load_f16_pair in_order in_order,
    Bf16 u16 load_bf16 load_bf16_pair interleave deinterleave,
    Int8 i8 load_int8 load_int8_pair in_order in_order
]);
