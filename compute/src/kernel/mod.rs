//! Kernels: a table of functions per instruction set, chosen once and passed as a value.
//!
//! The module `scalar` is the definition. Integer kernels of every other set equal it bit for bit; float
//! kernels agree within the tolerance that `tests/kernels.rs` states. With every set, a row's result
//! depends on that row alone: not on the batch around it, nor on how the work is split.
//!
//! Kernels over rows, float products and the loops of integer products are written once, over the trait
//! `Simd`. A new instruction set needs a token with this trait, its inner products, and an arm in
//! [`Kernels::for_isa`].
//!
//! ```
//! use wrinklefree_compute::kernel::{Isa, Kernels};
//!
//! let kernels = Kernels::best();
//! let mut x = [1.0, 2.0];
//! (kernels.add)(&mut x, &[0.5, 0.5]);
//! assert_eq!(x, [1.5, 2.5]);
//!
//! let isa = Isa::parse("scalar").expect("a known name");
//! assert!(Kernels::for_isa(isa).is_some(), "the scalar kernels run on every machine");
//! ```

#[cfg(any(
    target_arch = "x86_64",
    all(target_arch = "aarch64", target_feature = "neon"),
    all(target_arch = "wasm32", target_feature = "simd128")
))]
mod attention;
#[cfg(any(
    target_arch = "x86_64",
    all(target_arch = "aarch64", target_feature = "neon"),
    all(target_arch = "wasm32", target_feature = "simd128")
))]
mod attention_loop;
mod attention_parts;
#[cfg(any(target_arch = "x86_64", all(target_arch = "wasm32", feature = "relaxed-simd")))]
mod byte_dot;
#[cfg(any(
    target_arch = "x86_64",
    all(target_arch = "aarch64", target_feature = "neon"),
    all(target_arch = "wasm32", target_feature = "simd128")
))]
mod byte_ops;
pub mod delta;
mod exp;
mod finite;
#[cfg(any(
    target_arch = "x86_64",
    all(target_arch = "aarch64", target_feature = "neon"),
    all(target_arch = "wasm32", target_feature = "simd128")
))]
mod float;
mod hadamard;
#[cfg(any(
    target_arch = "x86_64",
    all(target_arch = "aarch64", target_feature = "neon"),
    all(target_arch = "wasm32", target_feature = "simd128")
))]
mod int8;
mod kv;
#[cfg(any(
    target_arch = "x86_64",
    all(target_arch = "aarch64", target_feature = "neon"),
    all(target_arch = "wasm32", target_feature = "simd128")
))]
mod one_bit;
mod operands;
#[cfg(any(
    target_arch = "x86_64",
    all(target_arch = "aarch64", target_feature = "neon"),
    all(target_arch = "wasm32", target_feature = "simd128")
))]
mod packing;
#[cfg(any(
    target_arch = "x86_64",
    all(target_arch = "aarch64", target_feature = "neon"),
    all(target_arch = "wasm32", target_feature = "simd128")
))]
mod panel_rows;
#[cfg(any(
    target_arch = "x86_64",
    all(target_arch = "aarch64", target_feature = "neon"),
    all(target_arch = "wasm32", target_feature = "simd128")
))]
mod panels;
mod rows;
mod scalar;
mod simd;
#[cfg(any(
    target_arch = "x86_64",
    all(target_arch = "aarch64", target_feature = "neon"),
    all(target_arch = "wasm32", target_feature = "simd128")
))]
mod ternary;

#[cfg(target_arch = "x86_64")]
mod amx;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
mod neon;
#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
mod simd128;

pub use attention_parts::merge_part;
pub use delta::{DeltaRows, DeltaShape};
pub use exp::exp;
pub use kv::{KvCodec, KvType, PageCodes, PageElements, PageLayout};
pub use operands::{Attention, GroupSteps, Quantized};

use crate::matrix::{FloatMatrix, Int8View};
use crate::par::{Columns, Scratch};
use crate::ternary::{Layout, TernaryMatrix};
use std::ops::Range;

