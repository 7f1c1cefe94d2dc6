//! Table indices of codes in the tight layout.

use super::{Decoder, LINE, unpack_groups};
use crate::kernel::avx2::prefetch;
use crate::kernel::avx2::ternary::TernaryArgs as Avx2Args;
use crate::kernel::avx2::ternary::lookup::{
    IndexBuf, IndexWord, Lookup, QUADS, QuadOrder, Sums, TWO_BIT, Tables, VECTORS, WORDS,
};
use crate::kernel::avx512::Vbmi;
use crate::kernel::simd::by_token;
use crate::ternary::tight::{BYTES, CODES, COLS, FIELDS};
use std::arch::x86_64::*;
use std::ops::Range;

/// The lookup of the tight layout.
pub struct TightLookup {
    pub s: Vbmi,
    /// True if all columns share a scale, so that periods may have any columns.
    pub one_group: bool,
}

impl Lookup for TightLookup {
    fn order(&self) -> &'static QuadOrder {
        if self.one_group { &ORDER } else { &TWO_BIT }
    }

    fn encode_indices(
        &self,
        args: &Avx2Args<'_>,
        panel: usize,
        periods: Range<usize>,
        buf: &mut IndexBuf<'_>,
    ) -> bool {
        if self.one_group {
            by_token!(self.s, encode_indices(args, panel, periods, buf))
        } else {
            by_token!(self.s, encode_group_indices(args, panel, periods, buf))
        }
    }

    fn add(&self, tables: &Tables<VECTORS>, indices: &[IndexWord], narrow: &mut [Sums<VECTORS>]) {
        self.s.base().add(tables, indices, narrow);
    }
}

/// Number of blocks of a period of [`ORDER`]. Four blocks fill three half words.
const PERIOD: usize = 2 * GROUP;
const GROUP: usize = 4;

/// Order of the columns of a period in index words. Of four blocks, each index of the first three is a
/// number plus a code of the row's last number; the three indices of the fourth block fill the gaps.
const ORDER: QuadOrder = QuadOrder { cols: PERIOD * COLS, words: &ORDERED };

const ORDERED: [[[u8; 4]; QUADS]; FIELDS] = {
    let mut words = [[[0; 4]; QUADS]; FIELDS];
    let mut at = 0;
    while at < FIELDS * QUADS {
        let (group, half, byte) = (at / 4 / FIELDS, at / 4 % FIELDS, at % 4);
        let (block, i) = if byte < FIELDS { (half, byte) } else { (FIELDS, half) };
        let first = (group * GROUP + block) * COLS;
        words[at / QUADS][at % QUADS] = [
            (first + i) as u8,
            (first + 4 + i) as u8,
            (first + 8 + i) as u8,
            (first + 3 + 4 * i) as u8,
        ];
        at += 1;
    }
    words
};

/// 27 times each code of a number, `[code][number]`.
pub const LAST: [u8; 128] = {
    let mut last = [0; 128];
    let mut at = 0;
    while at < FIELDS * CODES.len() {
        last[at] = 27 * (CODES[at % CODES.len()] >> (2 * (at / CODES.len())) & 3);
        at += 1;
    }
    last
};

/// Writes the indices of a panel in some periods of [`ORDER`]. Zeros replace missing blocks, whose
/// activations are zero, too. Returns false if a number is not a sum of three codes below 3.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512vbmi")]
fn encode_indices(
    args: &Avx2Args<'_>,
    panel: usize,
    periods: Range<usize>,
    buf: &mut IndexBuf<'_>,
) -> bool {
    let bytes = args.panel(panel);
    let codes: &[[u8; BYTES]] = bytes.as_chunks().0;
    let (whole, rest) = codes.as_chunks::<PERIOD>();
    let mut last = [[0; BYTES]; PERIOD];
    last[..rest.len()].copy_from_slice(rest);
    let decoder = Decoder::new();
    let mut most = _mm512_setzero_si512();
    for (i, period) in periods.enumerate() {
        let blocks = whole.get(period).unwrap_or(&last);
        for line in 0..PERIOD * BYTES / LINE {
            prefetch(blocks.as_ptr().cast(), bytes.len() + line * LINE);
        }
        let words = words(decoder, blocks, &mut most);
        for (w, word) in words.into_iter().enumerate() {
            *buf.word(i * FIELDS + w) = bytemuck::must_cast(word);
        }
    }
    _mm512_cmpgt_epu8_mask(most, _mm512_set1_epi8(26)) == 0
}

