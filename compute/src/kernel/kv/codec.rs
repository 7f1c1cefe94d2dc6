//! Encoding and decoding of the KV types, in Rust without branches.
//!
//! Compiled with the features of an instruction set, the loops become vector code. All sets agree bit
//! for bit because there is one source.

use super::PAGE;
use bytemuck::{Pod, Zeroable};

/// A [`KvType`](super::KvType) known at compile time.
pub trait Element {
    /// Type of a stored code.
    type Code: Pod;
    /// Largest number that has a code, for types whose vectors are scaled to it.
    const LARGEST: Option<f32> = None;
    /// Returns the nearest code; of two the even one.
    fn encode(x: f32) -> Self::Code;
    /// Returns the number of a code.
    fn decode(code: Self::Code) -> f32;
}

/// See [`KvType::F32`](super::KvType::F32).
pub struct F32;
/// See [`KvType::F16`](super::KvType::F16).
pub struct F16;
/// See [`KvType::Bf16`](super::KvType::Bf16).
pub struct Bf16;
/// See [`KvType::Fp8E4m3`](super::KvType::Fp8E4m3).
pub struct Fp8E4m3;
/// See [`KvType::Fp8E5m2`](super::KvType::Fp8E5m2).
pub struct Fp8E5m2;
/// See [`KvType::Int8`](super::KvType::Int8).
pub struct Int8;

impl Element for F32 {
    type Code = f32;

    #[inline(always)]
    fn encode(x: f32) -> f32 {
        x
    }

    #[inline(always)]
    fn decode(code: f32) -> f32 {
        code
    }
}

impl Element for Bf16 {
    type Code = u16;

    #[inline(always)]
    fn encode(x: f32) -> u16 {
        let bits = x.to_bits();
        let rounded = bits.wrapping_add(0x7FFF + (bits >> 16 & 1));
        let nan = bits & 0x7FFF_FFFF > INFINITE;
        ((if nan { bits | 0x40_0000 } else { rounded }) >> 16) as u16
    }

    #[inline(always)]
    fn decode(code: u16) -> f32 {
        f32::from_bits(u32::from(code) << 16)
    }
}

impl Element for F16 {
    type Code = u16;

    #[inline(always)]
    fn encode(x: f32) -> u16 {
        let magnitude = x.to_bits() & 0x7FFF_FFFF;
        // Half way between the largest f16 and 65,536.
        let beyond = magnitude >= 65_520f32.to_bits();
        let special = if magnitude > INFINITE { 0x7E00 } else { 0x7C00 };
        let code = encode::<5, 10>(x);
        (if beyond { code & 0x8000 | special } else { code }) as u16
    }

    #[inline(always)]
    fn decode(code: u16) -> f32 {
        let special = if code & 0x7C00 == 0x7C00 { INFINITE } else { 0 };
        f32::from_bits(decode::<5, 10>(i32::from(code.cast_signed())).to_bits() | special)
    }
}

impl Element for Fp8E4m3 {
    type Code = u8;
    const LARGEST: Option<f32> = Some(448.0);

    #[inline(always)]
    fn encode(x: f32) -> u8 {
        encode::<4, 3>(x) as u8
    }

    #[inline(always)]
    fn decode(code: u8) -> f32 {
        decode::<4, 3>(i32::from(code.cast_signed()))
    }
}

impl Element for Fp8E5m2 {
    type Code = u8;
    const LARGEST: Option<f32> = Some(57_344.0);

    #[inline(always)]
    fn encode(x: f32) -> u8 {
        encode::<5, 2>(x) as u8
    }

    #[inline(always)]
    fn decode(code: u8) -> f32 {
        decode::<5, 2>(i32::from(code.cast_signed()))
    }
}

impl Element for Int8 {
    type Code = i8;
    const LARGEST: Option<f32> = Some(127.0);

    #[inline(always)]
    fn encode(x: f32) -> i8 {
        // Adding 1.5 · 2²³ leaves the rounded number in the lowest bits.
        (x + 12_582_912.0).to_bits() as i8
    }

    #[inline(always)]
    fn decode(code: i8) -> f32 {
        f32::from(code)
    }
}

/// Bits of infinity: larger magnitudes are NaN.
const INFINITE: u32 = 0x7F80_0000;

/// Returns the code of a small IEEE-like float. `x` must round to a finite one.
#[inline(always)]
fn encode<const EXPONENT: u32, const MANTISSA: u32>(x: f32) -> u32 {
    let (bias, cut) = ((1 << (EXPONENT - 1)) - 1, 23 - MANTISSA);
    let bits = x.to_bits();
    let (sign, magnitude) = (bits >> 31 << (EXPONENT + MANTISSA), bits & 0x7FFF_FFFF);
    let half = (1 << (cut - 1)) - 1 + (magnitude >> cut & 1);
    let normal = (magnitude.wrapping_add(half) >> cut).wrapping_sub((127 - bias) << MANTISSA);
    // An f32 whose last place is worth as much as the least subnormal of the small float.
    let unit = (127 + 24 - bias - MANTISSA) << 23;
    let subnormal = (f32::from_bits(magnitude) + f32::from_bits(unit)).to_bits().wrapping_sub(unit);
    sign | if magnitude < (128 - bias) << 23 { subnormal } else { normal }
}

