//! Softmax attention over pages, for vectors of any length.
//!
//! Scores are computed for 32 keys at a time, with keys stored by dimension; values are then added
//! position by position. There are no horizontal sums and additions follow the positions, so the bits
//! of the result do not depend on the vector length.

/// Defines `attend` of an instruction set. The parameters are:
///
/// - its target features, and the number of floats in a vector;
/// - the number of queries that are scored together if there are that many, and otherwise;
/// - the number of vectors of sums that leave registers for the operands;
/// - a module with its KV codecs and vector operations (`avx2::lanes` is an example);
/// - the functions of that module that load 16-bit codes, for both types or none.
macro_rules! attention {
    ($features:literal, $lanes:literal, $many:literal, $queries:literal, $sums:literal, $ops:path,
     [$($codes:ident $load:ident),*]) => {
        use std::ops::Range;
        use $crate::kernel::PageElements;
        use $crate::kernel::attention_loop::{
            PageData, PageOps, attention_loop, page_weights, queries_per_tile,
        };
        use $crate::kernel::{Attention, KvCodec, KvType, PAGE};
        use $crate::par::{Columns, Scratch};
        use $ops as ops;

        /// Number of floats in a vector.
        const LANES: usize = $lanes;
        /// Number of bytes that a prefetch loads.
        const LINE: usize = 64;
        /// True if 16-bit codes are converted in registers.
        const READS_CODES: bool = !<[KvType]>::is_empty(&[$(KvType::$codes),*]);

        /// Number of vectors of sums per query for this number of queries: a power of two, up to four.
        const fn vectors(queries: usize) -> usize {
            match $sums / queries {
                4.. => 4,
                2 | 3 => 2,
                _ => 1,
            }
        }

        /// As [`vectors`], for scores: at most as many as a page fills.
        const fn score_vectors(queries: usize) -> usize {
            if vectors(queries) < PAGE / LANES { vectors(queries) } else { PAGE / LANES }
        }

        /// Number of lines of the next page to prefetch per `elements` elements of this page: as many as
        /// hold them, or none.
        const fn lines<const AHEAD: bool, E>(elements: usize) -> usize {
            if AHEAD { (elements * size_of::<E>()).div_ceil(LINE) } else { 0 }
        }

        /// See the scalar definition.
        #[target_feature(enable = $features)]
        pub fn attend(a: &Attention<'_>, out: &mut Columns<'_>, scratch: &mut Scratch) {
            attend_with(a, &ops::KV, out, scratch);
        }

        /// As [`attend`], over pages that these codecs have written.
        #[inline]
        #[target_feature(enable = $features)]
        pub fn attend_with(
            a: &Attention<'_>,
            kv: &[KvCodec; KvType::COUNT],
            out: &mut Columns<'_>,
            scratch: &mut Scratch,
        ) {
            let page_ops = PageOps {
                score: |rows, page: PageData<'_>, scores: &mut [f32]| score(a, rows, page, scores),
                exponents: |scores: &mut [f32], end| exponents(scores, end),
                accumulate: |row, page: PageData<'_>, scores: &[f32], out: &mut [f32]| {
                    accumulate(a, row, page, scores, out);
                },
                total: |scores: &[f32]| ops::total(scores),
                reads_codes: READS_CODES,
            };
            attention_loop(a, kv, out, scratch, page_ops);
        }

        /// Writes the scores of some rows for a page to `[rows][group][position]`.
        #[inline]
        #[target_feature(enable = $features)]
        fn score(
            a: &Attention<'_>,
            rows: Range<usize>,
            page: PageData<'_>,
            scores: &mut [f32],
        ) {
            match page.elements {
                PageElements::F32(keys) => {
                    let load = |keys: &[f32; LANES]| ops::load(keys);
                    let page = page.with(keys);
                    match page.next.is_empty() {
                        true => score_all::<false, _>(a, rows, page, scores, load),
                        false => score_all::<true, _>(a, rows, page, scores, load),
                    }
                }
                $(PageElements::$codes(keys) => {
                    let load = |keys: &[u16; LANES]| ops::$load(keys);
                    score_all::<true, _>(a, rows, page.with(keys), scores, load);
                })*
                #[allow(unreachable_patterns)] // Some instruction sets read all types.
                _ => unreachable!("this instruction set reads no codes"),
            }
        }

        /// As [`score`], for keys of one type, which `load` loads. With `AHEAD` the next page is prefetched.
        #[inline]
        #[target_feature(enable = $features)]
        fn score_all<const AHEAD: bool, E: Copy>(
            a: &Attention<'_>,
            rows: Range<usize>,
            page: PageData<'_, &[E]>,
            scores: &mut [f32],
            load: impl Fn(&[E; LANES]) -> ops::Vector + Copy,
        ) {
            let padded = scores.len() / (rows.len() * a.group());
            let mut queries = a.rows(rows);
            let mut scores = scores;
            while !queries.is_empty() {
                let left = queries.len() / a.head_dim();
                let size = if left >= $many { $many } else { queries_per_tile(left, $queries) };
                let (now, later) = queries.split_at(size * a.head_dim());
                let (out, rest) = scores.split_at_mut(size * padded);
                match size {
                    _ if size > 4 => {
                        score_tile::<$many, { score_vectors($many) }, AHEAD, E>(a, now, page, out, load)
                    }
                    4 => score_tile::<4, { score_vectors(4) }, AHEAD, E>(a, now, page, out, load),
                    3 => score_tile::<3, { score_vectors(3) }, AHEAD, E>(a, now, page, out, load),
                    2 => score_tile::<2, { score_vectors(2) }, AHEAD, E>(a, now, page, out, load),
                    _ => score_tile::<1, { score_vectors(1) }, AHEAD, E>(a, now, page, out, load),
                }
                (queries, scores) = (later, rest);
            }
        }

        /// Computes q · k · scale of `G` queries for all 32 slots of a page, `V` vectors at a time. Scores
        /// of slots past the end are undefined.
        #[inline]
        #[target_feature(enable = $features)]
        fn score_tile<const G: usize, const V: usize, const AHEAD: bool, E: Copy>(
            a: &Attention<'_>,
            queries: &[f32],
            page: PageData<'_, &[E]>,
            scores: &mut [f32],
            load: impl Fn(&[E; LANES]) -> ops::Vector,
        ) {
            let queries: [&[f32]; G] =
                std::array::from_fn(|g| &queries[g * a.head_dim()..][..a.head_dim()]);
            let scale = ops::splat(a.scale);
            let padded = scores.len() / G;
            // V vectors per dimension of the next page, too.
            let ahead = V * LANES * page.next_element_size(a.head_dim());
            let mut next = page.next.as_ptr();
            for part in 0..PAGE / LANES / V {
                let mut sums = [[ops::zero(); V]; G];
                for (d, keys) in page.elements.as_chunks::<PAGE>().0.iter().enumerate() {
                    let keys = &keys.as_chunks::<LANES>().0[part * V..][..V];
                    let lines = lines::<AHEAD, E>(V * LANES);
                    (0..lines).for_each(|line| ops::prefetch(next, line * LINE));
                    next = next.wrapping_add(ahead);
                    for g in 0..G {
                        let q = ops::splat(queries[g][d]);
                        for v in 0..V {
                            let key = load(&keys[v]);
                            sums[g][v] = ops::add_product(q, key, sums[g][v]);
                        }
                    }
                }
                for g in 0..G {
                    let from = g * padded + page.i * PAGE + part * V * LANES;
                    let out = scores[from..][..V * LANES].as_chunks_mut::<LANES>().0;
                    for (out, sum) in out.iter_mut().zip(sums[g]) {
                        ops::store(out, ops::mul(sum, scale));
                    }
                }
            }
        }

        /// Replaces the first `end` scores by exp(s − max), and the rest by 0.
        #[inline]
        #[target_feature(enable = $features)]
        fn exponents(scores: &mut [f32], end: usize) {
            scores[end..].fill(f32::NEG_INFINITY);
            let vectors = scores.as_chunks_mut::<LANES>().0;
            let mut top = ops::splat(f32::NEG_INFINITY);
            for s in vectors.iter() {
                // In this order the number wins over a NaN.
                top = ops::larger(ops::load(s), top);
            }
            let top = ops::splat(ops::max(top));
            for s in vectors.iter_mut() {
                ops::store(s, ops::exp(ops::sub(ops::load(s), top)));
            }
            scores[end..].fill(0.0);
        }

        /// Adds the values of a page, weighted by one row's scores, to `out`, `[group][head_dim]`.
        #[inline]
        #[target_feature(enable = $features)]
        fn accumulate(
            a: &Attention<'_>,
            row: usize,
            page: PageData<'_>,
            scores: &[f32],
            out: &mut [f32],
        ) {
            match page.elements {
                PageElements::F32(values) => {
                    let read = (|v: &[f32; LANES]| ops::load(v), |v: f32| v);
                    let page = page.with(values);
                    match page.next.is_empty() {
                        true => accumulate_all::<false, _>(a, row, page, scores, out, read),
                        false => accumulate_all::<true, _>(a, row, page, scores, out, read),
                    }
                }
                $(PageElements::$codes(values) => {
                    use $crate::kernel::kv::{$codes, Element};
                    let read = (|v: &[u16; LANES]| ops::$load(v), |v| $codes::decode(v));
                    accumulate_all::<true, _>(a, row, page.with(values), scores, out, read);
                })*
                #[allow(unreachable_patterns)] // Some instruction sets read all types.
                _ => unreachable!("this instruction set reads no codes"),
            }
        }

        /// As [`accumulate`], for values of one type. `read` loads a vector of them, and a single one.
        #[inline]
        #[target_feature(enable = $features)]
        fn accumulate_all<const AHEAD: bool, E: Copy>(
            a: &Attention<'_>,
            row: usize,
            page: PageData<'_, &[E]>,
            scores: &[f32],
            out: &mut [f32],
            read: (impl Fn(&[E; LANES]) -> ops::Vector + Copy, impl Fn(E) -> f32 + Copy),
        ) {
            let padded = scores.len() / a.group();
            let slots = PAGE.min(a.ends[row] - page.i * PAGE);
            let page = page.with(&page.elements[..slots * a.head_dim()]);
            let (mut scores, mut out) = (scores, out);
            while !out.is_empty() {
                let size = queries_per_tile(out.len() / a.head_dim(), $queries);
                let (now, later) = scores.split_at(size * padded);
                let (sums, rest) = out.split_at_mut(size * a.head_dim());
                match size {
                    4 => {
                        let weights = page_weights(now, page.i);
                        accumulate_tile::<4, { vectors(4) }, AHEAD, E>(page, &weights, sums, read);
                    }
                    3 => {
                        let weights = page_weights(now, page.i);
                        accumulate_tile::<3, { vectors(3) }, AHEAD, E>(page, &weights, sums, read);
                    }
                    2 => {
                        let weights = page_weights(now, page.i);
                        accumulate_tile::<2, { vectors(2) }, AHEAD, E>(page, &weights, sums, read);
                    }
                    _ => {
                        let weights = page_weights(now, page.i);
                        accumulate_tile::<1, { vectors(1) }, AHEAD, E>(page, &weights, sums, read);
                    }
                }
                (scores, out) = (later, rest);
            }
        }

        /// Adds a page's values to the sums of `G` queries, `[G][head_dim]`, `V` vectors at a time.
        #[inline]
        #[target_feature(enable = $features)]
        fn accumulate_tile<const G: usize, const V: usize, const AHEAD: bool, E: Copy>(
            page: PageData<'_, &[E]>,
            weights: &[&[f32]; G],
            sums: &mut [f32],
            (load, one): (impl Fn(&[E; LANES]) -> ops::Vector + Copy, impl Fn(E) -> f32 + Copy),
        ) {
            let head_dim = sums.len() / G;
            let mut d = 0;
            while d < head_dim {
                d += match head_dim - d {
                    left if left >= V * LANES => {
                        accumulate_lanes::<G, V, AHEAD, E>(page, weights, d, sums, load)
                    }
                    left if left >= LANES => {
                        accumulate_lanes::<G, 1, AHEAD, E>(page, weights, d, sums, load)
                    }
                    _ => accumulate_one(page.elements, weights, d, sums, one),
                };
            }
        }

        /// Adds the `V` vectors from dimension `d` on; returns their number of dimensions.
        #[inline]
        #[target_feature(enable = $features)]
        fn accumulate_lanes<const G: usize, const V: usize, const AHEAD: bool, E: Copy>(
            page: PageData<'_, &[E]>,
            weights: &[&[f32]; G],
            d: usize,
            out: &mut [f32],
            load: impl Fn(&[E; LANES]) -> ops::Vector,
        ) -> usize {
            let head_dim = out.len() / G;
            let size = page.next_element_size(head_dim);
            let mut next = page.next.as_ptr().wrapping_add(d * size);
            let mut sums = [[ops::zero(); V]; G];
            for g in 0..G {
                let out = out[g * head_dim + d..][..LANES * V].as_chunks::<LANES>().0;
                for v in 0..V {
                    sums[g][v] = ops::load(&out[v]);
                }
            }
            for (slot, value) in page.elements.chunks_exact(head_dim).enumerate() {
                let value = &value[d..d + LANES * V].as_chunks::<LANES>().0[..V];
                let lines = lines::<AHEAD, E>(V * LANES);
                (0..lines).for_each(|line| ops::prefetch(next, line * LINE));
                next = next.wrapping_add(head_dim * size);
                for g in 0..G {
                    let p = ops::splat(weights[g][slot]);
                    for v in 0..V {
                        sums[g][v] = ops::add_product(p, load(&value[v]), sums[g][v]);
                    }
                }
            }
            for g in 0..G {
                let out = out[g * head_dim + d..][..LANES * V].as_chunks_mut::<LANES>().0;
                for v in 0..V {
                    ops::store(&mut out[v], sums[g][v]);
                }
            }
            LANES * V
        }

        /// Adds dimension `d` alone; returns 1.
        #[target_feature(enable = $features)]
        fn accumulate_one<const G: usize, E: Copy>(
            values: &[E],
            weights: &[&[f32]; G],
            d: usize,
            out: &mut [f32],
            one: impl Fn(E) -> f32,
        ) -> usize {
            let head_dim = out.len() / G;
            for g in 0..G {
                let sum = &mut out[g * head_dim + d];
                for (p, value) in weights[g].iter().zip(values.chunks_exact(head_dim)) {
                    *sum = ops::add_product_one(*p, one(value[d]), *sum);
                }
            }
            1
        }
    };
}
pub(super) use attention;
