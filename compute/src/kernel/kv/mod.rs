//! Keys and values in the cache: pages of one KV head, in one of six element types. 8-bit types also
//! have a scale per position and head.

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
    /// IEEE half precision; numbers above 65,504 become infinite.
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
    /// Number of types.
    pub const COUNT: usize = 6;

    /// All types, in the order of [`Kernels::kv`](super::Kernels::kv).
    pub const ALL: [Self; Self::COUNT] =
        [Self::F32, Self::F16, Self::Bf16, Self::Fp8E4m3, Self::Fp8E5m2, Self::Int8];

    /// Name of the type: `f32`, `f16`, `bf16`, `fp8-e4m3`, `fp8-e5m2` or `int8`.
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

    /// Returns the type of this name.
    ///
    /// ```
    /// use wrinklefree_compute::kernel::KvType;
    ///
    /// assert_eq!(KvType::parse("bf16"), Some(KvType::Bf16));
    /// assert_eq!(KvType::Bf16.size(), 2);
    /// ```
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|t| t.name() == name)
    }

    /// Number of bytes of an element.
    pub fn size(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
            Self::Fp8E4m3 | Self::Fp8E5m2 | Self::Int8 => 1,
        }
    }

    /// Number of bytes of a page's scales.
    fn scale_bytes(self) -> usize {
        if self.size() == 1 { PAGE * size_of::<f32>() } else { 0 }
    }
}

/// Layout of a page of one head: `[keys | values | key scales: PAGE | value scales: PAGE]`.
///
/// Scales are f32, and absent if the type has none. The order of codes within keys and values is up to
/// the instruction set ([`KvCodec`]); f32 are in the order in which they are read.
///
/// ```
/// use wrinklefree_compute::kernel::{Kernels, KvType, PAGE, PageLayout};
///
/// let layout = PageLayout { head_dim: 2, keys: KvType::F32, values: KvType::Int8 };
/// assert_eq!(layout.bytes(), PAGE * (2 * 4 + 2 + 4));
///
/// let kernels = Kernels::best();
/// let mut page = vec![0f32; layout.bytes().div_ceil(4)];
/// let page: &mut [u8] = bytemuck::cast_slice_mut(&mut page);
/// layout.write(&kernels.kv, page, 0, (&[1.0, 2.0], &[0.5, -1.0]));
/// let keys = layout.keys(&kernels.kv, page, &mut []);
/// assert_eq!((keys[0], keys[PAGE]), (1.0, 2.0)); // `[head_dim][PAGE]`
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageLayout {
    /// Width of a head.
    pub head_dim: usize,
    /// Type of the keys.
    pub keys: KvType,
    /// Type of the values.
    pub values: KvType,
}

/// Decodes a page's codes with their scales, if the type has scales.
type DecodeFn = fn(codes: &[u8], scales: &[f32], out: &mut [f32]);

/// Functions of an instruction set that write and read one [`KvType`].
#[derive(Clone, Copy)]
pub struct KvCodec {
    /// Writes a head's vector to slot `slot` of a page's keys and returns its scale: 1 for types without
    /// scales, NaN if the vector is not finite.
    pub write_key: fn(x: &[f32], codes: &mut [u8], slot: usize) -> f32,
    /// Writes a head's vector to slot `slot` of a page's values and returns its scale. A type without
    /// scales returns NaN if it cannot store a vector that is not finite.
    pub write_value: fn(x: &[f32], codes: &mut [u8], slot: usize) -> f32,
    /// Decodes a page's keys to f32, `[head_dim][PAGE]`.
    pub keys: DecodeFn,
    /// Decodes a page's values to f32, `[PAGE][head_dim]`.
    pub values: DecodeFn,
    /// True if codes are in the same order as the decoded numbers.
    pub plain: bool,
}

/// Codes of a page's keys or values, with their scales.
#[derive(Clone, Copy)]
pub struct PageCodes<'a> {
    /// Type of the codes.
    pub dtype: KvType,
    /// Codes in the order of the instruction set.
    pub codes: &'a [u8],
    /// Scale of each position, `[PAGE]`; empty if the type has none.
    pub scales: &'a [f32],
}

impl<'a> PageCodes<'a> {
    /// Returns the numbers without their scales, `[head_dim][PAGE]` of keys or `[PAGE][head_dim]` of
    /// values: f32 from the page itself, other types decoded to `buffer`.
    #[inline]
    pub fn decode(
        &self,
        kv: &[KvCodec; KvType::COUNT],
        keys: bool,
        buffer: &'a mut [f32],
    ) -> &'a [f32] {
        let Self { dtype, codes, .. } = *self;
        if dtype == KvType::F32 {
            return bytemuck::cast_slice(codes);
        }
        let codec = &kv[dtype as usize];
        let buffer = &mut buffer[..codes.len() / dtype.size()];
        (if keys { codec.keys } else { codec.values })(codes, &[], buffer);
        buffer
    }
}

