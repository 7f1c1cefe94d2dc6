//! Keys and values as the cache keeps them: pages of one KV head, in a type of few bits where that is
//! asked for. 8-bit types keep a scale per position and head beside their codes.

mod codec;
mod summary;

pub(super) use codec::codecs;
pub use codec::{
    Bf16, Element, F16, F32, Fp8E4m3, Fp8E5m2, Int8, keys, values, write_key, write_value,
};
pub use summary::{estimate, summarize};

use super::PAGE;
use std::ops::Range;

/// Element type of cached keys or values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum KvType {
    /// IEEE single precision.
    #[default]
    F32,
    /// IEEE half precision; what is larger than 65,504 becomes infinite.
    F16,
    /// The upper half of an f32.
    Bf16,
    /// Four bits of exponent, three of mantissa (OCP OFP8), times a scale per position and head.
    Fp8E4m3,
    /// Five bits of exponent, two of mantissa (OCP OFP8), times a scale per position and head.
    Fp8E5m2,
    /// −127..=127 times a scale per position and head.
    Int8,
}

impl KvType {
    /// How many there are.
    pub const COUNT: usize = 6;

    /// All, as [`Kernels::kv`](super::Kernels::kv) is ordered.
    pub const ALL: [Self; Self::COUNT] =
        [Self::F32, Self::F16, Self::Bf16, Self::Fp8E4m3, Self::Fp8E5m2, Self::Int8];

    /// `f32`, `f16`, `bf16`, `fp8-e4m3`, `fp8-e5m2` or `int8`.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::Fp8E4m3 => "fp8-e4m3",
            Self::Fp8E5m2 => "fp8-e5m2",
            Self::Int8 => "int8",
        }
    }

    /// The type of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|t| t.name() == name)
    }

    /// Bytes of an element.
    pub fn size(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
            Self::Fp8E4m3 | Self::Fp8E5m2 | Self::Int8 => 1,
        }
    }

    /// Bytes of a page's scales.
    fn scale_bytes(self) -> usize {
        if self.size() == 1 { PAGE * size_of::<f32>() } else { 0 }
    }
}

/// One head's page: `[keys | values | scales of keys: PAGE | of values: PAGE]`. Scales are f32 and only
/// there where the type has them. How codes stand in their parts is the kernels' own ([`KvCodec`]);
/// f32 stand as they are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageLayout {
    /// Width of a head.
    pub head_dim: usize,
    /// Type of the keys.
    pub keys: KvType,
    /// Type of the values.
    pub values: KvType,
}

/// Reads a page's codes, with their scales, if there are any.
type DecodeFn = fn(codes: &[u8], scales: &[f32], out: &mut [f32]);

/// How one [`KvType`] is written and read by a set of kernels.
#[derive(Clone, Copy)]
pub struct KvCodec {
    /// Writes a head's vector to place `slot` of a page's keys and returns its scale: 1 for types
    /// without, NaN where the vector is not finite.
    pub write_key: fn(x: &[f32], codes: &mut [u8], slot: usize) -> f32,
    /// The same for a page's values. A type without scales returns NaN for what is not finite where it
    /// has no codes for that.
    pub write_value: fn(x: &[f32], codes: &mut [u8], slot: usize) -> f32,
    /// A page's keys as f32, `[head_dim][PAGE]`.
    pub keys: DecodeFn,
    /// A page's values as f32, `[PAGE][head_dim]`.
    pub values: DecodeFn,
    /// Whether codes stand on a page as their numbers do when they are decoded.
    pub plain: bool,
}

