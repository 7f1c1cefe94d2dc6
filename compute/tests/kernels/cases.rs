//! The cases of `tests/kernels.rs`. Integer kernels must agree bit for bit, float kernels within 1e-5 of
//! the largest value.

#[path = "attention.rs"]
mod attention;
#[path = "batches.rs"]
mod batches;
#[path = "finite.rs"]
mod finite;
#[path = "group_steps.rs"]
mod group_steps;
#[path = "int8.rs"]
mod int8;
#[path = "linear_attention.rs"]
mod linear_attention;
#[path = "one_bit.rs"]
mod one_bit;

pub use attention::*;
pub use batches::*;
pub use finite::*;
pub use group_steps::*;
pub use int8::*;
pub use linear_attention::*;
pub use one_bit::*;

use half::{bf16, f16};
use wrinklefree_compute::kernel::{GroupSteps, Isa, Kernels, Quantized};
use wrinklefree_compute::matrix::{
    FloatMatrix, FloatType, GroupScales, Int8Matrix, Scales, TernaryMatrix,
};
use wrinklefree_compute::par::{Columns, Scratch};
use wrinklefree_compute::ternary::Layout;

/// Calls a macro with the names of all cases.
macro_rules! each_case {
    ($then:ident) => {
        $then! {
            ternary_products_equal_scalar
            every_width_equals_scalar
            a_single_fourth_code_is_multiplied
            blocks_of_zeros_change_no_bit
            large_products_equal_scalar
            products_share_a_scratch
            products_write_nothing_past_a_view
            ternary_products_do_not_overflow_at_the_extremes
            one_bit_products_equal_scalar
            one_bit_products_do_not_overflow_at_the_extremes
            int8_products_equal_scalar
            split_products_equal_int8
            products_with_parts_of_scales_equal_int8
            int8_products_are_exact_beyond_32_bits
            ternary_products_with_group_steps_equal_scalar
            int8_products_with_group_steps_equal_scalar
            group_steps_scale_their_columns
            float_products_agree_and_do_not_depend_on_the_batch
            quantization_equals_scalar
            fifteen_bit_activations_are_close_to_the_floats
            every_line_is_read
            products_are_counted
            row_kernels_agree
            silu_is_silu
            logits_are_weighed_as_scalar_weighs_them
            attention_agrees_and_ignores_slots_past_the_end
            rows_that_attend_together_get_what_each_gets_alone
            long_texts_are_merged_from_parts
            keys_and_values_are_stored_as_scalar_stores_them
            stored_numbers_are_the_nearest
            numbers_that_are_not_finite_stay_so
            bounds_hold_for_every_number
            norms_and_gates_pass_on_what_is_not_finite
            rows_that_see_a_value_that_is_no_number_are_none
            estimates_of_pages_are_close
            transforms_are_walsh_hadamard
            gates_are_sigmoids
            linear_attention_is_the_recurrence
            linear_attention_does_not_depend_on_cuts
        }
    };
}
pub(crate) use each_case;

/// A small, fast random generator. Tests must not depend on the stream of a crate.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
    fn below(&mut self, n: u64) -> u64 {
        (self.next() >> 11) % n
    }
    fn float(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }
    fn floats(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.float()).collect()
    }
}

/// Returns every instruction set of this machine except scalar; prints the missing ones.
fn sets(test: &str) -> Vec<Kernels> {
    let required = std::env::var("REQUIRE_ISA").unwrap_or_default();
    for name in required.split(',').filter(|n| !n.is_empty()) {
        let isa = Isa::parse(name)
            .unwrap_or_else(|| panic!("REQUIRE_ISA: unknown instruction set {name}"));
        assert!(Kernels::for_isa(isa).is_some(), "REQUIRE_ISA: this machine lacks {name}");
    }
    for isa in Isa::ALL {
        let state = if Kernels::for_isa(isa).is_some() { "runs" } else { "MISSING, NOT TESTED" };
        println!("{test}: {} {state}", isa.name());
    }
    // AVX-512 has two forms of the ternary product; both are tested on every CPU.
    let other =
        Kernels::for_isa(Isa::Avx512).map(|k| [true, false].map(|tables| k.by_table(tables)));
    let sets = Kernels::all().filter(|k| !matches!(k.isa(), Isa::Scalar | Isa::Avx512));
    sets.chain(other.into_iter().flatten()).collect()
}

