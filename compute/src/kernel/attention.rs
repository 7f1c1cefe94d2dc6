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
/// - the types whose codes it reads, each with the type of a code and the functions that load a vector and
///   a pair of vectors, and that put a pair into order and out of it.
macro_rules! attention {
    ($features:literal, $lanes:literal, $many:literal, $queries:literal, $sums:literal, $ops:path,
     [$($codes:ident $code:ident $load:ident $pair:ident $join:ident $split:ident),*]) => {
        use std::ops::Range;
        use $crate::kernel::PageElements;
        use $crate::kernel::attention_loop::{
            Ahead, Loads, PageData, PageOps, attention_loop, page_weights, queries_per_tile,
        };
        use $crate::kernel::{Attention, KvCodec, KvType, PAGE};
        use $crate::par::{Columns, Scratch};
        use $ops as ops;

        /// Number of floats in a vector.
        const LANES: usize = $lanes;
        /// Number of floats in two vectors.
        const PAIR: usize = 2 * LANES;
        /// Number of dimensions that are scored without a check of their number between them.
        const UNROLLED: usize = 8;
        /// Number of bytes that a prefetch loads.
        const LINE: usize = 64;
        /// True if codes are converted in registers.
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

        /// Prefetches as many lines of the next page as hold `elements` elements of this page.
        #[inline]
        #[target_feature(enable = $features)]
        fn prefetch<const AHEAD: bool, E>(ahead: &mut Ahead, elements: usize) {
            if AHEAD {
                let place = ahead.advance();
                for line in 0..(elements * size_of::<E>()).div_ceil(LINE) {
                    ops::prefetch_second(place, line * LINE);
                }
            }
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
                    let load = |keys: &[f32; PAIR]| load_pair(keys);
                    let (page, read) = (page.with(keys), (load, in_order));
                    match page.next.is_empty() {
                        true => score_all::<false, _>(a, rows, page, scores, read),
                        false => score_all::<true, _>(a, rows, page, scores, read),
                    }
                }
                $(PageElements::$codes(keys) => {
                    let read = (
                        |keys: &[$code; PAIR]| ops::$pair(keys),
                        |pair: [ops::Vector; 2]| ops::$join(pair),
                    );
                    score_all::<true, _>(a, rows, page.with(keys), scores, read);
                })*
                #[allow(unreachable_patterns)] // Some instruction sets read all types.
                _ => unreachable!("this instruction set reads no codes"),
            }
        }

        /// Loads two vectors of floats.
        #[inline]
        #[target_feature(enable = $features)]
        fn load_pair(x: &[f32; PAIR]) -> [ops::Vector; 2] {
            let [a, b] = *x.as_chunks::<LANES>().0.first_chunk::<2>().expect("two vectors");
            [ops::load(&a), ops::load(&b)]
        }

        /// Returns a pair of vectors that is in order.
        #[inline(always)]
        fn in_order(pair: [ops::Vector; 2]) -> [ops::Vector; 2] {
            pair
        }

        /// As [`score`], for keys of one type, which `read` loads in pairs and puts into order. With
        /// `AHEAD` the next page is prefetched.
        #[inline]
        #[target_feature(enable = $features)]
        fn score_all<const AHEAD: bool, E: Copy>(
            a: &Attention<'_>,
            rows: Range<usize>,
            page: PageData<'_, &[E]>,
            scores: &mut [f32],
            read: (
                impl Fn(&[E; PAIR]) -> [ops::Vector; 2] + Copy,
                impl Fn([ops::Vector; 2]) -> [ops::Vector; 2] + Copy,
            ),
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
                        score_tile::<$many, { score_vectors($many) }, AHEAD, E>(a, now, page, out, read)
                    }
                    4 => score_tile::<4, { score_vectors(4) }, AHEAD, E>(a, now, page, out, read),
                    3 => score_tile::<3, { score_vectors(3) }, AHEAD, E>(a, now, page, out, read),
                    2 => score_tile::<2, { score_vectors(2) }, AHEAD, E>(a, now, page, out, read),
                    _ => score_tile::<1, { score_vectors(1) }, AHEAD, E>(a, now, page, out, read),
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
            (load, join): (
                impl Fn(&[E; PAIR]) -> [ops::Vector; 2] + Copy,
                impl Fn([ops::Vector; 2]) -> [ops::Vector; 2] + Copy,
            ),
        ) {
            let dim = a.head_dim();
            let mut rows: [&[f32]; G] = [&[]; G];
            for g in 0..G {
                rows[g] = &queries[g * dim..][..dim];
            }
            let (whole, rest) = page.elements.as_chunks::<PAGE>().0.as_chunks::<UNROLLED>();
            // V vectors per dimension of the next page, too.
            let mut ahead = page.ahead(dim, 0, V * LANES);
            for part in 0..PAGE / LANES / V {
                let mut sums = [[ops::zero(); V]; G];
                for (i, keys) in whole.iter().enumerate() {
                    let mut chunks = [&[0.0; UNROLLED]; G];
                    for g in 0..G {
                        chunks[g] = &rows[g].as_chunks().0[i];
                    }
                    for d in 0..UNROLLED {
                        prefetch::<AHEAD, E>(&mut ahead, V * LANES);
                        let mut query = [0.0; G];
                        for g in 0..G {
                            query[g] = chunks[g][d];
                        }
                        add_scores::<G, V, E>(&mut sums, query, &keys[d], part, load);
                    }
                }
                for (keys, d) in rest.iter().zip(dim - rest.len()..) {
                    prefetch::<AHEAD, E>(&mut ahead, V * LANES);
                    let mut query = [0.0; G];
                    for g in 0..G {
                        query[g] = rows[g][d];
                    }
                    add_scores::<G, V, E>(&mut sums, query, keys, part, load);
                }
                store_scores(a, page, part, &sums, scores, join);
            }
        }

        /// Adds the products of `G` queries and keys in one dimension, for the `part`-th `V` vectors of
        /// positions.
        #[inline]
        #[target_feature(enable = $features)]
        fn add_scores<const G: usize, const V: usize, E>(
            sums: &mut [[ops::Vector; V]; G],
            query: [f32; G],
            keys: &[E; PAGE],
            part: usize,
            load: impl Fn(&[E; PAIR]) -> [ops::Vector; 2],
        ) {
            let mut loaded = [ops::zero(); V];
            let keys = &keys.as_chunks::<PAIR>().0[part * V / 2..][..V / 2];
            for (loaded, keys) in loaded.as_chunks_mut::<2>().0.iter_mut().zip(keys) {
                *loaded = load(keys);
            }
            for g in 0..G {
                let q = ops::splat(query[g]);
                for v in 0..V {
                    sums[g][v] = ops::add_product(q, loaded[v], sums[g][v]);
                }
            }
        }

        /// Writes the scores of the `part`-th `V` vectors of a page's positions.
        #[inline]
        #[target_feature(enable = $features)]
        fn store_scores<const G: usize, const V: usize, E>(
            a: &Attention<'_>,
            page: PageData<'_, &[E]>,
            part: usize,
            sums: &[[ops::Vector; V]; G],
            scores: &mut [f32],
            join: impl Fn([ops::Vector; 2]) -> [ops::Vector; 2],
        ) {
            let (scale, padded) = (ops::splat(a.scale), scores.len() / G);
            for (g, sums) in sums.iter().enumerate() {
                let from = g * padded + page.i * PAGE + part * V * LANES;
                let out = scores[from..][..V * LANES].as_chunks_mut::<LANES>().0;
                for (i, out) in out.as_chunks_mut::<2>().0.iter_mut().enumerate() {
                    let pair = join([sums[2 * i], sums[2 * i + 1]]);
                    for (v, out) in out.iter_mut().enumerate() {
                        let mut score = ops::mul(pair[v], scale);
                        let scales = page.scales.as_chunks().0;
                        if let Some(scales) = scales.get(part * V + 2 * i + v) {
                            score = ops::mul(score, ops::load(scales));
                        }
                        ops::store(out, score);
                    }
                }
            }
        }

        /// Replaces the first `end` scores by exp(s − max), and the rest by 0. Returns max.
        #[inline]
        #[target_feature(enable = $features)]
        fn exponents(scores: &mut [f32], end: usize) -> f32 {
            scores[end..].fill(f32::NEG_INFINITY);
            let vectors = scores.as_chunks_mut::<LANES>().0;
            let mut top = ops::splat(f32::NEG_INFINITY);
            for s in vectors.iter() {
                // In this order the number wins over a NaN.
                top = ops::larger(ops::load(s), top);
            }
            let top = ops::max(top);
            for s in vectors.iter_mut() {
                ops::store(s, ops::exp(ops::sub(ops::load(s), ops::splat(top))));
            }
            scores[end..].fill(0.0);
            top
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
                    let read = Loads {
                        pair: |v: &[f32; PAIR]| load_pair(v),
                        join: in_order,
                        split: in_order,
                        single: |v: &[f32; LANES]| ops::load(v),
                        one: |v: f32| v,
                    };
                    let page = page.with(values);
                    match page.next.is_empty() {
                        true => accumulate_all::<false, _>(a, row, page, scores, out, read),
                        false => accumulate_all::<true, _>(a, row, page, scores, out, read),
                    }
                }
                $(PageElements::$codes(values) => {
                    use $crate::kernel::kv::{$codes, Element};
                    let read = Loads {
                        pair: |v: &[$code; PAIR]| ops::$pair(v),
                        join: |pair: [ops::Vector; 2]| ops::$join(pair),
                        split: |pair: [ops::Vector; 2]| ops::$split(pair),
                        single: |v: &[$code; LANES]| ops::$load(v),
                        one: |v| $codes::decode(v),
                    };
                    accumulate_all::<true, _>(a, row, page.with(values), scores, out, read);
                })*
                #[allow(unreachable_patterns)] // Some instruction sets read all types.
                _ => unreachable!("this instruction set reads no codes"),
            }
        }

        /// As [`accumulate`], for values of one type.
        #[inline]
        #[target_feature(enable = $features)]
        fn accumulate_all<const AHEAD: bool, E: Copy>(
            a: &Attention<'_>,
            row: usize,
            page: PageData<'_, &[E]>,
            scores: &[f32],
            out: &mut [f32],
            read: Loads<
                impl Fn(&[E; PAIR]) -> [ops::Vector; 2] + Copy,
                impl Fn([ops::Vector; 2]) -> [ops::Vector; 2] + Copy,
                impl Fn([ops::Vector; 2]) -> [ops::Vector; 2] + Copy,
                impl Fn(&[E; LANES]) -> ops::Vector + Copy,
                impl Fn(E) -> f32 + Copy,
            >,
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
            read: Loads<
                impl Fn(&[E; PAIR]) -> [ops::Vector; 2] + Copy,
                impl Fn([ops::Vector; 2]) -> [ops::Vector; 2] + Copy,
                impl Fn([ops::Vector; 2]) -> [ops::Vector; 2] + Copy,
                impl Fn(&[E; LANES]) -> ops::Vector + Copy,
                impl Fn(E) -> f32 + Copy,
            >,
        ) {
            let head_dim = sums.len() / G;
            let (mut weights, mut scaled) = (*weights, [[0.0; PAGE]; G]);
            if !page.scales.is_empty() {
                for (weights, scaled) in weights.iter_mut().zip(&mut scaled) {
                    for (slot, scaled) in scaled.iter_mut().enumerate() {
                        *scaled = weights[slot] * page.scales[slot];
                    }
                    *weights = scaled;
                }
            }
            let weights = &weights;
            let mut d = 0;
            while d < head_dim {
                d += match head_dim - d {
                    left if left >= V * LANES && V > 1 => {
                        accumulate_pairs::<G, V, AHEAD, E>(page, weights, d, sums, read)
                    }
                    left if left >= LANES => {
                        accumulate_lanes::<G, AHEAD, E>(page, weights, d, sums, read.single)
                    }
                    _ => accumulate_one(page.elements, weights, d, sums, read.one),
                };
            }
        }

        /// Adds the `V` vectors from dimension `d` on, an even number; returns their number of dimensions.
        #[inline]
        #[target_feature(enable = $features)]
        fn accumulate_pairs<const G: usize, const V: usize, const AHEAD: bool, E: Copy>(
            page: PageData<'_, &[E]>,
            weights: &[&[f32]; G],
            d: usize,
            out: &mut [f32],
            read: Loads<
                impl Fn(&[E; PAIR]) -> [ops::Vector; 2],
                impl Fn([ops::Vector; 2]) -> [ops::Vector; 2],
                impl Fn([ops::Vector; 2]) -> [ops::Vector; 2],
                impl Fn(&[E; LANES]) -> ops::Vector,
                impl Fn(E) -> f32,
            >,
        ) -> usize {
            let head_dim = out.len() / G;
            let mut ahead = page.ahead(head_dim, d, head_dim);
            let mut sums = [[ops::zero(); V]; G];
            for g in 0..G {
                let out = out[g * head_dim + d..][..LANES * V].as_chunks::<PAIR>().0;
                for (sums, out) in sums[g].as_chunks_mut::<2>().0.iter_mut().zip(out) {
                    *sums = (read.split)(load_pair(out));
                }
            }
            for (slot, value) in page.elements.chunks_exact(head_dim).enumerate() {
                prefetch::<AHEAD, E>(&mut ahead, V * LANES);
                let value = &value[d..d + LANES * V].as_chunks::<PAIR>().0[..V / 2];
                let mut loaded = [ops::zero(); V];
                for (loaded, value) in loaded.as_chunks_mut::<2>().0.iter_mut().zip(value) {
                    *loaded = (read.pair)(value);
                }
                for g in 0..G {
                    let p = ops::splat(weights[g][slot]);
                    for v in 0..V {
                        sums[g][v] = ops::add_product(p, loaded[v], sums[g][v]);
                    }
                }
            }
            for g in 0..G {
                let out = out[g * head_dim + d..][..LANES * V].as_chunks_mut::<LANES>().0;
                let pairs = out.as_chunks_mut::<2>().0.iter_mut().zip(sums[g].as_chunks::<2>().0);
                for (out, sums) in pairs {
                    let joined = (read.join)(*sums);
                    out.iter_mut().zip(joined).for_each(|(out, sum)| ops::store(out, sum));
                }
            }
            LANES * V
        }

        /// Adds the vector from dimension `d` on; returns its number of dimensions.
        #[inline]
        #[target_feature(enable = $features)]
        fn accumulate_lanes<const G: usize, const AHEAD: bool, E: Copy>(
            page: PageData<'_, &[E]>,
            weights: &[&[f32]; G],
            d: usize,
            out: &mut [f32],
            load: impl Fn(&[E; LANES]) -> ops::Vector,
        ) -> usize {
            let head_dim = out.len() / G;
            let mut ahead = page.ahead(head_dim, d, head_dim);
            let place = |g: usize| g * head_dim + d..g * head_dim + d + LANES;
            let mut sums = [ops::zero(); G];
            for g in 0..G {
                sums[g] = ops::load(&out[place(g)].as_chunks().0[0]);
            }
            for (slot, value) in page.elements.chunks_exact(head_dim).enumerate() {
                prefetch::<AHEAD, E>(&mut ahead, LANES);
                let value = load(&value[d..].as_chunks().0[0]);
                for g in 0..G {
                    sums[g] = ops::add_product(ops::splat(weights[g][slot]), value, sums[g]);
                }
            }
            for g in 0..G {
                ops::store(&mut out[place(g)].as_chunks_mut().0[0], sums[g]);
            }
            LANES
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