/// Number of positions in a page of keys and values: a diffusion block, and four vectors of f32 in AVX2.
pub const PAGE: usize = 32;

/// An instruction set that has kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Isa {
    /// Plain Rust: the definition that every other set must equal.
    Scalar,
    /// x86-64 with AVX2, FMA and F16C.
    Avx2,
    /// AVX2 with AVX-VNNI: integer dot products of AVX-512 for 256 bits.
    AvxVnni,
    /// x86-64 with AVX-512 F, BW, VL, DQ and VNNI.
    Avx512,
    /// AVX-512 with AMX tiles of int8 and bf16, on Linux.
    Amx,
    /// 64-bit ARM.
    Neon,
    /// NEON with the dot product of 8-bit integers (`dotprod`).
    DotProd,
    /// NEON with the product of 8-bit integer matrices (`i8mm`), and the dot product.
    I8mm,
    /// WebAssembly with 128-bit SIMD.
    Simd128,
    /// WebAssembly SIMD with the relaxed integer dot product; needs the cargo feature `relaxed-simd`.
    RelaxedSimd,
}

impl Isa {
    /// All instruction sets; those of an architecture from the narrowest to the widest.
    pub const ALL: [Self; 10] = [
        Self::Scalar,
        Self::Avx2,
        Self::AvxVnni,
        Self::Avx512,
        Self::Amx,
        Self::Neon,
        Self::DotProd,
        Self::I8mm,
        Self::Simd128,
        Self::RelaxedSimd,
    ];

    /// Name of the set, as in `WF_ISA`: `scalar`, `avx2`, `avxvnni`, `avx512`, `amx`, `neon`, `dotprod`,
    /// `i8mm`, `simd128` or `relaxed-simd`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::Avx2 => "avx2",
            Self::AvxVnni => "avxvnni",
            Self::Avx512 => "avx512",
            Self::Amx => "amx",
            Self::Neon => "neon",
            Self::DotProd => "dotprod",
            Self::I8mm => "i8mm",
            Self::Simd128 => "simd128",
            Self::RelaxedSimd => "relaxed-simd",
        }
    }

    /// Returns the instruction set of this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|i| i.name() == name)
    }
}

