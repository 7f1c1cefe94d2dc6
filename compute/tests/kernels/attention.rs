//! Attention and the pages that it reads.

use super::{Noise, bits, close, sets};
use wrinklefree_compute::kernel::{Attention, Isa, Kernels, KvType, PAGE, PageLayout};
use wrinklefree_compute::mem::AlignedVec;
use wrinklefree_compute::par::{Columns, Scratch};

/// Returns pages of noise as these kernels and as the scalar kernels write them. Every slot is written.
fn pages(k: &Kernels, count: usize, layout: PageLayout, noise: &mut Noise) -> [AlignedVec<u8>; 2] {
    let mut both = [(); 2].map(|()| AlignedVec::<u8>::zeroed(count * layout.bytes()));
    for at in (0..count * layout.bytes()).step_by(layout.bytes()) {
        for slot in 0..PAGE {
            let (key, value) = (noise.floats(layout.head_dim), noise.floats(layout.head_dim));
            for (pages, kv) in both.iter_mut().zip([&k.kv, &Kernels::SCALAR.kv]) {
                layout.write(kv, &mut pages[at..][..layout.bytes()], slot, (&key, &value));
            }
        }
    }
    both
}

/// Returns a layout with one type for keys and values.
fn layout(head_dim: usize, dtype: KvType) -> PageLayout {
    PageLayout { head_dim, keys: dtype, values: dtype }
}

/// Computes attention of rows that see `ends` keys; returns `[rows][group · head_dim]`.
pub(super) fn attend(
    k: &Kernels,
    queries: &[f32],
    layout: PageLayout,
    (pages, table): (&[u8], &[u32]),
    ends: &[usize],
) -> Vec<f32> {
    let a = Attention { queries, scale: 0.3, layout, pages, table, ends };
    let mut out = vec![f32::NAN; queries.len()];
    let width = queries.len() / ends.len();
    k.attention(&a, &mut Columns::whole(&mut out, width), &mut Scratch::default());
    out
}

pub fn attention_agrees_and_ignores_slots_past_the_end() {
    let mut noise = Noise(0x5555_aaaa_1234_4321);
    for k in sets("attention") {
        for (keys, values) in TYPES {
            for head_dim in [2, 10, 32, 64, 72, 128] {
                for group in [1, 2, 3, 4, 7] {
                    let layout = PageLayout { head_dim, keys, values };
                    let table = [3u32, 0, 5, 1];
                    let [mut pages, scalar] = pages(&k, 6, layout, &mut noise);
                    for end in [1, 31, 32, 33, 100] {
                        let queries = noise.floats(group * head_dim);
                        let run = |k: &Kernels, pages: &[u8]| {
                            attend(k, &queries, layout, (pages, &table), &[end])
                        };
                        let got = run(&k, &pages);
                        let what = format!("{keys:?} {values:?} {head_dim} {group} {end}");
                        close(&got, &run(&Kernels::SCALAR, &scalar), &what);
                        // Slots past the end may hold anything.
                        let broken = vec![f32::NAN; head_dim];
                        let last = table[(end - 1) / PAGE] as usize * layout.bytes();
                        let kept = pages.clone();
                        for slot in (end - 1) % PAGE + 1..PAGE {
                            let page = &mut pages[last..][..layout.bytes()];
                            layout.write(&k.kv, page, slot, (&broken, &broken));
                        }
                        assert_eq!(bits(&got), bits(&run(&k, &pages)), "{what}");
                        pages = kept;
                    }
                }
            }
        }
    }
}

pub fn long_texts_are_merged_from_parts() {
    let mut noise = Noise(0x2468_ace0_1357_9bdf);
    let (dim, group, count) = (32, 3, 2 * Attention::PART + 100);
    let ends = [5, Attention::PART, Attention::PART + 1, 40, count];
    for k in sets("attention to several parts") {
        for dtype in KvType::ALL {
            let layout = layout(dim, dtype);
            let [pages, scalar] = pages(&k, count.div_ceil(PAGE), layout, &mut noise);
            let table: Vec<u32> = (0..count.div_ceil(PAGE) as u32).rev().collect();
            let queries = noise.floats(ends.len() * group * dim);
            let got = attend(&k, &queries, layout, (&pages, &table), &ends);
            let (what, width) = (format!("{:?} {dtype:?}", k.isa()), group * dim);
            for (row, &end) in ends.iter().enumerate() {
                let query = &queries[row * width..][..width];
                let alone = attend(&k, query, layout, (&pages, &table), &[end]);
                let got = &got[row * width..][..width];
                assert_eq!(bits(got), bits(&alone), "{what} {row}");
                close(got, &at_once(query, layout, (&scalar, &table), end), &what);
            }
        }
    }
}

