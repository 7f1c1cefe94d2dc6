//! Kernels: a table of functions for one instruction set, chosen once and passed as a value. (Samplers
//! alone take the widest set by themselves: all weigh logits alike, bit for bit.)
//!
//! `scalar` is the definition. Integer kernels of every other set equal it bit for bit; float
//! kernels agree within the tolerance that `tests/kernels.rs` states. Whatever the set, a row's
//! result depends on nothing but that row: not on the batch around it, nor on how the work was
//! split. A new set needs its functions and one arm in [`Kernels::for_isa`].

#[cfg(any(target_arch = "x86_64", all(target_arch = "wasm32", target_feature = "simd128")))]
mod attention;
mod exp;
mod kv;
mod operands;
#[cfg(any(target_arch = "x86_64", all(target_arch = "wasm32", target_feature = "simd128")))]
mod packing;
#[cfg(target_arch = "x86_64")]
mod panels;
mod scalar;
#[cfg(any(target_arch = "x86_64", all(target_arch = "wasm32", target_feature = "simd128")))]
mod walk;

#[cfg(target_arch = "x86_64")]
mod amx;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
mod simd128;

pub use exp::exp;
pub use kv::{KvCodec, KvType, Numbers, PageLayout};
pub use operands::{Attention, Quantized};

use crate::matrix::{FloatMatrix, Int8View};
use crate::par::{Columns, Scratch};
use crate::ternary::{Layout, TernaryMatrix};
use std::ops::Range;

/// Positions in a page of keys and values: a diffusion block, and four vectors of f32 in AVX2.
pub const PAGE: usize = 32;

/// An instruction set that kernels exist for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Isa {
    /// Plain Rust: the definition that every other set must equal.
    Scalar,
    /// x86-64 with AVX2, FMA and F16C.
    Avx2,
    /// x86-64 with AVX-512 F, BW, VL, DQ and VNNI.
    Avx512,
    /// The same with AMX tiles of int8 and bf16, on Linux.
    Amx,
    /// WebAssembly with 128-bit SIMD.
    Simd128,
    /// The same with the relaxed integer dot product; only with the feature `relaxed-simd`.
    RelaxedSimd,
}

impl Isa {
    /// All, of each architecture from the narrowest to the widest.
    pub const ALL: [Self; 6] =
        [Self::Scalar, Self::Avx2, Self::Avx512, Self::Amx, Self::Simd128, Self::RelaxedSimd];

    /// `scalar`, `avx2`, `avx512`, `amx`, `simd128` or `relaxed-simd`, as `WF_ISA` spells them.
    pub fn name(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
            Self::Amx => "amx",
            Self::Simd128 => "simd128",
            Self::RelaxedSimd => "relaxed-simd",
        }
    }

    /// The instruction set of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|i| i.name() == name)
    }
}

