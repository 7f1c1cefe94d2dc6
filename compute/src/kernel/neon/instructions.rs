//! Instructions that Rust has no stable functions for, as inline assembly.
//!
//! A token proves that the CPU has an extension. `.arch_extension` tells only the assembler, so functions
//! that use a token need no target feature beyond NEON and can be inlined anywhere.

use std::arch::aarch64::*;
use std::arch::asm;

/// Proof that the CPU has the dot product of four 8-bit integers.
#[derive(Clone, Copy)]
pub struct DotProd(());

impl DotProd {
    /// Makes the token.
    ///
    /// # Safety
    /// The CPU has the feature `dotprod`.
    pub unsafe fn new() -> Self {
        Self(())
    }

    /// Adds to each lane the product of four weights with the `LANE`-th four activations.
    #[inline]
    #[target_feature(enable = "neon")]
    pub fn add<const LANE: usize>(
        self,
        mut sum: int32x4_t,
        w: int8x16_t,
        x: int8x16_t,
    ) -> int32x4_t {
        // SAFETY: the instruction computes on registers, and the token proves that the CPU has it.
        unsafe {
            asm!(
                ".arch_extension dotprod",
                "sdot {sum:v}.4s, {w:v}.16b, {x:v}.4b[{lane}]",
                sum = inout(vreg) sum, w = in(vreg) w, x = in(vreg) x, lane = const LANE,
                options(pure, nomem, nostack, preserves_flags)
            );
        }
        sum
    }
}

/// Proof that the CPU has the product of 8-bit integer matrices, and [`DotProd`].
#[derive(Clone, Copy)]
pub struct I8mm {
    /// Proof of the narrower extension.
    pub dotprod: DotProd,
}

impl I8mm {
    /// Makes the token.
    ///
    /// # Safety
    /// The CPU has the features `i8mm` and `dotprod`.
    pub unsafe fn new() -> Self {
        // SAFETY: as the caller promises.
        Self { dotprod: unsafe { DotProd::new() } }
    }

    /// Adds the product of two rows of eight weights with two rows of eight activations: `[row of
    /// weights][row of activations]`.
    #[inline]
    #[target_feature(enable = "neon")]
    pub fn add(self, mut sums: int32x4_t, w: int8x16_t, x: int8x16_t) -> int32x4_t {
        // SAFETY: the instruction computes on registers, and the token proves that the CPU has it.
        unsafe {
            asm!(
                ".arch_extension i8mm",
                "smmla {sums:v}.4s, {w:v}.16b, {x:v}.16b",
                sums = inout(vreg) sums, w = in(vreg) w, x = in(vreg) x,
                options(pure, nomem, nostack, preserves_flags)
            );
        }
        sums
    }
}

/// Converts 4 f16 to f32.
#[inline]
#[target_feature(enable = "neon")]
pub fn widen_f16(codes: uint16x4_t) -> float32x4_t {
    let out: float32x4_t;
    // SAFETY: the instruction computes on registers, and every CPU with NEON has it.
    unsafe {
        asm!(
            "fcvtl {out:v}.4s, {codes:v}.4h",
            out = out(vreg) out, codes = in(vreg) codes,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    out
}

/// Prefetches a cache line; harmless outside of memory.
#[inline]
pub fn prefetch(line: *const u8) {
    // SAFETY: a prefetch changes no memory and reports no fault.
    unsafe {
        asm!("prfm pldl1keep, [{line}]", line = in(reg) line,
            options(readonly, nostack, preserves_flags));
    }
}

/// As [`prefetch`], to the second-level cache.
#[inline]
pub fn prefetch_second(line: *const u8) {
    // SAFETY: as above.
    unsafe {
        asm!("prfm pldl2keep, [{line}]", line = in(reg) line,
            options(readonly, nostack, preserves_flags));
    }
}