/// Returns the attention of a row as the scalar kernel computes it without parts.
fn at_once(
    queries: &[f32],
    layout: PageLayout,
    (pages, table): (&[u8], &[u32]),
    end: usize,
) -> Vec<f32> {
    let a = Attention { queries, scale: 0.3, layout, pages, table, ends: &[end] };
    let mut out = vec![f32::NAN; queries.len()];
    let mut view = Columns::whole(&mut out, queries.len());
    (Kernels::SCALAR.attend)(&a, &mut view, &mut Scratch::default());
    out
}

/// Types of keys and values: each type, and mixtures.
const TYPES: [(KvType, KvType); 9] = [
    (KvType::F32, KvType::F32),
    (KvType::F16, KvType::F16),
    (KvType::Bf16, KvType::Bf16),
    (KvType::Fp8E4m3, KvType::Fp8E4m3),
    (KvType::Fp8E5m2, KvType::Fp8E5m2),
    (KvType::Int8, KvType::Int8),
    (KvType::Int8, KvType::F16),
    (KvType::Bf16, KvType::Int8),
    (KvType::F32, KvType::Bf16),
];

pub fn rows_that_attend_together_get_what_each_gets_alone() {
    let mut noise = Noise(0x1357_9bdf_0246_8ace);
    for k in sets("attention of several rows") {
        for dtype in KvType::ALL {
            for head_dim in [40, 64] {
                for broken in [Broken::Key, Broken::Value] {
                    together_as_alone(&k, layout(head_dim, dtype), broken, &mut noise);
                }
            }
        }
    }
}

/// The vector that is not finite at position 31.
#[derive(Clone, Copy, Debug)]
enum Broken {
    Key,
    Value,
}

fn together_as_alone(k: &Kernels, layout: PageLayout, broken: Broken, noise: &mut Noise) {
    let (table, dim) = ([2u32, 0, 3, 1], layout.head_dim);
    let [mut pages, _] = pages(k, 4, layout, noise);
    let mut vectors = [noise.floats(dim), noise.floats(dim)];
    vectors[broken as usize][1] = f32::NAN;
    let page = &mut pages[2 * layout.bytes()..][..layout.bytes()];
    layout.write(&k.kv, page, 31, (&vectors[0], &vectors[1]));
    for group in [1, 4, 5] {
        for ends in
            [&[7usize, 8, 9][..], &[31, 32, 33, 34, 35], &[128, 1, 64], &[100; 9], &[40; 17]]
        {
            let width = group * dim;
            let queries = noise.floats(ends.len() * width);
            let got = attend(k, &queries, layout, (&pages, &table), ends);
            for (row, end) in ends.iter().enumerate() {
                let query = &queries[row * width..][..width];
                let alone = attend(k, query, layout, (&pages, &table), &[*end]);
                let what = format!("{:?} {layout:?} {broken:?} {ends:?} {row}", k.isa());
                assert_eq!(bits(&got[row * width..][..width]), bits(&alone), "{what}");
                assert_eq!(*end < 32, alone.iter().all(|x| x.is_finite()), "{what}");
            }
        }
    }
}

/// Random numbers of all magnitudes.
fn wild(noise: &mut Noise, n: usize) -> Vec<f32> {
    (0..n)
        .map(|_| match noise.below(8) {
            0 => 0.0,
            1 => -0.0,
            _ => noise.float() * (noise.below(60) as f32 - 40.0).exp2(),
        })
        .collect()
}

pub fn keys_and_values_are_stored_as_scalar_stores_them() {
    let mut noise = Noise(0x0123_4567_89ab_cdef);
    for k in sets("storing keys and values") {
        for (keys, values) in TYPES {
            for head_dim in [2, 10, 32, 64, 72, 128] {
                let layout = PageLayout { head_dim, keys, values };
                let mut both = [(); 2].map(|()| AlignedVec::<u8>::zeroed(layout.bytes()));
                for slot in 0..PAGE {
                    let (mut key, mut value) =
                        (wild(&mut noise, head_dim), wild(&mut noise, head_dim));
                    match slot {
                        3 => key[1] = f32::NAN,
                        4 => value[0] = f32::NEG_INFINITY,
                        5 => key.fill(1e-44),
                        6 => value.fill(0.0),
                        _ => {}
                    }
                    for (page, kv) in both.iter_mut().zip([&k.kv, &Kernels::SCALAR.kv]) {
                        layout.write(kv, page, slot, (&key, &value));
                    }
                }
                let what = format!("{:?} {layout:?}", k.isa());
                let (got, want) =
                    (read(&k, layout, &both[0]), read(&Kernels::SCALAR, layout, &both[1]));
                if in_tiles(&k, layout) {
                    assert_same_numbers(layout, &got, &want, &what);
                } else {
                    assert!(both[0][..] == both[1][..], "{what}");
                    assert!(got.map(|x| bits(&x)) == want.map(|x| bits(&x)), "{what}");
                }
            }
        }
    }
}