/// As [`encode_indices`], in the order of two-bit codes, for groups of columns that share a scale.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512vbmi")]
fn encode_group_indices(
    args: &Avx2Args<'_>,
    panel: usize,
    periods: Range<usize>,
    buf: &mut IndexBuf<'_>,
) -> bool {
    const QUAD_FIELDS: usize = 4;
    let mut fields = [[0; LINE]; MOST_FIELDS];
    let range = periods.start * PERIOD_FIELDS..periods.end * PERIOD_FIELDS;
    let fields = &mut fields[..range.len()];
    let next = args.panel(panel).as_ptr().wrapping_add(args.panel(panel).len());
    let codes = args.panel(panel).as_chunks().0;
    unpack_groups(args.w, codes, range.clone(), (next, range.start), fields);
    let mut fourth = _mm512_setzero_si512();
    for (i, period) in fields.chunks_exact(PERIOD_FIELDS).enumerate() {
        let mut quads = [_mm512_setzero_si512(); 2];
        for (quads, fields) in quads.iter_mut().zip(period.chunks_exact(QUAD_FIELDS)) {
            for field in fields.iter().rev() {
                let code: __m512i = bytemuck::must_cast(*field);
                fourth =
                    _mm512_or_si512(fourth, _mm512_and_si512(code, _mm512_srli_epi16::<1>(code)));
                let triple = _mm512_add_epi8(_mm512_add_epi8(*quads, *quads), *quads);
                *quads = _mm512_add_epi8(triple, code);
            }
        }
        *buf.word(i) = bytemuck::must_cast(side_by_side(quads));
    }
    _mm512_test_epi8_mask(fourth, _mm512_set1_epi8(1)) == 0
}

/// Number of fields in a period of the order of two-bit codes.
const PERIOD_FIELDS: usize = 8;
/// Most fields whose indices are encoded at a time.
const MOST_FIELDS: usize = PERIOD_FIELDS * WORDS;

/// Returns the index words of a period, 8 rows per vector. Updates `most`, the largest numbers so far.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512vbmi")]
fn words(
    decoder: Decoder,
    blocks: &[[u8; BYTES]; PERIOD],
    most: &mut __m512i,
) -> [[__m512i; 2]; FIELDS] {
    let mut halves = [_mm512_setzero_si512(); 2 * FIELDS];
    for (g, halves) in halves.as_chunks_mut::<FIELDS>().0.iter_mut().enumerate() {
        let mut indices = [_mm512_setzero_si512(); GROUP];
        for (b, indices) in indices.iter_mut().enumerate() {
            let numbers = decoder.numbers(decoder.block(&blocks[g * GROUP + b]));
            *most = _mm512_max_epu8(*most, numbers);
            *indices = decoder.indices(numbers);
        }
        let last = indices[FIELDS];
        let upper = _mm512_set1_epi32(255 << 24);
        *halves = [
            _mm512_or_si512(indices[0], _mm512_slli_epi32::<24>(last)),
            chosen(indices[1], _mm512_slli_epi32::<16>(last), upper),
            chosen(indices[2], _mm512_slli_epi32::<8>(last), upper),
        ];
    }
    let mut words = [[_mm512_setzero_si512(); 2]; FIELDS];
    for (word, halves) in words.iter_mut().zip(halves.as_chunks().0) {
        *word = side_by_side(*halves);
    }
    words
}

/// Brings the two half words of each row side by side.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512vbmi")]
fn side_by_side([a, b]: [__m512i; 2]) -> [__m512i; 2] {
    let low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    let high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
    [_mm512_permutex2var_epi32(a, low, b), _mm512_permutex2var_epi32(a, high, b)]
}

/// Returns a | (b & mask).
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512vbmi")]
fn chosen(a: __m512i, b: __m512i, mask: __m512i) -> __m512i {
    _mm512_ternarylogic_epi32::<0b1111_1000>(a, b, mask)
}
