//! Softmax attention over pages, for vectors of any length: 32 keys at a time with keys stored by
//! dimension, then values by position. No horizontal sums, and the order of additions is that of
//! positions; so scores and mixtures have the same bits whatever the length.

/// Defines `attend` of a set: its features; floats in a vector; queries that are scored together where
/// rows have so many between them; queries that go together otherwise; vectors of sums that leave room
/// in the registers for what is multiplied; a module with its KV codecs and what its vectors can do
/// (`avx2::lanes` says what that is); and what in there loads codes of 16 bits, in both types or none.
macro_rules! attention {
    ($features:literal, $lanes:literal, $many:literal, $queries:literal, $sums:literal, $ops:path,
     [$($codes:ident $load:ident),*]) => {
        use std::ops::Range;
        use $crate::kernel::Numbers;
        use $crate::kernel::walk::{Page, Steps, tile, walk, weights};
        use $crate::kernel::{Attention, KvCodec, KvType, PAGE};
        use $crate::par::{Columns, Scratch};
        use $ops as ops;

        /// Floats in a vector.
        const LANES: usize = $lanes;
        /// Bytes that memory is asked for at a time.
        const LINE: usize = 64;
        /// Whether codes of 16 bits become vectors where they are multiplied.
        const TAKES_CODES: bool = !<[KvType]>::is_empty(&[$(KvType::$codes),*]);

        /// Vectors of sums that each of so many queries has at a time: a power of two, up to four.
        const fn vectors(queries: usize) -> usize {
            match $sums / queries {
                4.. => 4,
                2 | 3 => 2,
                _ => 1,
            }
        }

        /// The same for scores, of which a page has so many.
        const fn score_vectors(queries: usize) -> usize {
            if vectors(queries) < PAGE / LANES { vectors(queries) } else { PAGE / LANES }
        }

        /// Lines of the next page that are asked for while so many elements are multiplied: as many as
        /// hold them, or none.
        const fn lines<const AHEAD: bool, E>(elements: usize) -> usize {
            if AHEAD { (elements * size_of::<E>()).div_ceil(LINE) } else { 0 }
        }

        /// See the scalar definition.
        #[target_feature(enable = $features)]
        pub fn attend(a: &Attention<'_>, out: &mut Columns<'_>, scratch: &mut Scratch) {
            attend_with(a, &ops::KV, out, scratch);
        }

        /// The same over pages that these codecs have written.
        #[inline]
        #[target_feature(enable = $features)]
        pub fn attend_with(
            a: &Attention<'_>,
            kv: &[KvCodec; KvType::COUNT],
            out: &mut Columns<'_>,
            scratch: &mut Scratch,
        ) {
            let steps = Steps {
                score: |rows, page: Page<'_>, scores: &mut [f32]| score(a, rows, page, scores),
                exponents: |scores: &mut [f32], end| exponents(scores, end),
                mix: |row, page: Page<'_>, scores: &[f32], out: &mut [f32]| {
                    mix(a, row, page, scores, out);
                },
                total: |scores: &[f32]| ops::total(scores),
                takes_codes: TAKES_CODES,
            };
            walk(a, kv, out, scratch, steps);
        }

        /// Scores of some rows for a page; `scores`: `[rows][group][position]`.
        #[inline]
        #[target_feature(enable = $features)]
        fn score(
            a: &Attention<'_>,
            rows: Range<usize>,
            page: Page<'_>,
            scores: &mut [f32],
        ) {
            match page.numbers {
                Numbers::F32(keys) => {
                    let load = |keys: &[f32; LANES]| ops::load(keys);
                    let page = page.with(keys);
                    match page.next.is_empty() {
                        true => score_all::<false, _>(a, rows, page, scores, load),
                        false => score_all::<true, _>(a, rows, page, scores, load),
                    }
                }
                $(Numbers::$codes(keys) => {
                    let load = |keys: &[u16; LANES]| ops::$load(keys);
                    score_all::<true, _>(a, rows, page.with(keys), scores, load);
                })*
                #[allow(unreachable_patterns)] // Sets that take all of them.
                _ => unreachable!("this set takes no codes"),
            }
        }

        /// The same for keys that this loads; `AHEAD`: the next page is asked for.
        #[inline]
        #[target_feature(enable = $features)]
        fn score_all<const AHEAD: bool, E: Copy>(
            a: &Attention<'_>,
            rows: Range<usize>,
            page: Page<'_, &[E]>,
            scores: &mut [f32],
            load: impl Fn(&[E; LANES]) -> ops::Vector + Copy,
        ) {
            let padded = scores.len() / (rows.len() * a.group());
            let mut queries = a.rows(rows);
            let mut scores = scores;
            while !queries.is_empty() {
                let left = queries.len() / a.head_dim();
                let size = if left >= $many { $many } else { tile(left, $queries) };
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

        /// q · k · scale of `G` queries for all 32 slots of a page, `V` vectors of them at a time (those
        /// past the end are garbage).
        #[inline]
        #[target_feature(enable = $features)]
        fn score_tile<const G: usize, const V: usize, const AHEAD: bool, E: Copy>(
            a: &Attention<'_>,
            queries: &[f32],
            page: Page<'_, &[E]>,
            scores: &mut [f32],
            load: impl Fn(&[E; LANES]) -> ops::Vector,
        ) {
            let queries: [&[f32]; G] =
                std::array::from_fn(|g| &queries[g * a.head_dim()..][..a.head_dim()]);
            let scale = ops::splat(a.scale);
            let padded = scores.len() / G;
            // Of the next page, too, V vectors for each dimension.
            let ahead = V * LANES * page.next_size(a.head_dim());
            let mut next = page.next.as_ptr();
            for part in 0..PAGE / LANES / V {
                let mut sums = [[ops::zero(); V]; G];
                for (d, keys) in page.numbers.as_chunks::<PAGE>().0.iter().enumerate() {
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

        /// exp(s − max) of the first `end` scores, 0 for the rest.
        #[inline]
        #[target_feature(enable = $features)]
        fn exponents(scores: &mut [f32], end: usize) {
            scores[end..].fill(f32::NEG_INFINITY);
            let vectors = scores.as_chunks_mut::<LANES>().0;
            let mut top = ops::splat(f32::NEG_INFINITY);
            for s in vectors.iter() {
                // In this order: of a NaN and a number the number counts.
                top = ops::larger(ops::load(s), top);
            }
            let top = ops::splat(ops::max(top));
            for s in vectors.iter_mut() {
                ops::store(s, ops::exp(ops::sub(ops::load(s), top)));
            }
            scores[end..].fill(0.0);
        }

        /// Adds the values of a page, weighted by one row's scores, to its `out`: `[group][head_dim]`.
        #[inline]
        #[target_feature(enable = $features)]
        fn mix(
            a: &Attention<'_>,
            row: usize,
            page: Page<'_>,
            scores: &[f32],
            out: &mut [f32],
        ) {
            match page.numbers {
                Numbers::F32(values) => {
                    let read = (|v: &[f32; LANES]| ops::load(v), |v: f32| v);
                    let page = page.with(values);
                    match page.next.is_empty() {
                        true => mix_all::<false, _>(a, row, page, scores, out, read),
                        false => mix_all::<true, _>(a, row, page, scores, out, read),
                    }
                }
                $(Numbers::$codes(values) => {
                    use $crate::kernel::kv::{$codes, Element};
                    let read = (|v: &[u16; LANES]| ops::$load(v), |v| $codes::decode(v));
                    mix_all::<true, _>(a, row, page.with(values), scores, out, read);
                })*
                #[allow(unreachable_patterns)] // Sets that take all of them.
                _ => unreachable!("this set takes no codes"),
            }
        }

        /// The same for values that these load: a vector of them, and one.
        #[inline]
        #[target_feature(enable = $features)]
        fn mix_all<const AHEAD: bool, E: Copy>(
            a: &Attention<'_>,
            row: usize,
            page: Page<'_, &[E]>,
            scores: &[f32],
            out: &mut [f32],
            read: (impl Fn(&[E; LANES]) -> ops::Vector + Copy, impl Fn(E) -> f32 + Copy),
        ) {
            let padded = scores.len() / a.group();
            let slots = PAGE.min(a.ends[row] - page.i * PAGE);
            let page = page.with(&page.numbers[..slots * a.head_dim()]);
            let (mut scores, mut out) = (scores, out);
            while !out.is_empty() {
                let size = tile(out.len() / a.head_dim(), $queries);
                let (now, later) = scores.split_at(size * padded);
                let (sums, rest) = out.split_at_mut(size * a.head_dim());
                match size {
                    4 => mix_tile::<4, { vectors(4) }, AHEAD, E>(page, &weights(now, page.i), sums, read),
                    3 => mix_tile::<3, { vectors(3) }, AHEAD, E>(page, &weights(now, page.i), sums, read),
                    2 => mix_tile::<2, { vectors(2) }, AHEAD, E>(page, &weights(now, page.i), sums, read),
                    _ => mix_tile::<1, { vectors(1) }, AHEAD, E>(page, &weights(now, page.i), sums, read),
                }
                (scores, out) = (later, rest);
            }
        }

        /// Adds a page's values to the sums of `G` queries, `[G][head_dim]`, `V` vectors of them at a
        /// time.
        #[inline]
        #[target_feature(enable = $features)]
        fn mix_tile<const G: usize, const V: usize, const AHEAD: bool, E: Copy>(
            page: Page<'_, &[E]>,
            weights: &[&[f32]; G],
            sums: &mut [f32],
            (load, one): (impl Fn(&[E; LANES]) -> ops::Vector + Copy, impl Fn(E) -> f32 + Copy),
        ) {
            let head_dim = sums.len() / G;
            let mut d = 0;
            while d < head_dim {
                d += match head_dim - d {
                    left if left >= V * LANES => mix_lanes::<G, V, AHEAD, E>(page, weights, d, sums, load),
                    left if left >= LANES => mix_lanes::<G, 1, AHEAD, E>(page, weights, d, sums, load),
                    _ => mix_one(page.numbers, weights, d, sums, one),
                };
            }
        }

        /// The dimensions `d..d + V` vectors; returns how many that are.
        #[inline]
        #[target_feature(enable = $features)]
        fn mix_lanes<const G: usize, const V: usize, const AHEAD: bool, E: Copy>(
            page: Page<'_, &[E]>,
            weights: &[&[f32]; G],
            d: usize,
            out: &mut [f32],
            load: impl Fn(&[E; LANES]) -> ops::Vector,
        ) -> usize {
            let head_dim = out.len() / G;
            let size = page.next_size(head_dim);
            let mut next = page.next.as_ptr().wrapping_add(d * size);
            let mut sums = [[ops::zero(); V]; G];
            for g in 0..G {
                let out = out[g * head_dim + d..][..LANES * V].as_chunks::<LANES>().0;
                for v in 0..V {
                    sums[g][v] = ops::load(&out[v]);
                }
            }
            for (slot, value) in page.numbers.chunks_exact(head_dim).enumerate() {
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

        /// Dimension `d` alone; returns 1.
        #[target_feature(enable = $features)]
        fn mix_one<const G: usize, E: Copy>(
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