/// Returns true if a set stores pages of these types in tiles.
fn in_tiles(k: &Kernels, layout: PageLayout) -> bool {
    let tiled = [layout.keys, layout.values].contains(&KvType::Bf16);
    k.isa() == Isa::Amx && layout.head_dim.is_multiple_of(32) && tiled
}

/// Returns a page's keys, `[head_dim][PAGE]`, and values, `[PAGE][head_dim]`.
fn read(k: &Kernels, layout: PageLayout, page: &[u8]) -> [Vec<f32>; 2] {
    let mut decoded = vec![0.0; layout.head_dim * PAGE];
    let keys = layout.keys(&k.kv, page, &mut decoded).to_vec();
    [keys, layout.values(&k.kv, page, &mut decoded).to_vec()]
}

/// Asserts that tiles hold the same numbers. A value that is not finite is stored as zeros, and its key as
/// NaN.
fn assert_same_numbers(layout: PageLayout, got: &[Vec<f32>; 2], want: &[Vec<f32>; 2], what: &str) {
    let tiled = layout.values == KvType::Bf16;
    for (part, (got, want)) in got.iter().zip(want).enumerate() {
        for (n, (got, want)) in got.iter().zip(want).enumerate() {
            let slot = if part == 0 { n % PAGE } else { n / layout.head_dim };
            match (part, slot) {
                (0, 4) if tiled => assert!(got.is_nan(), "{what}: the key of a broken value"),
                (1, 4) if tiled => assert_eq!(*got, 0.0, "{what}: a broken value"),
                _ if want.is_nan() => assert!(got.is_nan(), "{what} [{n}]: {got}"),
                _ => assert_eq!(got, want, "{what} [{n}]"),
            }
        }
    }
}

/// Returns the finite numbers of a type with small floats, from its definition.
fn numbers(dtype: KvType) -> Vec<f32> {
    let (exponent, mantissa, largest) = match dtype {
        KvType::F16 => (5, 10, 65_504.0),
        KvType::Bf16 => (8, 7, f32::MAX),
        KvType::Fp8E4m3 => (4, 3, 448.0),
        _ => (5, 2, 57_344.0),
    };
    let bias = (1 << (exponent - 1)) - 1;
    let number = |code: i32| {
        let (e, m) = (code >> mantissa, f64::from(code & ((1 << mantissa) - 1)));
        let m = m / f64::from(1 << mantissa);
        (if e == 0 { m * 2f64.powi(1 - bias) } else { (1.0 + m) * 2f64.powi(e - bias) }) as f32
    };
    (0..1 << (exponent + mantissa)).map(number).filter(|x| *x <= largest).collect()
}