/// Quantized activations, `[rows][cols]`. The joined values of two planes are within ±32,512, as
/// `quantize16` writes them.
struct Activations {
    values: Vec<i8>,
    stride: usize,
    sums: Vec<i32>,
    steps: Vec<f32>,
    planes: usize,
    /// Number of columns of a group with a scale of its own, and the scales, `[rows][groups]`.
    groups: Option<(usize, Vec<f32>)>,
}

impl Activations {
    fn new(rows: usize, cols: usize, planes: usize, mut value: impl FnMut() -> i8) -> Self {
        let stride = Quantized::stride_of(cols);
        let mut values = vec![0i8; rows * stride];
        values.chunks_exact_mut(stride).for_each(|row| row[..cols].fill_with(&mut value));
        if planes == 2 {
            for token in values.chunks_exact_mut(2 * stride) {
                let (high, low) = token.split_at_mut(stride);
                for (high, low) in high.iter_mut().zip(low) {
                    let q = (256 * i32::from(*high) + i32::from(*low)).clamp(-32_512, 32_512);
                    *high = ((q + 128) >> 8) as i8;
                    *low = (q - 256 * i32::from(*high)) as i8;
                }
            }
        }
        let sum = |row: &[i8]| row.iter().map(|&v| i32::from(v)).sum();
        let sums = values.chunks_exact(stride).map(sum).collect();
        let steps = (0..rows).map(|r| 0.01 + 0.003 * r as f32).collect();
        Self { values, stride, sums, steps, planes, groups: None }
    }
    /// Gives each group of columns a scale.
    fn with_group_steps(mut self, cols: usize, columns: usize, noise: &mut Noise) -> Self {
        let steps = noise.floats(self.sums.len() * cols.div_ceil(columns));
        self.groups = Some((columns, steps));
        self
    }
    fn view(&self) -> Quantized<'_> {
        Quantized {
            values: &self.values,
            stride: self.stride,
            sums: &self.sums,
            steps: &self.steps,
            planes: self.planes,
            groups: self
                .groups
                .as_ref()
                .map(|(columns, steps)| GroupSteps { columns: *columns, steps }),
        }
    }
}

fn bits(y: &[f32]) -> Vec<u32> {
    y.iter().map(|v| v.to_bits()).collect()
}