/// Returns the number of such a code, which comes sign-extended. The code's bits are shifted to their
/// place in an f32, and a multiplication corrects the exponent's bias. That is exact, and makes
/// subnormals normal.
#[inline(always)]
fn decode<const EXPONENT: u32, const MANTISSA: u32>(code: i32) -> f32 {
    let (bias, cut) = ((1 << (EXPONENT - 1)) - 1, 23 - MANTISSA);
    let mask = (1 << 31) | ((1 << (EXPONENT + MANTISSA)) - 1) << cut;
    let bits = code.cast_unsigned() << cut & mask;
    f32::from_bits(bits) * f32::from_bits((254 - bias) << 23)
}

/// Returns the factors for numbers before they are encoded and after they are decoded.
#[inline(always)]
fn factors<E: Element>(x: &[f32]) -> (f32, f32) {
    let Some(largest) = E::LARGEST else { return (1.0, 1.0) };
    // As integers, because then numbers that are not finite are the largest.
    let top = x.iter().map(|x| x.to_bits() & 0x7FFF_FFFF).max().unwrap_or(0);
    match f32::from_bits(top) {
        _ if top >= INFINITE => (0.0, f32::NAN),
        // The scale would underflow.
        top if top < f32::MIN_POSITIVE * largest => (0.0, 0.0),
        top => (largest / top, top / largest),
    }
}

/// Number of elements that are encoded at a time.
const TILE: usize = 32;

/// See [`KvCodec::write_key`](super::KvCodec::write_key). Keys are ordered by dimension,
/// `[head_dim][PAGE]`, so that a kernel scores neighboring positions with one vector.
#[inline(always)]
pub fn write_key<E: Element>(x: &[f32], codes: &mut [u8], slot: usize) -> f32 {
    write::<E>(x, &mut codes[slot * size_of::<E::Code>()..], PAGE)
}

/// See [`KvCodec::write_value`](super::KvCodec::write_value). Values are ordered by
/// position, `[PAGE][head_dim]`.
#[inline(always)]
pub fn write_value<E: Element>(x: &[f32], codes: &mut [u8], slot: usize) -> f32 {
    write::<E>(x, &mut codes[slot * x.len() * size_of::<E::Code>()..], 1)
}

/// Writes a head's vector to every `stride`-th element of `codes`, from the first on. Returns its scale.
#[inline(always)]
fn write<E: Element>(x: &[f32], codes: &mut [u8], stride: usize) -> f32 {
    let (before, after) = factors::<E>(x);
    let encode = |x: f32| match E::LARGEST {
        // Infinity and NaN times zero would be NaN.
        Some(_) if before == 0.0 => E::encode(0.0),
        Some(_) => E::encode(x * before),
        None => E::encode(x),
    };
    let codes: &mut [E::Code] = bytemuck::cast_slice_mut(codes);
    let mut tile = [E::Code::zeroed(); TILE];
    for (x, codes) in x.chunks(TILE).zip(codes.chunks_mut(TILE * stride)) {
        tile.iter_mut().zip(x).for_each(|(code, x)| *code = encode(*x));
        codes.iter_mut().step_by(stride).zip(&tile[..x.len()]).for_each(|(to, code)| *to = *code);
    }
    after
}

/// See [`KvCodec::keys`](super::KvCodec::keys).
#[inline(always)]
pub fn keys<E: Element>(codes: &[u8], scales: &[f32], out: &mut [f32]) {
    let codes: &[E::Code] = bytemuck::cast_slice(codes);
    let scales: [f32; PAGE] = std::array::from_fn(|slot| scales.get(slot).copied().unwrap_or(1.0));
    for (out, codes) in out.as_chunks_mut::<PAGE>().0.iter_mut().zip(codes.as_chunks::<PAGE>().0) {
        for slot in 0..PAGE {
            out[slot] = scaled::<E>(codes[slot], scales[slot]);
        }
    }
}

/// See [`KvCodec::values`](super::KvCodec::values).
#[inline(always)]
pub fn values<E: Element>(codes: &[u8], scales: &[f32], out: &mut [f32]) {
    let codes: &[E::Code] = bytemuck::cast_slice(codes);
    let head_dim = out.len() / PAGE;
    let rows = out.chunks_exact_mut(head_dim).zip(codes.chunks_exact(head_dim));
    for (slot, (out, codes)) in rows.enumerate() {
        let scale = scales.get(slot).copied().unwrap_or(1.0);
        out.iter_mut().zip(codes).for_each(|(out, code)| *out = scaled::<E>(*code, scale));
    }
}

/// Decodes a code, times the scale if the type has scales.
#[inline(always)]
fn scaled<E: Element>(code: E::Code, scale: f32) -> f32 {
    match E::LARGEST {
        Some(_) => E::decode(code) * scale,
        None => E::decode(code),
    }
}

/// Builds the codec table of an instruction set; `$codec!(type)` builds the codec of one type.
macro_rules! codecs {
    ($codec:ident) => {{
        use crate::kernel::kv::{Bf16, F16, F32, Fp8E4m3, Fp8E5m2, Int8};
        [
            $codec!(F32),
            $codec!(F16),
            $codec!(Bf16),
            $codec!(Fp8E4m3),
            $codec!(Fp8E5m2),
            $codec!(Int8),
        ]
    }};
}
pub(in crate::kernel) use codecs;