pub fn stored_numbers_are_the_nearest() {
    let mut noise = Noise(0x600d_600d_600d_600d);
    for dtype in [KvType::F16, KvType::Bf16, KvType::Fp8E4m3, KvType::Fp8E5m2] {
        let (layout, numbers) = (layout(1, dtype), numbers(dtype));
        let largest = *numbers.last().unwrap();
        let mut page = AlignedVec::<u8>::zeroed(layout.bytes());
        let mut decoded = [0.0; PAGE];
        let codec = Kernels::SCALAR.kv[dtype as usize];
        let scaled = dtype.size() == 1;
        for round in 0..40_000 {
            // Numbers, ties, and numbers in between.
            let at = noise.below(numbers.len() as u64 - 1) as usize;
            let share = f64::from([0.0, 0.5, noise.float().abs()][round % 3]);
            let x = (f64::from(numbers[at]) * (1.0 - share) + f64::from(numbers[at + 1]) * share)
                as f32;
            // The largest number next to it makes the scale 1.
            let mut codes = AlignedVec::<u8>::zeroed(2 * dtype.size());
            let scale = (codec.write_value)(&[x, -largest], &mut codes, 0);
            assert_eq!(scale, 1.0, "{dtype:?}: {largest}");
            page[..dtype.size()].copy_from_slice(&codes[..dtype.size()]);
            let scales = [1.0; PAGE];
            let scales = if scaled { &scales[..] } else { &[] };
            (codec.values)(&page[..PAGE * dtype.size()], scales, &mut decoded);
            let (below, above) = (numbers[at], numbers[at + 1]);
            let (down, up) = (x - below, above - x);
            let nearest = match down.partial_cmp(&up).unwrap() {
                std::cmp::Ordering::Less => below,
                std::cmp::Ordering::Greater => above,
                // The even code.
                std::cmp::Ordering::Equal if at.is_multiple_of(2) => below,
                std::cmp::Ordering::Equal => above,
            };
            assert_eq!(decoded[0], nearest, "{dtype:?}: {x} between {below} and {above}");
        }
    }
    let x = noise.floats(64);
    let (mut codes, mut back) = ([0u8; 64 * PAGE], vec![0.0; 64 * PAGE]);
    let int8 = Kernels::SCALAR.kv[KvType::Int8 as usize];
    let scale = (int8.write_value)(&x, &mut codes, 0);
    (int8.values)(&codes, &[scale; PAGE], &mut back);
    for (x, back) in x.iter().zip(back) {
        assert!((x - back).abs() <= 0.5001 * scale, "{x} {back} {scale}");
    }
}

pub fn numbers_that_are_not_finite_stay_so() {
    for dtype in KvType::ALL {
        let layout = layout(4, dtype);
        for broken in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut page = AlignedVec::<u8>::zeroed(layout.bytes());
            let x = [1.0, broken, 2.0, 0.0];
            layout.write(&Kernels::SCALAR.kv, &mut page, 7, (&x, &x));
            let mut decoded = [0.0; 4 * PAGE];
            let keys = layout.keys(&Kernels::SCALAR.kv, &page, &mut decoded);
            assert!(!keys[PAGE + 7].is_finite(), "{dtype:?} {broken}");
            assert!(keys[PAGE + 6] == 0.0, "{dtype:?}: the neighboring slots are unchanged");
            let values = layout.values(&Kernels::SCALAR.kv, &page, &mut decoded);
            assert!(!values[7 * 4 + 1].is_finite(), "{dtype:?} {broken}");
        }
    }
}

pub fn estimates_of_pages_are_close() {
    let mut noise = Noise(0xb0b0_b0b0_1111_2222);
    for k in sets("estimates of pages") {
        for head_dim in [2, 10, 32, 64, 72, 128] {
            let (mut keys, queries) = (noise.floats(head_dim * PAGE), noise.floats(3 * head_dim));
            let scale = 1.0 / (head_dim as f32).sqrt();
            let run = |k: &Kernels, keys: &[f32]| {
                let mut summary = vec![0.0; 2 * head_dim];
                (k.summarize)(keys, &mut summary);
                (bits(&summary), (k.estimate)(&queries, scale, &summary))
            };
            let (got, want) = (run(&k, &keys), run(&Kernels::SCALAR, &keys));
            assert_eq!((got.0, got.1.to_bits()), (want.0, want.1.to_bits()), "{head_dim}");
            // The logarithm of the mean weight of the page's keys, for the query with the largest.
            let truth = |keys: &[f32]| {
                let weight = |query: &[f32], slot: usize| {
                    let products = query.iter().enumerate().map(|(d, q)| q * keys[d * PAGE + slot]);
                    (products.sum::<f32>() * scale).exp()
                };
                let mean = |query: &[f32]| {
                    (0..PAGE).map(|slot| weight(query, slot)).sum::<f32>() / PAGE as f32
                };
                queries.chunks(head_dim).map(mean).fold(0f32, f32::max).ln()
            };
            let close = |got: f32, want: f32, by: f32| {
                assert!((got - want).abs() < by, "{got} {want} {head_dim}");
            };
            close(got.1, truth(&keys), 0.1);
            // Without variance there is nothing to estimate.
            keys.chunks_exact_mut(PAGE).for_each(|keys| keys.fill(keys[0]));
            close(run(&k, &keys).1, truth(&keys), 1e-5);
            // The estimate of keys that are not finite is NaN.
            for broken in [f32::NAN, f32::INFINITY] {
                keys[PAGE] = broken;
                assert!(run(&k, &keys).1.is_nan(), "{broken}");
            }
        }
    }
}