/// Computes the product of the panels `from..` into a wider matrix, so that stray writes would show.
fn product(
    rows: usize,
    outputs: usize,
    from: usize,
    run: impl Fn(std::ops::Range<usize>, &mut Columns<'_>, &mut Scratch),
) -> Vec<u32> {
    let width = outputs + 5;
    let mut y = vec![7.5f32; rows * width];
    let mut view = Columns::whole(&mut y, width);
    run(from..outputs.div_ceil(16), &mut view.narrow(from * 16, outputs), &mut Scratch::default());
    bits(&y)
}

const SHAPES: [(usize, usize); 10] = [
    (1, 1),
    (16, 16),
    (17, 33),
    (5, 160),
    (48, 161),
    (31, 512),
    (33, 1000),
    (64, 2560),
    (16, 6912),
    // More panels than share a table.
    (2065, 97),
];

/// Compares the product of the panels from `from` on with the scalar one.
fn ternary_equals_scalar(
    k: &Kernels,
    (w, x): (&TernaryMatrix, &Activations),
    from: usize,
    what: &str,
) {
    let (batch, view) = (x.view().tokens(), x.view());
    let run = |k: &Kernels| product(batch, w.rows(), from, |p, y, s| k.ternary(w, p, &view, y, s));
    let (rows, cols, planes) = (w.rows(), w.cols(), x.planes);
    let same = run(k) == run(&Kernels::SCALAR);
    assert!(same, "{:?} {rows}×{cols} {what} batch {batch}×{planes}", k.isa());
}

pub fn ternary_products_equal_scalar() {
    let mut noise = Noise(0x1234_5678_9abc_def1);
    for k in sets("ternary") {
        for (rows, cols) in SHAPES {
            // Matrices with and without the fourth code use different kernels.
            for (group, kinds) in [(0, 3), (0, 4), (16, 3), (64, 3), (64, 4), (128, 3), (256, 3)] {
                let codes: Vec<u8> = (0..rows * cols).map(|_| noise.below(kinds) as u8).collect();
                let scales = match group {
                    0 => Scales::Tensor(0.37),
                    _ => Scales::Groups(
                        GroupScales::from_rows(rows, cols, group, |_, s| {
                            s.fill_with(|| f16::from_f32(noise.float()));
                        })
                        .unwrap(),
                    ),
                };
                let w = TernaryMatrix::pack(rows, cols, scales, |r, out| {
                    out.copy_from_slice(&codes[r * cols..(r + 1) * cols]);
                })
                .unwrap();
                let tight = w.in_layout(Layout::Tight);
                assert_eq!(tight.is_some(), group != 16 && !codes.contains(&3));
                for batch in [1, 2, 3, 4, 5, 6, 7, 8, 13, 33, 70, 95] {
                    for planes in [1, 2] {
                        let x =
                            Activations::new(batch * planes, cols, planes, || noise.next() as i8);
                        for from in [0, rows.div_ceil(16) / 2] {
                            let what = format!("group {group} codes {kinds}");
                            ternary_equals_scalar(&k, (&w, &x), from, &what);
                            if let Some(w) = &tight {
                                ternary_equals_scalar(&k, (w, &x), from, "tight");
                            }
                        }
                    }
                }
            }
        }
    }
}

pub fn a_single_fourth_code_is_multiplied() {
    let (mut noise, rows, cols) = (Noise(0x0bad_cafe_1234_5678), 4100, 48);
    for k in sets("ternary with one fourth code") {
        for at in [0, 2047, 2048, 4099] {
            let w = TernaryMatrix::pack(rows, cols, Scales::Tensor(0.5), |r, out| {
                out.fill_with(|| noise.below(3) as u8);
                if r == at {
                    out[17] = 3;
                }
            });
            let (w, x) = (w.unwrap(), Activations::new(70, cols, 1, || noise.next() as i8));
            let run =
                |k: &Kernels| product(70, rows, 0, |p, y, s| k.ternary(&w, p, &x.view(), y, s));
            assert!(run(&k) == run(&Kernels::SCALAR), "{:?}, row {at}", k.isa());
        }
    }
}

pub fn blocks_of_zeros_change_no_bit() {
    let mut noise = Noise(0x5a5a_1212_c3c3_8787);
    for k in sets("ternary with blocks of zeros") {
        for (rows, cols) in [(1, 1), (17, 33), (48, 161), (33, 1000), (16, 6912)] {
            for (group, kinds) in [(0, 3), (0, 4), (16, 3), (128, 4)] {
                let scales = match group {
                    0 => Scales::Tensor(-0.37),
                    _ => Scales::Groups(
                        GroupScales::from_rows(rows, cols, group, |_, s| {
                            s.fill_with(|| f16::from_f32(noise.float()));
                        })
                        .unwrap(),
                    ),
                };
                let w = TernaryMatrix::pack(rows, cols, scales, |_, out| {
                    out.fill_with(|| noise.below(kinds) as u8);
                });
                let w = w.unwrap();
                for (batch, planes) in [(1, 1), (1, 2), (2, 1), (3, 2), (40, 1)] {
                    for live in [0, 10, 50, 74, 76, 100] {
                        // The extremes where sums are longest.
                        let extreme = cols > 1000;
                        let value = |noise: &mut Noise| {
                            if extreme {
                                [-128, 127][noise.below(2) as usize]
                            } else {
                                noise.next() as i8
                            }
                        };
                        let blocks: Vec<bool> =
                            (0..cols.div_ceil(16)).map(|_| noise.below(100) < live).collect();
                        let mut at = 0;
                        let x = Activations::new(batch * planes, cols, planes, || {
                            at += 1;
                            if blocks[(at - 1) % cols / 16] { value(&mut noise) } else { 0 }
                        });
                        for from in [0, rows.div_ceil(16) / 2] {
                            let what = format!("group {group}, {live} % live");
                            ternary_equals_scalar(&k, (&w, &x), from, &what);
                        }
                    }
                }
            }
        }
    }
}

pub fn ternary_products_do_not_overflow_at_the_extremes() {
    for k in sets("ternary extremes") {
        for code in 0..4u8 {
            for value in [-128i8, 127] {
                let (rows, cols) = (16, 20_000);
                let w = TernaryMatrix::pack(rows, cols, Scales::Tensor(1.0), |_, c| c.fill(code));
                let w = w.unwrap();
                for batch in [1, 4, 8, 70] {
                    let x = Activations::new(batch, cols, 1, || value);
                    let run = |k: &Kernels| {
                        product(batch, rows, 0, |p, y, s| k.ternary(&w, p, &x.view(), y, s))
                    };
                    let want = (i32::from(code) - 1) * i32::from(value) * cols as i32;
                    assert_eq!(f32::from_bits(run(&k)[0]), want as f32 * 0.01);
                    assert_eq!(run(&k), run(&Kernels::SCALAR), "{:?} {code} {value}", k.isa());
                    if let Some(w) = w.in_layout(Layout::Tight) {
                        ternary_equals_scalar(&k, (&w, &x), 0, "tight extremes");
                    }
                }
            }
        }
        // Every product positive, of mixed codes and values.
        let (mut noise, rows, cols) = (Noise(0x7777_1111_3333_5555), 16, 5_000);
        let signs: Vec<bool> = (0..cols).map(|_| noise.below(2) == 0).collect();
        let w = TernaryMatrix::pack(rows, cols, Scales::Tensor(1.0), |_, out| {
            out.iter_mut().zip(&signs).for_each(|(c, &plus)| *c = if plus { 2 } else { 0 });
        });
        let (w, mut next) = (w.unwrap(), signs.iter().cycle());
        let x = Activations::new(70, cols, 1, || if *next.next().unwrap() { 127 } else { -128 });
        let run = |k: &Kernels| product(70, rows, 0, |p, y, s| k.ternary(&w, p, &x.view(), y, s));
        assert_eq!(run(&k), run(&Kernels::SCALAR), "{:?}, signs alike", k.isa());
    }
}

/// The contents that one product leaves in a scratch do not affect the next.
pub fn products_share_a_scratch() {
    let mut noise = Noise(0x3141_5926_5358_9793);
    // Also across instruction sets, which leave buffers of other lengths.
    let mut scratch = Scratch::default();
    for k in sets("scratch") {
        for batch in [24, 70] {
            for (cols, size) in [(33, 16), (100, 64), (17, 16), (300, 32), (64, 64)] {
                let scales = GroupScales::from_rows(20, cols, size, |_, s| s.fill(f16::ONE));
                let scales = Scales::Groups(scales.unwrap());
                let w = TernaryMatrix::pack(20, cols, scales, |_, codes| {
                    codes.fill_with(|| noise.below(3) as u8);
                });
                let (w, x) = (w.unwrap(), Activations::new(batch, cols, 1, || noise.next() as i8));
                let mut run = |k: &Kernels| {
                    let mut y = vec![0f32; batch * 20];
                    let out = &mut Columns::whole(&mut y, 20);
                    k.ternary(&w, 0..2, &x.view(), out, &mut scratch);
                    bits(&y)
                };
                assert_eq!(run(&k), run(&Kernels::SCALAR), "{:?} {cols}", k.isa());
            }
        }
    }
}

/// Outputs that do not fit a view are not written.
pub fn products_write_nothing_past_a_view() {
    let (mut noise, cols) = (Noise(0x7777_1357_0246_8ace), 64);
    let ternary = TernaryMatrix::pack(32, cols, Scales::Tensor(0.5), |_, out| {
        out.fill_with(|| noise.below(3) as u8);
    });
    let int8 = Int8Matrix::pack(32, cols, cols, |_, values, scales| {
        values.fill_with(|| noise.next() as i8);
        scales.fill(0.5);
    });
    let (ternary, int8) = (ternary.unwrap(), int8.unwrap());
    let x = Activations::new(1, cols, 1, || noise.next() as i8);
    let (x, scratch) = (x.view(), &mut Scratch::default());
    for k in sets("products into views that are too narrow") {
        let mut products = |view: &mut [f32], other: &mut [f32]| {
            let width = view.len();
            k.ternary(&ternary, 0..2, &x, &mut Columns::whole(view, width), scratch);
            (k.int8)(int8.view(), 0..2, &x, &mut Columns::whole(other, width), scratch);
        };
        let mut want = [[0.0; 32]; 2];
        let [ternary, int8] = &mut want;
        products(ternary, int8);
        for width in [16, 20] {
            let mut got = [[7.5; 64]; 2];
            let [ternary, int8] = &mut got;
            products(&mut ternary[..width], &mut int8[..width]);
            for (got, want) in got.iter().zip(&want) {
                assert_eq!(got[..width], want[..width], "{:?} {width}", k.isa());
                assert!(got[width..].iter().all(|&v| v == 7.5), "{:?} {width}", k.isa());
            }
        }
    }
}

/// Asserts |a − b| ≤ 1e-5 · max(1, largest |b|).
fn close(a: &[f32], b: &[f32], what: &str) {
    let largest = b.iter().fold(1f32, |m, v| m.max(v.abs()));
    for (i, (a, b)) in a.iter().zip(b).enumerate() {
        assert!((a - b).abs() <= 1e-5 * largest, "{what} [{i}]: {a} against {b}");
    }
}

pub fn float_products_agree_and_do_not_depend_on_the_batch() {
    let mut noise = Noise(0xabcd_ef01_2345_6789);
    for k in sets("float") {
        for (rows, cols) in [(1, 1), (3, 7), (4, 8), (6, 100), (17, 333)] {
            for dtype in [FloatType::F32, FloatType::F16, FloatType::Bf16] {
                let values = noise.floats(rows * cols);
                let bytes: Vec<u8> = match dtype {
                    FloatType::F32 => values.iter().flat_map(|v| v.to_le_bytes()).collect(),
                    FloatType::F16 => {
                        values.iter().flat_map(|&v| f16::from_f32(v).to_le_bytes()).collect()
                    }
                    FloatType::Bf16 => {
                        values.iter().flat_map(|&v| bf16::from_f32(v).to_le_bytes()).collect()
                    }
                };
                let w = FloatMatrix::new(rows, cols, dtype, bytes.into()).unwrap();
                let x = noise.floats(5 * cols);
                let run = |k: &Kernels, x: &[f32], range: std::ops::Range<usize>| {
                    let mut y = vec![0f32; x.len() / cols * range.len()];
                    let width = range.len();
                    (k.float)(&w, range, x, &mut Columns::whole(&mut y, width));
                    y
                };
                let whole = run(&k, &x, 0..rows);
                close(&whole, &run(&Kernels::SCALAR, &x, 0..rows), dtype.name());
                for b in 0..5 {
                    let alone = run(&k, &x[b * cols..(b + 1) * cols], 0..rows);
                    assert_eq!(bits(&alone), bits(&whole[b * rows..(b + 1) * rows]));
                }
                for r in 0..rows {
                    let single = run(&k, &x, r..r + 1);
                    let column: Vec<f32> = (0..5).map(|b| whole[b * rows + r]).collect();
                    assert_eq!(bits(&single), bits(&column));
                }
            }
        }
    }
}

pub fn quantization_equals_scalar() {
    let mut noise = Noise(0x0f0f_1e1e_2d2d_3c3c);
    for k in sets("quantize") {
        for n in [1, 31, 32, 33, 64, 255, 2560] {
            let mut special = noise.floats(n);
            special[n / 2] = f32::NAN;
            let mut infinite = noise.floats(n);
            infinite[0] = f32::INFINITY;
            let halves: Vec<f32> = (0..n).map(|i| (i % 255) as f32 - 127.0 + 0.5).collect();
            for x in [noise.floats(n), vec![0.0; n], vec![-3.5; n], special, infinite, halves] {
                let run = |k: &Kernels| {
                    let (mut q, mut high, mut low) = (vec![9i8; n], vec![9i8; n], vec![9i8; n]);
                    let (sum, step) = (k.quantize8)(&x, &mut q);
                    let (sums, fine) = (k.quantize16)(&x, &mut high, &mut low);
                    (q, high, low, sum, step.to_bits(), sums, fine.to_bits())
                };
                assert_eq!(run(&k), run(&Kernels::SCALAR), "{:?} {n}", k.isa());
            }
        }
    }
}

pub fn fifteen_bit_activations_are_close_to_the_floats() {
    let x = Noise(77).floats(1000);
    let (mut high, mut low) = (vec![0i8; 1000], vec![0i8; 1000]);
    let (_, step) = (Kernels::SCALAR.quantize16)(&x, &mut high, &mut low);
    for ((x, h), l) in x.iter().zip(high).zip(low) {
        let back = (256.0 * f32::from(h) + f32::from(l)) * step;
        assert!((back - x).abs() <= 0.51 * step);
    }
}

pub fn every_line_is_read() {
    let mut noise = Noise(0x4444_5555_1234_4321);
    for k in sets("read") {
        for n in [0, 1, 2, 3, 100, 101] {
            let lines: Vec<[u64; 8]> = (0..n).map(|_| [(); 8].map(|()| noise.next())).collect();
            assert_eq!((k.read)(&lines), (Kernels::SCALAR.read)(&lines), "{:?} {n}", k.isa());
        }
    }
}

pub fn products_are_counted() {
    for k in sets("multiply") {
        let one = (k.multiply)(1);
        assert!(one >= 64, "{:?}", k.isa());
        assert_eq!(((k.multiply)(0), (k.multiply)(7)), (0, 7 * one), "{:?}", k.isa());
    }
}

pub fn row_kernels_agree() {
    let mut noise = Noise(0x9999_8888_7777_6666);
    for k in sets("rows") {
        for n in [2, 8, 30, 64, 100, 2560] {
            let (x, y) = (noise.floats(n), noise.floats(n));
            let wide: Vec<f32> = x.iter().map(|v| v * 60.0).collect();
            type RowKernel = fn(&Kernels, &[f32], &[f32]) -> Vec<f32>;
            let kernels: [(&str, RowKernel); 5] = [
                ("rms_norm", |k, x, y| {
                    let mut out = vec![0.0; x.len()];
                    (k.rms_norm)(x, y, 1e-5, &mut out);
                    out
                }),
                ("silu_mul", |k, x, y| {
                    let mut out = x.to_vec();
                    (k.silu_mul)(&mut out, y);
                    out
                }),
                ("relu2_mul", |k, x, y| {
                    let mut out = x.to_vec();
                    (k.relu2_mul)(&mut out, y);
                    out
                }),
                ("add", |k, x, y| {
                    let mut out = x.to_vec();
                    (k.add)(&mut out, y);
                    out
                }),
                ("rope", |k, x, y| {
                    let mut out = x.to_vec();
                    (k.rope)(&mut out, &y[..x.len() / 2], &y[x.len() / 2..]);
                    out
                }),
            ];
            for (name, run) in kernels {
                for x in [&x, &wide] {
                    let want = run(&Kernels::SCALAR, x, &y);
                    close(&run(&k, x, &y), &want, &format!("{:?} {name} {n}", k.isa()));
                }
            }
        }
    }
}

pub fn logits_are_weighed_as_scalar_weighs_them() {
    let mut noise = Noise(0x2b2b_1a1a_0909_f8f8);
    for k in sets("weigh") {
        for n in [0, 1, 7, 8, 9, 64, 1003] {
            let mut logits: Vec<f32> = noise.floats(n).iter().map(|x| 50.0 * x).collect();
            for max in [50.0, f32::INFINITY] {
                let special = [max, f32::NAN, f32::NEG_INFINITY, -200.0];
                for (logit, x) in logits.iter_mut().skip(3).step_by(5).zip(special) {
                    *logit = x;
                }
                let run = |k: &Kernels| {
                    let mut weights = logits.clone();
                    (k.weigh)(&mut weights, max, 1.7);
                    ((k.sum_exp)(&logits, max).to_bits(), bits(&weights))
                };
                assert_eq!(run(&k), run(&Kernels::SCALAR), "{:?} {n} {max}", k.isa());
            }
        }
    }
}

pub fn silu_is_silu() {
    let mut gate: Vec<f32> = (-2000..2000).map(|i| i as f32 / 10.0).collect();
    let want: Vec<f32> = gate.iter().map(|&g| g / (1.0 + (-g).exp())).collect();
    let ones = vec![1.0; gate.len()];
    (Kernels::SCALAR.silu_mul)(&mut gate, &ones);
    for (g, w) in gate.iter().zip(want) {
        assert!((g - w).abs() <= 1e-6 * w.abs().max(1.0), "{g} {w}");
    }
}
