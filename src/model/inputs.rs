//! Input rows of a group of matrices, in every form that one of them takes; and the products.

use super::Rule;
use crate::format::{Activations, Linear};
use crate::kernel::{Kernels, Quantized};
use crate::matrix::{Int8View, Matrix, SplitMatrix};
use crate::mem::AlignedVec;
use crate::par::{Chunked, Chunks, Columns, PoolScope, Scratch};
use crate::ternary::PANEL_ROWS;

/// Rows from which a step over rows is worth waking the helpers.
const WORTH_ROWS: usize = 4;

/// Activations as f32, and quantized where a matrix asks for it.
#[derive(Default)]
pub(super) struct Inputs {
    rows: usize,
    width: usize,
    /// `[rows][width]`.
    floats: AlignedVec<f32>,
    int8: Planes,
    int16: Planes,
    /// Which values stay where only ternary matrices read them.
    pub rule: Rule,
    /// Who looks at quantized rows.
    pub watch: Option<Watch>,
}

/// Sees every group of matrices with its quantized rows, before they are multiplied.
pub(super) type Watch = Box<dyn FnMut(&[&Linear], &Quantized<'_>) + Send + Sync>;

/// What of a matrix in planes takes part in a product.
type Taken = fn(&SplitMatrix) -> Int8View<'_>;

/// Quantized rows; see [`Quantized`].
#[derive(Default)]
struct Planes {
    values: AlignedVec<i8>,
    sums: AlignedVec<i32>,
    steps: AlignedVec<f32>,
}

type PlaneChunks<'a> = (Chunks<'a, i8>, Chunks<'a, i32>, Chunks<'a, f32>);

impl Planes {
    /// Room for `rows` tokens of `planes` rows each, in chunks of a token; empty chunks unless
    /// `wanted`.
    fn chunks(
        &mut self,
        wanted: bool,
        rows: usize,
        planes: usize,
        stride: usize,
    ) -> PlaneChunks<'_> {
        let planes = if wanted { planes } else { 0 };
        self.values.grow(rows * planes * stride);
        self.sums.grow(rows * planes);
        self.steps.grow(rows * planes);
        (
            Chunks::new(&mut self.values, planes * stride),
            Chunks::new(&mut self.sums, planes),
            Chunks::new(&mut self.steps, planes),
        )
    }

    fn view(&self, rows: usize, planes: usize, stride: usize) -> Quantized<'_> {
        Quantized {
            values: &self.values[..rows * planes * stride],
            stride,
            sums: &self.sums[..rows * planes],
            steps: &self.steps[..rows * planes],
            planes,
        }
    }
}

/// Quantizes one row into a chunk of each kind that is wanted, and thins each as said.
fn quantize(
    k: &Kernels,
    row: &[f32],
    rules: [Rule; 2],
    int8: <PlaneChunks<'_> as Chunked>::Part,
    int16: <PlaneChunks<'_> as Chunked>::Part,
) {
    let width = row.len();
    if let (values, [sum], [step]) = int8 {
        (*sum, *step) = (k.quantize8)(row, &mut values[..width]);
        rules[0].thin8(&mut values[..width], sum);
        values[width..].fill(0);
    }
    if let (values, [high_sum, low_sum], [high_step, low_step]) = int16 {
        let stride = values.len() / 2;
        let (high, low) = values.split_at_mut(stride);
        ([*high_sum, *low_sum], *low_step) =
            (k.quantize16)(row, &mut high[..width], &mut low[..width]);
        *high_step = 256.0 * *low_step;
        rules[1].thin16(&mut high[..width], &mut low[..width], [high_sum, low_sum]);
        high[width..].fill(0);
        low[width..].fill(0);
    }
}