/// Ternary × int8: see [`Kernels::ternary`].
type TernaryFn = fn(&TernaryMatrix, Range<usize>, &Quantized<'_>, &mut Columns<'_>, &mut Scratch);
/// int8 × int8: see [`Kernels::int8`].
type Int8Fn = fn(Int8View<'_>, Range<usize>, &Quantized<'_>, &mut Columns<'_>, &mut Scratch);
/// Float × f32: see [`Kernels::float`].
type FloatFn = fn(&FloatMatrix, Range<usize>, &[f32], &mut Columns<'_>);
/// A row in two planes of int8: see [`Kernels::quantize16`].
type Quantize16Fn = fn(&[f32], &mut [i8], &mut [i8]) -> ([i32; 2], f32);

/// The kernels of one instruction set.
///
/// A product computes `y = x · Wᵀ` for every row of `x` and a range of the matrix's panels (of 16
/// rows; single rows of a float matrix); the view `y` holds exactly these outputs.
#[derive(Clone, Copy)]
pub struct Kernels {
    isa: Isa,
    /// Ternary × int8 over panels, of matrices in two bits, and of those in the tight layout where the
    /// set reads them.
    two_bit: TernaryFn,
    tight: Option<TernaryFn>,
    /// int8 × int8 over panels.
    pub int8: Int8Fn,
    /// Float matrix × f32 rows, `[rows][cols]`, over weight rows.
    pub float: FloatFn,
    /// Quantizes a row to 8 bits: writes values, returns (Σ values, step).
    pub quantize8: fn(&[f32], &mut [i8]) -> (i32, f32),
    /// Quantizes a row to 15 bits in two planes: writes the high and the low plane, returns the
    /// sums of both and the low plane's step (the high one's is 256 times that).
    pub quantize16: Quantize16Fn,
    /// RMSNorm: out = x / √(mean x² + ε) · weight.
    pub rms_norm: fn(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]),
    /// Rotates one head in NeoX order: `cos` and `sin` are `[head_dim / 2]`.
    pub rope: fn(head: &mut [f32], cos: &[f32], sin: &[f32]),
    /// gate = silu(gate) · up.
    pub silu_mul: fn(gate: &mut [f32], up: &[f32]),
    /// gate = max(gate, 0)² · up.
    pub relu2_mul: fn(gate: &mut [f32], up: &[f32]),
    /// x += y.
    pub add: fn(x: &mut [f32], y: &[f32]),
    /// Softmax attention; the view `out` is `[rows][group · head_dim]`.
    pub attend: fn(&Attention<'_>, out: &mut Columns<'_>, &mut Scratch),
    /// How each [`KvType`] is written and read, in the order of [`KvType::ALL`].
    pub kv: [KvCodec; KvType::COUNT],
    /// A page's keys, `[head_dim][PAGE]`, in short: `[means: head_dim | variances: head_dim]`.
    pub summarize: fn(keys: &[f32], summary: &mut [f32]),
    /// The logarithm of the mean weight that attention gives a key of the page, by its summary, for
    /// the query, of `[queries][head_dim]`, that gives it most: E exp(s·q·k) ≈ exp(s·q·μ + Σ
    /// (s·q)²σ²/2), which is exact for keys that are distributed normally.
    pub estimate: fn(queries: &[f32], scale: f32, summary: &[f32]) -> f32,
    /// Σ exp(x − max) over logits x ≤ max, NaN as −∞. The same bits with every set.
    pub sum_exp: fn(logits: &[f32], max: f32) -> f64,
    /// x = exp((x − max) · scale) of logits x ≤ max: 1 for the highest ones, 0 for NaN. The same bits
    /// with every set.
    pub weigh: fn(logits: &mut [f32], max: f32, scale: f32),
    /// Reads memory as fast as it comes: XOR of all lines. What products are bounded by is measured
    /// with it.
    pub read: fn(lines: &[[u64; 8]]) -> [u64; 8],
    /// Multiplies int8 in registers as fast as it goes, `rounds` times; returns how many products
    /// that were. What batches are bounded by is measured with it.
    pub multiply: fn(rounds: usize) -> u64,
}

impl Kernels {
    /// The definition.
    pub const SCALAR: Self = Self {
        isa: Isa::Scalar,
        two_bit: scalar::ternary,
        tight: None,
        int8: scalar::int8,
        float: scalar::float,
        quantize8: scalar::quantize8,
        quantize16: scalar::quantize16,
        rms_norm: scalar::rms_norm,
        rope: scalar::rope,
        silu_mul: scalar::silu_mul,
        relu2_mul: scalar::relu2_mul,
        add: scalar::add,
        attend: scalar::attend,
        kv: scalar::KV,
        summarize: kv::summarize,
        estimate: kv::estimate,
        sum_exp: exp::sum_exp,
        weigh: exp::weigh,
        read: scalar::read,
        multiply: scalar::multiply,
    };

    /// The kernels of `isa`, if this machine can run them: the only feature detection there is.
    pub fn for_isa(isa: Isa) -> Option<Self> {
        match isa {
            Isa::Scalar => Some(Self::SCALAR),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => avx2::available().then_some(avx2::KERNELS),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => avx512::available().then(|| avx512::tight(avx512::best())),
            #[cfg(target_arch = "x86_64")]
            Isa::Amx => amx::available().then(|| avx512::tight(amx::KERNELS)),
            #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
            Isa::Simd128 => Some(simd128::KERNELS),
            #[cfg(all(
                target_arch = "wasm32",
                target_feature = "simd128",
                feature = "relaxed-simd"
            ))]
            Isa::RelaxedSimd => Some(simd128::RELAXED),
            // Every architecture leaves some of them out.
            #[allow(unreachable_patterns)]
            _ => None,
        }
    }

    /// The kernels of every instruction set that this machine can run, the widest last.
    pub fn all() -> impl Iterator<Item = Self> {
        Isa::ALL.into_iter().filter_map(Self::for_isa)
    }

    /// The widest that this machine can run.
    pub fn best() -> Self {
        Self::all().last().expect("scalar runs everywhere")
    }

    /// The same with products that multiply zeros too, bit for bit alike: what skipping them is
    /// measured against.
    #[must_use]
    pub fn dense(self) -> Self {
        // The others skip nothing.
        #[cfg(target_arch = "x86_64")]
        if self.isa == Isa::Avx2 {
            return avx2::DENSE;
        }
        self
    }

    /// The same with large ternary batches by table, or by multiplication, bit for bit alike: the set
    /// with AVX-512 has both, and takes the one that is faster on its CPU.
    #[must_use]
    #[cfg_attr(
        not(target_arch = "x86_64"),
        expect(unused_variables, reason = "x86 alone has both")
    )]
    pub fn by_table(self, tables: bool) -> Self {
        #[cfg(target_arch = "x86_64")]
        if self.isa == Isa::Avx512 {
            return avx512::tight(if tables { avx512::BY_TABLE } else { avx512::KERNELS });
        }
        self
    }

    /// Whether this set has a ternary product for a layout; others take the scalar one.
    pub fn reads(&self, layout: Layout) -> bool {
        layout == Layout::TwoBit || self.tight.is_some()
    }

    /// Ternary × int8 over panels.
    #[inline]
    pub fn ternary(
        &self,
        w: &TernaryMatrix,
        panels: Range<usize>,
        x: &Quantized<'_>,
        y: &mut Columns<'_>,
        scratch: &mut Scratch,
    ) {
        let product = match w.layout() {
            Layout::TwoBit => self.two_bit,
            Layout::Tight => self.tight.unwrap_or(scalar::ternary),
        };
        product(w, panels, x, y, scratch);
    }

    /// Which set this is.
    pub fn isa(&self) -> Isa {
        self.isa
    }
}
