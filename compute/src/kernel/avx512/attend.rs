//! Softmax attention with 16 lanes.

use crate::kernel::attention::attention;

attention!("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,fma,f16c", 16, 8, 4, 16, super::lanes,
    [F16 load_f16, Bf16 load_bf16]);