/// Keys or values of a page without their scales, as f32 or as codes.
#[derive(Clone, Copy)]
pub enum PageElements<'a> {
    /// Decoded numbers.
    F32(&'a [f32]),
    /// Codes of [`KvType::F16`].
    F16(&'a [u16]),
    /// Codes of [`KvType::Bf16`].
    Bf16(&'a [u16]),
    /// Codes of [`KvType::Int8`].
    Int8(&'a [i8]),
}

impl<'a> PageElements<'a> {
    /// Returns codes that kernels read, if they are in the order of the decoded numbers.
    #[inline]
    pub fn of_codes(kv: &[KvCodec; KvType::COUNT], page: PageCodes<'a>) -> Option<Self> {
        let PageCodes { dtype, codes, .. } = page;
        match dtype {
            _ if !kv[dtype as usize].plain => None,
            KvType::F16 => Some(Self::F16(bytemuck::cast_slice(codes))),
            KvType::Bf16 => Some(Self::Bf16(bytemuck::cast_slice(codes))),
            KvType::Int8 => Some(Self::Int8(bytemuck::cast_slice(codes))),
            _ => None,
        }
    }
}

impl PageLayout {
    /// Number of bytes of a page.
    pub fn bytes(&self) -> usize {
        self.value_scales().end
    }

    /// Number of keys, or of values, of a page.
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

    /// Writes the key and the value of one position to slot `slot` of a page.
    pub fn write(
        &self,
        kv: &[KvCodec; KvType::COUNT],
        page: &mut [u8],
        slot: usize,
        (key, value): (&[f32], &[f32]),
    ) {
        let codec = &kv[self.values as usize];
        let scale = (codec.write_value)(value, &mut page[self.value_codes()], slot);
        set_scale(&mut page[self.value_scales()], slot, scale);
        // A value that could not be stored makes the key NaN, so that a row that sees it gets NaN.
        let broken: Vec<f32>;
        let key = if scale.is_nan() && self.values.scale_bytes() == 0 {
            broken = vec![f32::NAN; key.len()];
            &broken
        } else {
            key
        };
        let codec = &kv[self.keys as usize];
        let scale = (codec.write_key)(key, &mut page[self.key_codes()], slot);
        set_scale(&mut page[self.key_scales()], slot, scale);
    }

    /// Byte at which a page's values begin.
    pub fn value_start(&self) -> usize {
        self.value_codes().start
    }

    /// Returns the bytes of a page's keys.
    pub fn key_bytes<'a>(&self, page: &'a [u8]) -> &'a [u8] {
        &page[self.key_codes()]
    }

    /// Returns the codes of a page's keys.
    #[inline]
    pub fn key_codes_of<'a>(&self, page: &'a [u8]) -> PageCodes<'a> {
        let scales = bytemuck::cast_slice(&page[self.key_scales()]);
        PageCodes { dtype: self.keys, codes: &page[self.key_codes()], scales }
    }

    /// Returns the codes of a page's values.
    #[inline]
    pub fn value_codes_of<'a>(&self, page: &'a [u8]) -> PageCodes<'a> {
        let scales = bytemuck::cast_slice(&page[self.value_scales()]);
        PageCodes { dtype: self.values, codes: &page[self.value_codes()], scales }
    }

    /// Returns a page's keys, `[head_dim][PAGE]`: f32 from the page itself, other types decoded to
    /// `buffer`.
    #[inline]
    pub fn keys<'a>(
        &self,
        kv: &[KvCodec; KvType::COUNT],
        page: &'a [u8],
        buffer: &'a mut [f32],
    ) -> &'a [f32] {
        let (codes, scales) = (&page[self.key_codes()], &page[self.key_scales()]);
        self.decoded(self.keys, kv[self.keys as usize].keys, (codes, scales), buffer)
    }

    /// Returns a page's values, `[PAGE][head_dim]`: f32 from the page itself, other types decoded to
    /// `buffer`.
    #[inline]
    pub fn values<'a>(
        &self,
        kv: &[KvCodec; KvType::COUNT],
        page: &'a [u8],
        buffer: &'a mut [f32],
    ) -> &'a [f32] {
        let (codes, scales) = (&page[self.value_codes()], &page[self.value_scales()]);
        self.decoded(self.values, kv[self.values as usize].values, (codes, scales), buffer)
    }

    /// Returns keys or values from the page itself, or decoded to `buffer`.
    #[inline]
    fn decoded<'a>(
        &self,
        dtype: KvType,
        decode: DecodeFn,
        (codes, scales): (&'a [u8], &[u8]),
        buffer: &'a mut [f32],
    ) -> &'a [f32] {
        if dtype == KvType::F32 {
            return bytemuck::cast_slice(codes);
        }
        let buffer = &mut buffer[..self.numbers()];
        decode(codes, bytemuck::cast_slice(scales), buffer);
        buffer
    }
}

/// Sets one of a page's scales, if it has any.
fn set_scale(scales: &mut [u8], slot: usize, scale: f32) {
    if let Some(out) = bytemuck::cast_slice_mut(scales).get_mut(slot) {
        *out = scale;
    }
}
