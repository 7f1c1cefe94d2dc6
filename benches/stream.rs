//! Measures the bytes of weights per second that each kernel reads for one token, compared with the machine's read
//! bandwidth, on one thread and on two: `cargo bench --bench stream`. The forms alternate in one process.
//!
//! All forms have the same size, far more than a cache holds. Each is read twice in a row, so that none has
//! more of its bytes left in the last-level cache than the others.

mod common;

use common::Noise;
use std::hint::black_box;
use std::ops::Range;
use std::time::Instant;
use wrinklefree::kernel::{Kernels, Quantized};
use wrinklefree::matrix::{Int8View, SplitMatrix};
use wrinklefree::mem::{AlignedVec, WeightVec};
use wrinklefree::par::{Columns, Scratch};
use wrinklefree::ternary::{Layout, PANEL_ROWS, TernaryMatrix};

const COLS: usize = 2560;
/// Approximate bytes of every form.
const BYTES: usize = 1 << 30;
/// Number of panels of a part, as the workers of a pool take them.
const PART: usize = 64;
/// Number of measurements; the median counts.
const TURNS: usize = 7;

/// Activations of a token.
struct Token {
    values: AlignedVec<i8>,
    sums: Vec<i32>,
}

impl Token {
    fn new(planes: usize, noise: &mut Noise) -> Self {
        let stride = Quantized::stride_of(COLS);
        let mut values = AlignedVec::zeroed(planes * stride);
        for row in values.chunks_exact_mut(stride) {
            // No −128, because two joined planes must fit 16 bits.
            row[..COLS].fill_with(|| (noise.bits() as i8).max(-127));
        }
        let sums = values.chunks_exact(stride).map(|r| r.iter().map(|&v| i32::from(v)).sum());
        Self { sums: sums.collect(), values }
    }

    fn view(&self) -> Quantized<'_> {
        let (stride, planes) = (Quantized::stride_of(COLS), self.sums.len());
        Quantized {
            values: &self.values,
            stride,
            sums: &self.sums,
            steps: &[0.01; 2][..planes],
            planes,
            groups: None,
        }
    }
}

/// Weights in some form, with a function that reads a range of their parts.
struct Form<'a> {
    name: &'static str,
    bytes: usize,
    parts: usize,
    read: Box<dyn Fn(Range<usize>) + Sync + 'a>,
}

impl Form<'_> {
    /// Returns the bytes per second on this number of threads, each with a contiguous range of parts.
    fn rate(&self, threads: usize) -> f64 {
        let begin = Instant::now();
        std::thread::scope(|scope| {
            for t in 0..threads {
                let range = self.parts * t / threads..self.parts * (t + 1) / threads;
                scope.spawn(move || (self.read)(range));
            }
        });
        self.bytes as f64 / begin.elapsed().as_secs_f64()
    }
}

/// Calls `product` for each part, with a buffer for its outputs.
fn multiply(
    parts: Range<usize>,
    panels: usize,
    product: impl Fn(Range<usize>, &mut Columns<'_>, &mut Scratch),
) {
    let (mut y, mut scratch) = ([0f32; PART * PANEL_ROWS], Scratch::default());
    for part in parts {
        let part = part * PART..((part + 1) * PART).min(panels);
        let outputs = part.len() * PANEL_ROWS;
        product(part, &mut Columns::whole(&mut y[..outputs], outputs), &mut scratch);
        black_box(&y);
    }
}

fn ternary<'a>(name: &'static str, k: &'a Kernels, w: &'a TernaryMatrix, x: &'a Token) -> Form<'a> {
    let panels = w.rows() / PANEL_ROWS;
    let read = move |parts: Range<usize>| {
        multiply(parts, panels, |panels, y, s| k.ternary(w, panels, &x.view(), y, s));
    };
    Form { name, bytes: w.codes().len(), parts: panels.div_ceil(PART), read: Box::new(read) }
}

fn int8<'a>(
    name: &'static str,
    k: &'a Kernels,
    (w, bytes): (Int8View<'a>, usize),
    x: &'a Token,
) -> Form<'a> {
    let panels = w.rows() / PANEL_ROWS;
    let read = move |parts: Range<usize>| {
        multiply(parts, panels, |panels, y, s| (k.int8)(w, panels, &x.view(), y, s));
    };
    Form { name, bytes, parts: panels.div_ceil(PART), read: Box::new(read) }
}

/// Formats rates in GB/s: the median and the largest.
fn described(rates: &mut [f64]) -> String {
    rates.sort_by(f64::total_cmp);
    format!("{:.1} (at most {:.1})", rates[TURNS / 2] / 1e9, rates[TURNS - 1] / 1e9)
}

fn main() {
    let (k, mut noise) = (Kernels::best(), Noise(1));
    let mut lines = WeightVec::<[u64; 8]>::zeroed(BYTES / 64);
    lines.iter_mut().zip(0..).for_each(|(line, i)| line.fill(i));
    let rows = BYTES / COLS / PANEL_ROWS * PANEL_ROWS;
    let plain = common::int8(rows, COLS, &mut noise);
    let split = SplitMatrix::new(&plain);
    let six = common::six_bits(rows, COLS, &mut noise);
    let two_bit = common::ternary(4 * rows, COLS, &mut noise);
    let tight = k.reads(Layout::Tight).then(|| two_bit.in_layout(Layout::Tight).expect("memory"));
    let (token, planes) = (Token::new(1, &mut noise), Token::new(2, &mut noise));
    let (upper_bytes, _) = split.bytes();
    let (_, six_bytes) = six.bytes();
    let mut forms = vec![
        Form {
            name: "read",
            bytes: BYTES,
            parts: lines.len(),
            read: Box::new(|part| {
                black_box((k.read)(&lines[part]));
            }),
        },
        ternary("ternary, two bits", &k, &two_bit, &token),
        int8("head, int8", &k, (plain.view(), plain.values().len()), &planes),
        int8("head, upper plane", &k, (split.upper(), upper_bytes), &planes),
        int8("head, six bits", &k, (six.view(), six_bytes), &planes),
    ];
    forms.extend(tight.as_ref().map(|w| ternary("ternary, tight", &k, w, &token)));
    let mut rates = vec![[[0.0; TURNS]; 2]; forms.len()];
    for turn in 0..TURNS {
        for (form, rates) in forms.iter().zip(&mut rates) {
            form.rate(1);
            for threads in [1, 2] {
                rates[threads - 1][turn] = form.rate(threads);
            }
        }
    }
    println!("{}: GB/s on one thread, and on two", k.isa().name());
    for (form, [one, two]) in forms.iter().zip(&mut rates) {
        println!("{:18} {}, {}", form.name, described(one), described(two));
    }
}
