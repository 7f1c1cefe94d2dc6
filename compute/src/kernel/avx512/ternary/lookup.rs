//! Ternary × int8 for large batches, by table, as AVX2 has it ([`tables`]), with vectors of 32
//! activation rows: a load and an addition for 128 multiply-adds, where `vpdpbusd` has 64. It pays where
//! that instruction is no faster than an addition.

use super::{Walk, registers, tight};
use crate::kernel::avx2::ternary as avx2;
use crate::mem::AlignedVec;
use crate::par::Columns;
use crate::ternary::{BLOCK_COLS, Layout};
use avx2::lookup as tables;
use std::arch::x86_64::*;
use std::ops::Range;
use std::sync::LazyLock;
pub use tables::Buffers;
use tables::{Places, Reader, Sums, TILE, Tables, VECTORS};

/// Activation rows that make a tile worth its tables.
const LEAST: usize = 25;
/// Rows beside tiles that are so few that they are walked as a few rows alone would be.
const STREAMED: usize = 3;
/// Rows from which tables pay in products with few panels.
const MANY: usize = 2 * TILE;
/// Panels that make a single tile's tables worth their while.
const LEAST_PANELS: usize = 20;

/// Whether tables are faster on this CPU: on Zen 4, which does 64 products of bytes a cycle, and reads 64
/// bytes of a table. (Intel's cores with AVX-512 and Zen 5 do 128 products.)
pub fn pays() -> bool {
    static ZEN_4: LazyLock<bool> = LazyLock::new(|| {
        let vendor = __cpuid(0);
        let amd = [vendor.ebx, vendor.edx, vendor.ecx].map(u32::to_le_bytes).concat();
        let family = __cpuid(1).eax;
        amd == b"AuthenticAMD" && (family >> 8 & 15) + (family >> 20 & 255) == 0x19
    });
    *ZEN_4
}

/// Rows that go through tables.
fn tabulated(rows: usize, panels: usize) -> usize {
    if rows < MANY && panels < LEAST_PANELS {
        return 0;
    }
    match rows % TILE {
        LEAST.. => rows,
        rest => rows - rest,
    }
}

/// Products of `panels` with all rows: in whole tiles by table, and what is left by multiplication.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub fn batch(
    walk: &Walk<'_>,
    panels: Range<usize>,
    y: &mut Columns<'_>,
    rearranged: &mut AlignedVec<i8>,
    buffers: &mut Buffers<'_>,
) {
    let rows = walk.x.rows();
    let most = tabulated(rows, panels.len());
    let reader = match walk.w.layout() {
        Layout::TwoBit => Reader { add, ..tables::TWO_BIT },
        Layout::Tight => Reader { order: &tight::ORDER, locate: tight::locate, add },
    };
    let size = walk.group_blocks * BLOCK_COLS;
    let narrow = avx2::Walk::new(walk.w, walk.x, walk.first, (size, walk.sums));
    for panels in tables::shares(panels) {
        // SAFETY: this function needs what `add` needs, and VBMI is there where tight matrices are.
        let done = unsafe { tables::lookup(&narrow, &reader, panels.clone(), 0..most, y, buffers) };
        let rest = if done { most..rows } else { 0..rows };
        match rest.len() {
            ..=STREAMED => walk.streams(panels, rest, y),
            _ => registers::batch(walk, panels, rest, y, rearranged),
        }
    }
}

/// Adds to each weight row's sums the entries that it names. Out of line, for its registers' sake.
#[inline(never)]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn add(tables: &Tables<VECTORS>, places: &[Places], narrow: &mut [Sums<VECTORS>]) {
    for (places, narrow) in places.iter().zip(narrow) {
        let mut sums: __m512i = bytemuck::must_cast(*narrow);
        let word = u64::from_le_bytes(*places);
        for (i, table) in tables.iter().enumerate() {
            let place = (word >> (8 * i)) & 0xFF;
            // SAFETY: `locate` has refused all codes that make a place beyond the 81st entry.
            let entry = unsafe { table.get_unchecked(place as usize) };
            sums = _mm512_add_epi16(sums, bytemuck::must_cast(*entry));
        }
        *narrow = bytemuck::must_cast(sums);
    }
}
