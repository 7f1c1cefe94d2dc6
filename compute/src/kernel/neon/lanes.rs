//! Operations on 128-bit vectors. Loads and stores take arrays of the right length.

pub(super) use super::KV;
use super::instructions;
use crate::kernel::simd::lanes;
use std::arch::aarch64::*;

/// A vector of 4 floats.
pub type Vector = float32x4_t;
/// Integers of 64 bits, of each of a panel's 16 rows.
pub type Wide = [[int64x2_t; 2]; 4];

lanes! { "neon":
    /// Loads 16 bytes.
    fn load_u8(x: &[u8; 16]) -> uint8x16_t {
        // SAFETY: the array has 16 bytes.
        unsafe { vld1q_u8(x.as_ptr()) }
    }

    /// Loads 16 signed bytes.
    fn load_i8(x: &[i8; 16]) -> int8x16_t { vreinterpretq_s8_u8(load_u8(bytemuck::must_cast_ref(x))) }

    fn load(x: &[f32; 4]) -> float32x4_t {
        // SAFETY: the array has 4 floats.
        unsafe { vld1q_f32(x.as_ptr()) }
    }

    fn store(x: &mut [f32; 4], v: float32x4_t) {
        // SAFETY: the array has 4 floats.
        unsafe { vst1q_f32(x.as_mut_ptr(), v) };
    }

    /// Loads 4 16-bit codes.
    fn load_codes(codes: &[u16; 4]) -> uint16x4_t {
        // SAFETY: the array has 4 codes.
        unsafe { vld1_u16(codes.as_ptr()) }
    }

    fn load_f16(codes: &[u16; 4]) -> float32x4_t { widen_f16(load_codes(codes)) }

    fn load_bf16(codes: &[u16; 4]) -> float32x4_t {
        vreinterpretq_f32_u32(vshll_n_u16::<16>(load_codes(codes)))
    }

    /// Loads 8 numbers of [`KvType::F16`](crate::kernel::KvType::F16), in order.
    fn load_f16_pair(codes: &[u16; 8]) -> [float32x4_t; 2] {
        let [a, b]: [[u16; 4]; 2] = bytemuck::must_cast(*codes);
        [load_f16(&a), load_f16(&b)]
    }

    /// Loads 8 numbers of [`KvType::Bf16`](crate::kernel::KvType::Bf16), in order.
    fn load_bf16_pair(codes: &[u16; 8]) -> [float32x4_t; 2] {
        let [a, b]: [[u16; 4]; 2] = bytemuck::must_cast(*codes);
        [load_bf16(&a), load_bf16(&b)]
    }

    /// Loads 4 numbers of [`KvType::Int8`](crate::kernel::KvType::Int8), without their scale.
    fn load_int8(codes: &[i8; 4]) -> float32x4_t { floats(ints(codes)) }

    /// Loads 8 numbers of [`KvType::Int8`](crate::kernel::KvType::Int8), in order.
    fn load_int8_pair(codes: &[i8; 8]) -> [float32x4_t; 2] {
        let [a, b]: [[i8; 4]; 2] = bytemuck::must_cast(*codes);
        [load_int8(&a), load_int8(&b)]
    }

    /// Returns a pair of vectors that is in order.
    fn in_order(pair: [float32x4_t; 2]) -> [float32x4_t; 2] { pair }

    /// Converts 4 f16 to f32.
    fn widen_f16(codes: uint16x4_t) -> float32x4_t { instructions::widen_f16(codes) }

    fn prefetch(here: *const u8, ahead: usize) { instructions::prefetch(here.wrapping_add(ahead)); }

    /// As [`prefetch`], to the second-level cache.
    fn prefetch_second(here: *const u8, ahead: usize) {
        instructions::prefetch_second(here.wrapping_add(ahead));
    }

    /// Returns 4 zeros.
    fn zero() -> float32x4_t { splat(0.0) }

    fn splat(x: f32) -> float32x4_t { vdupq_n_f32(x) }
    fn mul(a: float32x4_t, b: float32x4_t) -> float32x4_t { vmulq_f32(a, b) }

    fn add_product(a: float32x4_t, b: float32x4_t, c: float32x4_t) -> float32x4_t {
        vfmaq_f32(c, a, b)
    }

    /// As [`add_product`], for single floats.
    fn add_product_one(a: f32, b: f32, c: f32) -> f32 { a.mul_add(b, c) }

    fn add(a: float32x4_t, b: float32x4_t) -> float32x4_t { vaddq_f32(a, b) }
    fn sub(a: float32x4_t, b: float32x4_t) -> float32x4_t { vsubq_f32(a, b) }
    fn div(a: float32x4_t, b: float32x4_t) -> float32x4_t { vdivq_f32(a, b) }

    /// Returns the larger of each pair; `b` if one is NaN.
    fn larger(a: float32x4_t, b: float32x4_t) -> float32x4_t { vbslq_f32(vcgtq_f32(a, b), a, b) }

    fn rectified(x: float32x4_t) -> float32x4_t { vmaxq_f32(x, zero()) }

    fn larger_magnitude(x: float32x4_t, top: float32x4_t) -> float32x4_t {
        vmaxnmq_f32(vabsq_f32(x), top)
    }

    fn splat_int(x: i32) -> int32x4_t { vdupq_n_s32(x) }

    fn round(x: float32x4_t, nan: i32) -> int32x4_t {
        vbslq_s32(vceqq_f32(x, x), vcvtnq_s32_f32(x), splat_int(nan))
    }

    fn add_ints(a: int32x4_t, b: int32x4_t) -> int32x4_t { vaddq_s32(a, b) }
    fn sub_ints(a: int32x4_t, b: int32x4_t) -> int32x4_t { vsubq_s32(a, b) }
    fn left8(x: int32x4_t) -> int32x4_t { vshlq_n_s32::<8>(x) }
    fn right8(x: int32x4_t) -> int32x4_t { vshrq_n_s32::<8>(x) }
    fn floats(x: int32x4_t) -> float32x4_t { vcvtq_f32_s32(x) }
    fn sum_ints(x: int32x4_t) -> i32 { vaddvq_s32(x) }

    fn ints(x: &[i8; 4]) -> int32x4_t {
        let bytes = vreinterpret_s8_s32(vdup_n_s32(bytemuck::must_cast(*x)));
        vmovl_s16(vget_low_s16(vmovl_s8(bytes)))
    }

    fn narrow([a, b, c, d]: [int32x4_t; 4], out: &mut [i8; 16]) {
        let low = vcombine_s16(vmovn_s32(a), vmovn_s32(b));
        let high = vcombine_s16(vmovn_s32(c), vmovn_s32(d));
        // SAFETY: the array has 16 bytes.
        unsafe { vst1q_s8(out.as_mut_ptr(), vcombine_s8(vmovn_s16(low), vmovn_s16(high))) };
    }

    fn wide_zero() -> Wide { [[vdupq_n_s64(0); 2]; 4] }

    fn wide_add(a: Wide, b: [int32x4_t; 4]) -> Wide {
        let mut out = a;
        for (out, b) in out.iter_mut().zip(b) {
            out[0] = vaddw_s32(out[0], vget_low_s32(b));
            out[1] = vaddw_high_s32(out[1], b);
        }
        out
    }

    fn wide_join(high: Wide, low: Wide) -> Wide {
        let mut out = low;
        for (out, high) in out.as_flattened_mut().iter_mut().zip(high.as_flattened()) {
            *out = vaddq_s64(vshlq_n_s64::<8>(*high), *out);
        }
        out
    }

    fn wide_sub(a: Wide, b: i64) -> Wide {
        let mut out = a;
        for out in out.as_flattened_mut() {
            *out = vsubq_s64(*out, vdupq_n_s64(b));
        }
        out
    }

    fn wide_round(a: Wide) -> [float32x4_t; 4] {
        let mut out = [zero(); 4];
        for (out, [low, high]) in out.iter_mut().zip(a) {
            // f64 holds sums of this size exactly, so they are rounded once.
            *out = vcvt_high_f32_f64(vcvt_f32_f64(vcvtq_f64_s64(low)), vcvtq_f64_s64(high));
        }
        out
    }

    fn sum(v: float32x4_t) -> f32 { vaddv_f32(vadd_f32(vget_low_f32(v), vget_high_f32(v))) }

    /// Returns the sum of whole vectors.
    fn total(x: &[f32]) -> f32 {
        let vectors = x.as_chunks().0.iter();
        sum(vectors.fold(zero(), |total, x| vaddq_f32(total, load(x))))
    }

    fn max(v: float32x4_t) -> f32 { vmaxnmvq_f32(v) }

    fn hadamard(v: float32x4_t) -> float32x4_t {
        // Each stage adds a number's partner to it, or subtracts it from the partner.
        let signs = load(&[1.0, -1.0, 1.0, -1.0]);
        let v = vfmaq_f32(vrev64q_f32(v), signs, v);
        let signs = load(&[1.0, 1.0, -1.0, -1.0]);
        vfmaq_f32(vextq_f32::<2>(v, v), signs, v)
    }

    fn exp(x: float32x4_t) -> float32x4_t {
        // These keep NaN.
        let x = vminq_f32(splat(88.0), vmaxq_f32(splat(-87.0), x));
        let n = vrndnq_f32(vmulq_n_f32(x, std::f32::consts::LOG2_E));
        let r = vfmsq_f32(x, n, splat(0.693_359_4));
        let r = vfmsq_f32(r, n, splat(-2.121_944_4e-4));
        let mut p = splat(1.987_569_1e-4);
        for c in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5] {
            p = vfmaq_f32(splat(c), p, r);
        }
        let p = vfmaq_f32(vaddq_f32(r, splat(1.0)), vmulq_f32(p, r), r);
        let power = vaddq_s32(vcvtq_s32_f32(n), vdupq_n_s32(127));
        vmulq_f32(p, vreinterpretq_f32_s32(vshlq_n_s32::<23>(power)))
    }
}
