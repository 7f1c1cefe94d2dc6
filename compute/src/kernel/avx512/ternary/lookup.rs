//! Ternary × int8 for large batches, by table, as AVX2 has it ([`tables`]), with vectors of 32
//! activation rows: a load and an addition for 128 multiply-adds, where `vpdpbusd` has 64. It pays where
//! that instruction is no faster than an addition.

use super::{FIELDS, Field, Walk, batch as multiplied};
use crate::kernel::avx2::ternary as avx2;
use crate::mem::AlignedVec;
use crate::par::Columns;
use crate::ternary::PANEL_ROWS;
use avx2::lookup as tables;
use std::arch::x86_64::*;
use std::ops::Range;
use std::sync::LazyLock;
pub use tables::Buffers;
use tables::{PAIR, PANELS, Places, QUADS, Sums, TILE, Tables};

/// Activation rows that make a tile worth its tables.
const LEAST: usize = 30;
/// Rows beside whole tiles that are so few that codes are decoded in registers for them.
const STREAMED: usize = 3;
/// Rows from which tiles are worth their tables though those beside them are multiplied, for which codes
/// are decoded once more.
const MIXED: usize = 2 * TILE;
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
    if rows < MIXED && panels < LEAST_PANELS {
        return 0;
    }
    match rows % TILE {
        LEAST.. => rows,
        rest if rest <= STREAMED || rows >= MIXED => rows - rest,
        _ => 0,
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
    let size = walk.group_blocks * crate::ternary::BLOCK_COLS;
    let narrow = avx2::Walk::new(walk.w, walk.x, walk.first, (size, walk.sums));
    for first in panels.clone().step_by(PANELS) {
        let panels = first..panels.end.min(first + PANELS);
        let done = most > 0
            && tables::pairs_are_whole(&narrow)
            && locate(walk, panels.clone(), rearranged, buffers.places);
        if done {
            // SAFETY: this function needs what `add` needs; `locate` has written the places.
            unsafe { tables::tiles(&narrow, panels.clone(), 0..most, y, buffers, add) };
        }
        let rest = if done { most..rows } else { 0..rows };
        match rest.len() {
            ..=STREAMED => walk.streams(panels, rest, y),
            _ => multiplied::batch(walk, panels, rest, y, rearranged, buffers.places),
        }
    }
}

/// Writes the places of all values of some panels, `[pair][row]`. A last block without a partner gets one
/// of zeros; its activations are zero, too. Returns `false` where a code 3 occurs, which is no ternary
/// weight.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn locate(
    walk: &Walk<'_>,
    panels: Range<usize>,
    decoded: &mut AlignedVec<i8>,
    out: &mut AlignedVec<u8>,
) -> bool {
    let pairs = walk.blocks.div_ceil(PAIR);
    let fields = pairs * PAIR * FIELDS;
    decoded.grow(fields * size_of::<Field>());
    let decoded: &mut [Field] =
        bytemuck::cast_slice_mut(decoded.as_chunks_mut::<{ size_of::<Field>() }>().0);
    decoded[walk.fields()..fields].fill([0; size_of::<Field>()]);
    out.grow(pairs * panels.len() * PANEL_ROWS * QUADS);
    let out = out.as_chunks_mut::<{ PANEL_ROWS * QUADS }>().0;
    let mut both = _mm512_setzero_si512();
    for (p, panel) in panels.clone().enumerate() {
        walk.unpack((panel, 0..walk.fields()), Some((panel + 1, 0)), &mut decoded[..walk.fields()]);
        let pairs = decoded.as_chunks::<QUADS>().0.iter().take(pairs);
        for (i, pair) in pairs.enumerate() {
            for field in pair {
                let codes = bytemuck::must_cast(*field);
                let doubled = _mm512_and_si512(codes, _mm512_srli_epi16::<1>(codes));
                both = _mm512_or_si512(both, doubled);
            }
            out[i * panels.len() + p] = bytemuck::must_cast(places(pair));
        }
    }
    _mm512_test_epi8_mask(both, _mm512_set1_epi8(1)) == 0
}

/// The places of 16 rows in a pair of blocks: Σ code · 3ⁱ of each quad of columns, which is a field. Codes
/// are 0, 1 or 2: no number is beyond 80.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn places(fields: &[Field; QUADS]) -> [__m512i; 2] {
    let powers = _mm512_set1_epi32(i32::from_le_bytes([1, 3, 9, 27]));
    let mut halves = [_mm512_setzero_si512(); 2];
    for (half, fields) in halves.iter_mut().zip(fields.as_chunks::<{ QUADS / 2 }>().0) {
        for field in fields.iter().rev() {
            let codes = bytemuck::must_cast(*field);
            *half = _mm512_dpbusd_epi32(_mm512_slli_epi32::<8>(*half), codes, powers);
        }
    }
    let [low, high] = halves;
    // Rows 0, 1, 4, 5 and so on, and rows 2, 3, 6, 7.
    let (a, b) = (_mm512_unpacklo_epi32(low, high), _mm512_unpackhi_epi32(low, high));
    let first = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
    let second = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
    [_mm512_permutex2var_epi64(a, first, b), _mm512_permutex2var_epi64(a, second, b)]
}

/// Adds to each weight row's sums the entries that it names. Out of line, for its registers' sake.
#[inline(never)]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn add(Tables(tables): &Tables, places: &[Places], narrow: &mut [Sums<2>]) {
    for (places, narrow) in places.iter().zip(narrow) {
        let mut sums: __m512i = bytemuck::must_cast(*narrow);
        let word = u64::from_le_bytes(*places);
        for (i, table) in tables.iter().enumerate() {
            let place = (word >> (8 * i)) & 0xFF;
            // SAFETY: of codes 0 to 2, which `locate` has made sure of, `places` makes none beyond the
            // 81st entry.
            let entry = unsafe { table.get_unchecked(place as usize) };
            sums = _mm512_add_epi16(sums, bytemuck::must_cast(*entry));
        }
        *narrow = bytemuck::must_cast(sums);
    }
}