/// A ternary × int8 product; see [`Kernels::ternary`].
type TernaryFn = fn(&TernaryMatrix, Range<usize>, &Quantized<'_>, &mut Columns<'_>, &mut Scratch);
/// An int8 × int8 product; see [`Kernels::int8`].
type Int8Fn = fn(Int8View<'_>, Range<usize>, &Quantized<'_>, &mut Columns<'_>, &mut Scratch);
/// A float × f32 product; see [`Kernels::float`].
type FloatFn = fn(&FloatMatrix, Range<usize>, &[f32], &mut Columns<'_>);
/// Quantizes a row to two planes of int8; see [`Kernels::quantize16`].
type Quantize16Fn = fn(&[f32], &mut [i8], &mut [i8]) -> ([i32; 2], f32);

/// The kernels of one instruction set.
///
/// A product computes `y = x · Wᵀ` for every row of `x` and a range of the matrix's panels of 16 rows (of
/// rows for a float matrix). The view `y` has exactly these outputs.
#[derive(Clone, Copy)]
pub struct Kernels {
    isa: Isa,
    /// Ternary × int8 over panels, of matrices in the two-bit layout.
    two_bit: TernaryFn,
    /// Ternary × int8 over panels, of matrices in the tight layout; `None` if the set does not read it.
    tight: Option<TernaryFn>,
    /// Ternary × int8 over panels, of matrices in the one-bit layout; `None` if the set does not read it.
    one_bit: Option<TernaryFn>,
    /// Multiplies int8 × int8 over panels.
    pub int8: Int8Fn,
    /// Multiplies a float matrix × f32 rows, `[rows][cols]`, over weight rows.
    pub float: FloatFn,
    /// Quantizes a row to 8 bits. Writes the values; returns their sum and the step (scale).
    pub quantize8: fn(&[f32], &mut [i8]) -> (i32, f32),
    /// Quantizes a row to 15 bits in two planes. Writes the high and the low plane; returns the sums of both
    /// and the low plane's step. The high plane's step is 256 times that.
    pub quantize16: Quantize16Fn,
    /// Computes RMSNorm: out = x / √(mean x² + ε) · weight. All NaN if Σ x² is not finite.
    pub rms_norm: fn(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]),
    /// Applies RoPE to one head in NeoX order; `cos` and `sin` are `[head_dim / 2]`.
    pub rope: fn(head: &mut [f32], cos: &[f32], sin: &[f32]),
    /// Computes gate = silu(gate) · up.
    pub silu_mul: fn(gate: &mut [f32], up: &[f32]),
    /// Computes gate = max(gate, 0)² · up; NaN stays.
    pub relu2_mul: fn(gate: &mut [f32], up: &[f32]),
    /// Computes gate = σ(gate) · x.
    pub sigmoid_mul: fn(gate: &mut [f32], x: &[f32]),
    /// Returns true if all numbers are below `bound` in magnitude; false for NaN. With a bound of infinity:
    /// if all are finite.
    pub within: fn(x: &[f32], bound: f32) -> bool,
    /// Computes x += y.
    pub add: fn(x: &mut [f32], y: &[f32]),
    /// Computes the normalized Walsh–Hadamard transform of each block of `x`, in Sylvester's order. A
    /// block is a power of two, and `x` is whole blocks.
    pub hadamard: fn(x: &mut [f32], block: usize),
    /// Computes Gated DeltaNet for consecutive positions of one text; see [`delta`]. The view `out` is
    /// `[rows][values · value_dim]`, and the state has [`DeltaShape::state_floats`].
    pub delta: fn(&DeltaRows<'_>, state: &mut [f32], out: &mut Columns<'_>, &mut Scratch),
    /// Computes softmax attention to all keys at once; the view `out` is `[rows][group · head_dim]`. Leaves
    /// the largest score and the sum of weights of each query in [`Scratch::softmax`]. See
    /// [`Kernels::attention`] for any number of keys.
    pub attend: fn(&Attention<'_>, out: &mut Columns<'_>, &mut Scratch),
    /// Codec of each [`KvType`], in the order of [`KvType::ALL`].
    pub kv: [KvCodec; KvType::COUNT],
    /// Summarizes a page's keys, `[head_dim][PAGE]`, as `[means: head_dim | variances: head_dim]`.
    pub summarize: fn(keys: &[f32], summary: &mut [f32]),
    /// Estimates, from a page's summary, the logarithm of the mean attention weight of its keys, for the
    /// query of `[queries][head_dim]` with the largest estimate. E exp(s·q·k) ≈ exp(s·q·μ + Σ (s·q)²σ²/2),
    /// which is exact for normally distributed keys.
    pub estimate: fn(queries: &[f32], scale: f32, summary: &[f32]) -> f32,
    /// Returns Σ exp(x − max) over logits x ≤ max, with NaN as −∞. Every set gives the same bits.
    pub sum_exp: fn(logits: &[f32], max: f32) -> f64,
    /// Computes x = exp((x − max) · scale) of logits x ≤ max: 1 for the highest ones, 0 for NaN. Every set
    /// gives the same bits.
    pub weigh: fn(logits: &mut [f32], max: f32, scale: f32),
    /// Reads memory at full bandwidth and returns the XOR of all lines. Benchmarks measure the limit of
    /// memory-bound products with it.
    pub read: fn(lines: &[[u64; 8]]) -> [u64; 8],
    /// Multiplies int8 in registers at full speed, `rounds` times, and returns the number of products.
    /// Benchmarks measure the limit of batches with it.
    pub multiply: fn(rounds: usize) -> u64,
}

impl Kernels {
    /// The scalar kernels, which define all others.
    pub const SCALAR: Self = Self {
        isa: Isa::Scalar,
        two_bit: scalar::ternary,
        tight: None,
        one_bit: None,
        int8: scalar::int8,
        float: scalar::float,
        quantize8: scalar::quantize8,
        quantize16: scalar::quantize16,
        rms_norm: scalar::rms_norm,
        rope: scalar::rope,
        silu_mul: scalar::silu_mul,
        relu2_mul: scalar::relu2_mul,
        sigmoid_mul: |gate, x| rows::sigmoid_mul(scalar::Scalar, gate, x),
        within: finite::within,
        add: scalar::add,
        hadamard: |x, block| hadamard::hadamard(scalar::Scalar, x, block),
        delta: |rows, state, out, scratch| {
            delta::delta(scalar::Scalar, rows, state, out, scratch);
        },
        attend: scalar::attend,
        kv: scalar::KV,
        summarize: kv::summarize,
        estimate: kv::estimate,
        sum_exp: exp::sum_exp,
        weigh: exp::weigh,
        read: scalar::read,
        multiply: scalar::multiply,
    };

    /// Returns the kernels of `isa` if this machine can run them. All feature detection happens here.
    pub fn for_isa(isa: Isa) -> Option<Self> {
        match isa {
            Isa::Scalar => Some(Self::SCALAR),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => avx2::available().then_some(avx2::KERNELS),
            #[cfg(target_arch = "x86_64")]
            Isa::AvxVnni => avx2::vnni::available().then_some(avx2::vnni::KERNELS),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => avx512::available().then(|| avx512::supported(avx512::best())),
            #[cfg(target_arch = "x86_64")]
            Isa::Amx => amx::available().then(|| avx512::supported(amx::KERNELS)),
            #[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
            Isa::Neon => Some(neon::KERNELS),
            #[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
            Isa::DotProd => neon::dotprod(),
            #[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
            Isa::I8mm => neon::i8mm(),
            #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
            Isa::Simd128 => Some(simd128::KERNELS),
            #[cfg(all(
                target_arch = "wasm32",
                target_feature = "simd128",
                feature = "relaxed-simd"
            ))]
            Isa::RelaxedSimd => Some(simd128::RELAXED),
            // Every architecture lacks some of the sets.
            #[allow(unreachable_patterns)]
            _ => None,
        }
    }

    /// Returns the kernels of every instruction set that this machine can run, the widest last.
    pub fn all() -> impl Iterator<Item = Self> {
        Isa::ALL.into_iter().filter_map(Self::for_isa)
    }

    /// Returns the kernels of the widest instruction set that this machine can run.
    pub fn best() -> Self {
        Self::all().last().expect("scalar runs everywhere")
    }

    /// Returns the same kernels with products that do not skip zeros. The results have the same bits; it is
    /// the baseline for measuring the skipping.
    #[must_use]
    pub fn dense(self) -> Self {
        // Only AVX2 skips zeros.
        #[cfg(target_arch = "x86_64")]
        match self.isa {
            Isa::Avx2 => return avx2::DENSE,
            Isa::AvxVnni => return avx2::vnni::DENSE,
            _ => {}
        }
        self
    }

    /// Returns the same kernels with lookup tables, or with multiplication, for large ternary batches. The
    /// results have the same bits. AVX-512 has both and [`Kernels::for_isa`] returns the faster one.
    #[must_use]
    #[cfg_attr(not(target_arch = "x86_64"), expect(unused_variables, reason = "only x86 has both"))]
    pub fn by_table(self, tables: bool) -> Self {
        #[cfg(target_arch = "x86_64")]
        if self.isa == Isa::Avx512 {
            return avx512::supported(if tables { avx512::BY_TABLE } else { avx512::KERNELS });
        }
        self
    }

    /// Returns true if this set has a ternary product for the layout; otherwise the scalar one is used.
    pub fn reads(&self, layout: Layout) -> bool {
        match layout {
            Layout::TwoBit => true,
            Layout::Tight => self.tight.is_some(),
            Layout::OneBit => self.one_bit.is_some(),
        }
    }

    /// Multiplies ternary × int8 over panels.
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
            Layout::OneBit => self.one_bit.unwrap_or(scalar::ternary),
        };
        product(w, panels, x, y, scratch);
    }

    /// Instruction set of these kernels.
    pub fn isa(&self) -> Isa {
        self.isa
    }
}