/// Keys or values of a page as attention reads them.
#[derive(Clone, Copy)]
pub enum Numbers<'a> {
    /// As they are multiplied.
    F32(&'a [f32]),
    /// Codes of [`KvType::F16`].
    F16(&'a [u16]),
    /// Codes of [`KvType::Bf16`].
    Bf16(&'a [u16]),
}

impl<'a> Numbers<'a> {
    /// Codes of 16 bits, if these are and stand in the order of their numbers.
    pub fn of_codes(dtype: KvType, kv: &[KvCodec; KvType::COUNT], codes: &'a [u8]) -> Option<Self> {
        match dtype {
            _ if !kv[dtype as usize].plain => None,
            KvType::F16 => Some(Self::F16(bytemuck::cast_slice(codes))),
            KvType::Bf16 => Some(Self::Bf16(bytemuck::cast_slice(codes))),
            _ => None,
        }
    }
}

impl PageLayout {
    /// Bytes of a page.
    pub fn bytes(&self) -> usize {
        self.value_scales().end
    }

    /// Keys or values of a page.
    fn numbers(&self) -> usize {
        self.head_dim * PAGE
    }

    fn key_codes(&self) -> Range<usize> {
        0..self.numbers() * self.keys.size()
    }

    fn value_codes(&self) -> Range<usize> {
        let from = self.key_codes().end;
        from..from + self.numbers() * self.values.size()
    }

    fn key_scales(&self) -> Range<usize> {
        let from = self.value_codes().end;
        from..from + self.keys.scale_bytes()
    }

    fn value_scales(&self) -> Range<usize> {
        let from = self.key_scales().end;
        from..from + self.values.scale_bytes()
    }

    /// Writes the key and the value of one position to place `slot` of a page.
    pub fn write(
        &self,
        kv: &[KvCodec; KvType::COUNT],
        page: &mut [u8],
        slot: usize,
        (key, value): (&[f32], &[f32]),
    ) {
        let codec = &kv[self.values as usize];
        let scale = (codec.write_value)(value, &mut page[self.value_codes()], slot);
        set(&mut page[self.value_scales()], slot, scale);
        // Whoever sees a value that could not be stored sees it in the key.
        let broken: Vec<f32>;
        let key = if scale.is_nan() && self.values.scale_bytes() == 0 {
            broken = vec![f32::NAN; key.len()];
            &broken
        } else {
            key
        };
        let codec = &kv[self.keys as usize];
        let scale = (codec.write_key)(key, &mut page[self.key_codes()], slot);
        set(&mut page[self.key_scales()], slot, scale);
    }

    /// Where a page's values begin.
    pub fn value_start(&self) -> usize {
        self.value_codes().start
    }

    /// The bytes of a page's keys.
    pub fn key_bytes<'a>(&self, page: &'a [u8]) -> &'a [u8] {
        &page[self.key_codes()]
    }

    /// The bytes of a page's values.
    pub fn value_bytes<'a>(&self, page: &'a [u8]) -> &'a [u8] {
        &page[self.value_codes()]
    }

    /// A page's keys, `[head_dim][PAGE]`: as they stand there, or decoded to `room`.
    #[inline]
    pub fn keys<'a>(
        &self,
        kv: &[KvCodec; KvType::COUNT],
        page: &'a [u8],
        room: &'a mut [f32],
    ) -> &'a [f32] {
        let (codes, scales) = (&page[self.key_codes()], &page[self.key_scales()]);
        self.decoded(self.keys, kv[self.keys as usize].keys, (codes, scales), room)
    }

    /// A page's values, `[PAGE][head_dim]`: as they stand there, or decoded to `room`.
    #[inline]
    pub fn values<'a>(
        &self,
        kv: &[KvCodec; KvType::COUNT],
        page: &'a [u8],
        room: &'a mut [f32],
    ) -> &'a [f32] {
        let (codes, scales) = (&page[self.value_codes()], &page[self.value_scales()]);
        self.decoded(self.values, kv[self.values as usize].values, (codes, scales), room)
    }

    /// Keys or values as they stand there, or decoded to `room`.
    #[inline]
    fn decoded<'a>(
        &self,
        dtype: KvType,
        decode: DecodeFn,
        (codes, scales): (&'a [u8], &[u8]),
        room: &'a mut [f32],
    ) -> &'a [f32] {
        if dtype == KvType::F32 {
            return bytemuck::cast_slice(codes);
        }
        let room = &mut room[..self.numbers()];
        decode(codes, bytemuck::cast_slice(scales), room);
        room
    }
}

/// Sets one of a page's scales, if it has any.
fn set(scales: &mut [u8], slot: usize, scale: f32) {
    if let Some(place) = bytemuck::cast_slice_mut(scales).get_mut(slot) {
        *place = scale;
    }
}
