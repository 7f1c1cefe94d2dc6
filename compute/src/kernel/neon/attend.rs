//! Softmax attention with 4 lanes.

use crate::kernel::attention::attention;

attention!("neon", 4, 6, 4, 24, super::lanes, [
    F16 u16 load_f16 load_f16_pair in_order in_order,
    Bf16 u16 load_bf16 load_bf16_pair in_order in_order,
    Int8 i8 load_int8 load_int8_pair in_order in_order
]);
