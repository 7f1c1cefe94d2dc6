//! The tile registers: permission, configuration and the instructions that products need.
//!
//! Rust's AMX intrinsics are unstable, so these are inline assembly. The compiler itself uses no tile
//! registers, and assembly with side effects keeps its order. So a tile keeps its contents from one
//! assembly block to the next.

use std::arch::asm;
use std::arch::x86_64::{__cpuid_count, _xgetbv};

/// Number of rows of a tile.
pub const ROWS: usize = 16;
/// Number of bytes of a row.
pub const ROW_BYTES: usize = 64;
/// A tile of the sums of 16 × 16 outputs: `[activation row][weight row]`.
pub type Sums = [[i32; 16]; ROWS];
/// A tile of weights: `[4 columns][16 weight rows][4]`.
pub type Weights = [[u8; ROW_BYTES]; ROWS];

/// Returns true if the CPU has int8 and bf16 tiles and the system lets the process use them.
pub fn available() -> bool {
    /// Leaf 7: AMX-BF16, AMX-TILE and AMX-INT8.
    const FEATURES: u32 = 1 << 22 | 1 << 24 | 1 << 25;
    /// Leaf 1: the system has enabled XGETBV.
    const OSXSAVE: u32 = 1 << 27;
    /// State components of XCR0: tile configuration and data.
    const STATE: u64 = 1 << 17 | 1 << 18;
    if __cpuid_count(1, 0).ecx & OSXSAVE == 0 || __cpuid_count(7, 0).edx & FEATURES != FEATURES {
        return false;
    }
    // SAFETY: OSXSAVE says that the instruction exists.
    let enabled = unsafe { enabled_state() };
    enabled & STATE == STATE && permitted()
}

/// Reads XCR0.
///
/// # Safety
/// The CPU has XGETBV.
#[target_feature(enable = "xsave")]
unsafe fn enabled_state() -> u64 {
    // SAFETY: the caller's promise.
    unsafe { _xgetbv(0) }
}

/// Asks Linux for permission to use tiles: `arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA)`, see
/// Documentation/arch/x86/xstate.rst of its source. The permission covers all threads.
#[cfg(target_os = "linux")]
fn permitted() -> bool {
    const ARCH_PRCTL: i64 = 158;
    const ARCH_REQ_XCOMP_PERM: u64 = 0x1023;
    const XTILEDATA: u64 = 18;
    let refused: i64;
    // SAFETY: a system call that touches no memory; it clobbers rcx and r11.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") ARCH_PRCTL => refused,
            in("rdi") ARCH_REQ_XCOMP_PERM,
            in("rsi") XTILEDATA,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    refused == 0
}

/// Other operating systems are not supported.
#[cfg(not(target_os = "linux"))]
fn permitted() -> bool {
    false
}

/// Operand of `ldtilecfg`.
#[repr(C, align(64))]
struct Config {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

impl Config {
    /// Configures tiles 0 to 3 for sums and 4 and 5 for the left operand, with `rows` rows, and tiles 6
    /// and 7 for the right operand.
    const fn of(rows: usize) -> Self {
        let mut config =
            Self { palette: 1, start_row: 0, reserved: [0; 14], row_bytes: [0; 16], rows: [0; 16] };
        let mut tile = 0;
        while tile < 8 {
            config.row_bytes[tile] = ROW_BYTES as u16;
            config.rows[tile] = if tile < 6 { rows as u8 } else { ROWS as u8 };
            tile += 1;
        }
        config
    }
}

/// One configuration per number of rows, the first for one row. They are constants because the CPU
/// stalls when it reads a configuration right after it was written field by field.
static CONFIGS: [Config; ROWS] = {
    let mut configs = [const { Config::of(ROWS) }; ROWS];
    let mut rows = 1;
    while rows < ROWS {
        configs[rows - 1] = Config::of(rows);
        rows += 1;
    }
    configs
};

/// Keeps the tiles configured for this thread until it is dropped. Tiles 0 to 3 hold sums
/// `[rows of activations × panel]`, 4 and 5 activations, 6 and 7 weights.
pub struct Tiles(());

impl Tiles {
    /// Configures tiles whose activations have `rows` rows, at most 16.
    ///
    /// # Safety
    /// [`available`] has returned true.
    pub unsafe fn new(rows: usize) -> Self {
        let config = &CONFIGS[rows.clamp(1, ROWS) - 1];
        // SAFETY: the CPU has the instruction, and the whole configuration is valid memory.
        unsafe { asm!("ldtilecfg [{}]", in(reg) config, options(nostack, readonly)) };
        Self(())
    }
}

impl Drop for Tiles {
    fn drop(&mut self) {
        // SAFETY: the CPU has the instruction; the tiles are not used any more.
        unsafe { asm!("tilerelease", options(nostack, nomem)) };
    }
}

/// Sets tile `N` to zero.
///
/// # Safety
/// [`Tiles`] exist.
#[inline(always)]
pub unsafe fn zero<const N: usize>() {
    // SAFETY: the caller's promise.
    unsafe { asm!("tilezero tmm{n}", n = const N, options(nostack, nomem)) };
}

/// Loads tile `N` from rows that begin `stride` bytes apart.
///
/// # Safety
/// [`Tiles`] exist, and as many rows as the tile has may be read.
#[inline(always)]
pub unsafe fn load<const N: usize>(from: *const u8, stride: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        asm!(
            "tileloadd tmm{n}, [{from} + 1*{stride}]",
            n = const N,
            from = in(reg) from,
            stride = in(reg) stride,
            options(nostack, readonly),
        );
    }
}

/// Stores tile `N` as [`Sums`].
///
/// # Safety
/// [`Tiles`] exist.
#[inline(always)]
pub unsafe fn store<const N: usize>(to: &mut Sums) {
    // SAFETY: the caller's promise; a tile has at most as many rows as `Sums`.
    unsafe { store_rows::<N>((&raw mut *to).cast(), ROW_BYTES) };
}

/// Stores tile `N` to rows that begin `stride` bytes apart.
///
/// # Safety
/// [`Tiles`] exist, and as many rows as the tile has may be written.
#[inline(always)]
pub unsafe fn store_rows<const N: usize>(to: *mut u8, stride: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        asm!(
            "tilestored [{to} + 1*{stride}], tmm{n}",
            n = const N,
            to = in(reg) to,
            stride = in(reg) stride,
            options(nostack),
        );
    }
}

/// Adds the products of pairs of bf16 in the tiles `A` and `B` to the f32 sums in tile `C`. The CPU
/// treats subnormal numbers as zero.
///
/// # Safety
/// [`Tiles`] exist.
#[inline(always)]
pub unsafe fn multiply_bf16<const C: usize, const A: usize, const B: usize>() {
    // SAFETY: the caller's promise.
    unsafe {
        asm!("tdpbf16ps tmm{c}, tmm{a}, tmm{b}", c = const C, a = const A, b = const B, options(nostack, nomem));
    }
}

/// Adds the products of activations in tile `A` and weights in tile `B` to the sums in tile `C`.
/// Weights are signed if `signed`.
///
/// # Safety
/// [`Tiles`] exist.
#[inline(always)]
pub unsafe fn multiply<const C: usize, const A: usize, const B: usize>(signed: bool) {
    // SAFETY: the caller's promise.
    unsafe {
        if signed {
            asm!("tdpbssd tmm{c}, tmm{a}, tmm{b}", c = const C, a = const A, b = const B, options(nostack, nomem));
        } else {
            asm!("tdpbsud tmm{c}, tmm{a}, tmm{b}", c = const C, a = const A, b = const B, options(nostack, nomem));
        }
    }
}