impl Inputs {
    /// Computes `rows` rows of `width` and quantizes them as `readers` need: `job(row, out, part)`
    /// writes a row from the `row`-th chunk of `source`.
    pub fn fill<C: Chunked + Sync>(
        &mut self,
        (scope, k): (&mut PoolScope<'_>, &Kernels),
        (rows, width): (usize, usize),
        readers: &[&Linear],
        source: C,
        job: impl Fn(usize, &mut [f32], C::Part) + Sync,
    ) {
        (self.rows, self.width) = (rows, width);
        let stride = Quantized::stride_of(width);
        let of = |a| {
            let all = readers.iter().map(|l| (l.activations, &l.weight));
            all.filter(move |(of, w)| *of == a && !matches!(w, Matrix::Float(_)))
        };
        let kinds = [Activations::Int8, Activations::Int16];
        let wants = kinds.map(|a| of(a).next().is_some());
        let ternary = kinds.map(|a| of(a).all(|(_, w)| matches!(w, Matrix::Ternary(_))));
        let rules = ternary.map(|t| if t { self.rule } else { Rule::Off });
        self.floats.grow(rows * width);
        let planes = (
            self.int8.chunks(wants[0], rows, 1, stride),
            self.int16.chunks(wants[1], rows, 2, stride),
        );
        let chunks = (Chunks::new(&mut self.floats, width), planes, source);
        scope.chunks(rows, rows >= WORTH_ROWS, chunks, |i, (row, (int8, int16), part), _| {
            job(i, row, part);
            quantize(k, row, rules, int8, int16);
        });
        let Some(watch) = &mut self.watch else { return };
        for (planes, kind) in [&self.int8, &self.int16].into_iter().enumerate() {
            if wants[planes] {
                watch(readers, &kind.view(rows, planes + 1, stride));
            }
        }
    }

    /// The rows as they were before they were quantized, `[rows][width]` first.
    pub fn floats(&self) -> &AlignedVec<f32> {
        &self.floats
    }

    /// The products of these rows with `linears` side by side: `out` is `[rows][Σ outputs]`.
    /// Biases are not added.
    pub fn product(
        &self,
        scope: (&mut PoolScope<'_>, &Kernels),
        linears: &[&Linear],
        out: &mut AlignedVec<f32>,
    ) {
        self.products(scope, linears, SplitMatrix::view, out);
    }

    /// The product with the upper plane of a matrix in two.
    pub fn upper_product(
        &self,
        scope: (&mut PoolScope<'_>, &Kernels),
        linear: &Linear,
        out: &mut AlignedVec<f32>,
    ) {
        self.products(scope, &[linear], SplitMatrix::upper, out);
    }

    /// The products with `linears` side by side; `taken` says what of matrices in planes.
    fn products(
        &self,
        (scope, k): (&mut PoolScope<'_>, &Kernels),
        linears: &[&Linear],
        taken: Taken,
        out: &mut AlignedVec<f32>,
    ) {
        let width: usize = linears.iter().map(|l| l.weight.rows()).sum();
        out.grow(self.rows * width);
        let bounds = split(linears, self.rows, scope.workers());
        scope.columns(&mut out[..self.rows * width], width, bounds, |mut view, scratch| {
            let range = view.range();
            let mut first = 0;
            for linear in linears {
                let end = first + linear.weight.rows();
                let (from, to) = (range.start.max(first), range.end.min(end));
                if from < to {
                    let mut view = view.narrow(from, to);
                    self.part(k, (linear, taken), from - first, &mut view, scratch);
                }
                first = end;
            }
        });
    }

    /// The exact outputs of one panel of a matrix in two planes, of all rows: `out` is `[rows][16]`.
    ///
    /// # Panics
    /// When the matrix is not in two planes.
    pub fn panel(
        &self,
        k: &Kernels,
        linear: &Linear,
        panel: usize,
        out: &mut [f32],
        scratch: &mut Scratch,
    ) {
        let Matrix::Split(w) = &linear.weight else { panic!("a matrix in two planes") };
        let x = self.quantized(linear.activations);
        (k.int8)(w.view(), panel..panel + 1, &x, &mut Columns::whole(out, PANEL_ROWS), scratch);
    }

    /// The rows as a matrix with such activations reads them.
    fn quantized(&self, activations: Activations) -> Quantized<'_> {
        let stride = Quantized::stride_of(self.width);
        match activations {
            Activations::Int8 => self.int8.view(self.rows, 1, stride),
            Activations::Int16 => self.int16.view(self.rows, 2, stride),
        }
    }

    /// The outputs of one matrix from row `from` on, as many as the view holds.
    fn part(
        &self,
        k: &Kernels,
        (linear, taken): (&Linear, Taken),
        from: usize,
        view: &mut Columns<'_>,
        scratch: &mut Scratch,
    ) {
        let to = from + view.range().len();
        let panels = from / PANEL_ROWS..to.div_ceil(PANEL_ROWS);
        let x = || self.quantized(linear.activations);
        match &linear.weight {
            Matrix::Float(w) => {
                (k.float)(w, from..to, &self.floats[..self.rows * self.width], view)
            }
            Matrix::Ternary(w) => k.ternary(w, panels, &x(), view, scratch),
            Matrix::Int8(w) => (k.int8)(w.view(), panels, &x(), view, scratch),
            Matrix::Split(w) => (k.int8)(taken(w), panels, &x(), view, scratch),
        }
    }
}

/// Parts of a product for each worker: enough to even out what the workers get done, few enough
/// for long walks through memory, and fewer where memory bounds all.
const PARTS: usize = 4;
const LONG_PARTS: usize = 2;
/// Rows from which arithmetic may bound a product.
const FEW_ROWS: usize = 3;
/// Rows from which parts are kept large, and how large: what a kernel prepares for a batch of
/// activations serves all outputs of a part.
const LARGE_ROWS: usize = 14;
const LARGE_PANELS: usize = 1024 / PANEL_ROWS;

/// Parts of a product of `rows` rows with `panels` panels: as many for each worker.
fn parts(rows: usize, panels: usize, workers: usize) -> usize {
    let each = match rows {
        _ if workers == 1 => 1,
        ..FEW_ROWS => LONG_PARTS,
        FEW_ROWS..LARGE_ROWS => PARTS,
        _ => (panels / LARGE_PANELS / workers).clamp(1, PARTS),
    };
    (each * workers).min(panels)
}

/// Columns at which equal shares of all panels begin and end.
fn split(linears: &[&Linear], rows: usize, workers: usize) -> impl Iterator<Item = usize> {
    let panels = |l: &Linear| l.weight.rows().div_ceil(PANEL_ROWS);
    let total: usize = linears.iter().map(|l| panels(l)).sum();
    let column = move |mut panel: usize| {
        let mut first = 0;
        for l in linears {
            if panel < panels(l) {
                return first + panel * PANEL_ROWS;
            }
            panel -= panels(l);
            first += l.weight.rows();
        }
        first
    };
    let parts = parts(rows, total, workers);
    (0..=parts).map(move |i| column(total * i / parts))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Weights are brought into memory in these shares ([`crate::loader`]).
    #[test]
    fn a_member_reads_the_same_share_whatever_the_rows() {
        for (rows, workers) in (1..300).flat_map(|rows| (1..9).map(move |m| (rows, m))) {
            for panels in [20, 240, 864, 8016] {
                let count = parts(rows, panels, workers);
                let begins = |worker: usize| panels * (worker * count / workers) / count;
                let shares = (0..workers).map(|worker| panels * worker / workers);
                assert!(count == panels || shares.eq((0..workers).map(begins)), "{rows} {workers}");
            }
        }
    }
}
