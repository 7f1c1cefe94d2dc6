//! The input rows of a group of matrices, in every form that a matrix of the group takes, and the
//! products with them.

use super::SparsityRule;
use super::profile::{Phase, Profile};
use crate::format::{Activations, Linear, Rotation};
use crate::kernel::{GroupSteps, Kernels, Quantized};
use crate::matrix::{Int8View, Matrix, SplitMatrix};
use crate::mem::AlignedVec;
use crate::par::{Chunked, Chunks, Columns, PoolScope, Scratch};
use crate::ternary::PANEL_ROWS;

/// Number of rows from which the other workers take part in a step over rows.
const WORTH_ROWS: usize = 4;

/// The worker threads, kernels and stopwatch of a pass.
pub(super) struct Exec<'a, 'c> {
    pub scope: &'a mut PoolScope<'c>,
    pub kernels: &'a Kernels,
    pub profile: &'a mut Profile,
}

/// Input rows: as they are, and in the rotated basis that some matrices read.
#[derive(Default)]
pub(super) struct Inputs {
    rows: usize,
    width: usize,
    plain: Form,
    rotated: Form,
    /// Values to keep where only ternary matrices read a row.
    pub rule: SparsityRule,
    /// Called with quantized rows.
    pub observer: Option<InputObserver>,
}

/// Receives each group of matrices and its quantized rows, before the product.
pub(super) type InputObserver = Box<dyn FnMut(&[&Linear], &Quantized<'_>) + Send + Sync>;

/// The rows to fill, and the matrices that read them.
pub(super) struct Fill<'a> {
    /// The phase that computing the rows belongs to.
    pub phase: Phase,
    pub rows: usize,
    pub width: usize,
    /// Those with a rotation have the same one.
    pub readers: &'a [&'a Linear],
}

/// Input rows in one basis: as f32, and quantized as the matrices need them.
#[derive(Default)]
struct Form {
    /// `[rows][width]`.
    floats: AlignedVec<f32>,
    int8: Planes,
    int8_groups: Planes,
    int16: Planes,
}

/// Least number of columns that share a scale of 8-bit activations, where they have scales of groups.
const LEAST_GROUP: usize = 128;

/// The quantized forms of a row, in the order of [`Form`]'s fields.
const KINDS: [Activations; 3] = [Activations::Int8, Activations::Int8Groups, Activations::Int16];

/// Forms of a row that some matrices read.
#[derive(Clone, Copy)]
struct Needs {
    /// True for each of [`KINDS`] that some matrix reads.
    wanted: [bool; KINDS.len()],
    /// Their rules.
    rules: [SparsityRule; KINDS.len()],
    /// Number of columns that share a scale of [`Activations::Int8Groups`]: a multiple of all readers'
    /// groups. `None` if a rule compares all values of a row.
    group: Option<usize>,
}

impl Needs {
    /// The needs of the matrices that read rotated rows, or of the others.
    fn of(readers: &[&Linear], rotated: bool, rule: SparsityRule) -> Self {
        let of = |a| {
            let all = readers.iter().filter(|l| l.rotation.is_some() == rotated);
            all.filter(move |l| l.activations == a && !matches!(l.weight, Matrix::Float(_)))
        };
        let ternary = KINDS.map(|a| of(a).all(|l| matches!(l.weight, Matrix::Ternary(_))));
        let rules = ternary.map(|t| if t { rule } else { SparsityRule::Off });
        let columns = of(Activations::Int8Groups).filter_map(|l| l.group_columns()).max();
        Self {
            wanted: KINDS.map(|a| of(a).next().is_some()),
            rules,
            group: columns.filter(|_| rules[1] == SparsityRule::Off).map(|c| c.max(LEAST_GROUP)),
        }
    }
}

impl Form {
    /// Allocates `rows` rows: one chunk of each kind per row. The chunks of quantized rows that are not
    /// needed are empty.
    fn chunks(&mut self, needs: Needs, rows: usize, width: usize) -> FormChunks<'_> {
        self.floats.grow(rows * width);
        self.int8_groups.group = needs.group;
        let [int8, int8_groups, int16] = needs.wanted;
        (
            Chunks::new(&mut self.floats, width),
            self.int8.chunks(int8, rows, 1, width),
            self.int8_groups.chunks(int8_groups, rows, 1, width),
            self.int16.chunks(int16, rows, 2, width),
        )
    }

    /// The quantized rows of a kind.
    fn quantized(&self, kind: Activations, rows: usize, width: usize) -> Quantized<'_> {
        match kind {
            Activations::Int8 => self.int8.view(rows, 1, width),
            Activations::Int8Groups => self.int8_groups.view(rows, 1, width),
            Activations::Int16 => self.int16.view(rows, 2, width),
        }
    }
}

/// One chunk per row: as f32, and of each of [`KINDS`].
type FormChunks<'a> = (Chunks<'a, f32>, PlaneChunks<'a>, PlaneChunks<'a>, PlaneChunks<'a>);

/// Selects the planes of a [`SplitMatrix`] that take part in a product.
type PlaneSelector = fn(&SplitMatrix) -> Int8View<'_>;

/// Buffers of quantized rows; see [`Quantized`].
#[derive(Default)]
struct Planes {
    values: AlignedVec<i8>,
    sums: AlignedVec<i32>,
    steps: AlignedVec<f32>,
    group_steps: AlignedVec<f32>,
    /// Number of columns that share one of the group steps.
    group: Option<usize>,
}

type PlaneChunks<'a> = (Chunks<'a, i8>, Chunks<'a, i32>, Chunks<'a, f32>, Chunks<'a, f32>);

impl Planes {
    /// Allocates `rows` tokens of `planes` rows each, in one chunk per token. The chunks are empty
    /// unless `wanted`.
    fn chunks(
        &mut self,
        wanted: bool,
        rows: usize,
        planes: usize,
        width: usize,
    ) -> PlaneChunks<'_> {
        let planes = if wanted { planes } else { 0 };
        let (stride, groups) = (Quantized::stride_of(width), planes * self.groups(width));
        self.values.grow(rows * planes * stride);
        self.sums.grow(rows * planes);
        self.steps.grow(rows * planes);
        self.group_steps.grow(rows * groups);
        (
            Chunks::new(&mut self.values, planes * stride),
            Chunks::new(&mut self.sums, planes),
            Chunks::new(&mut self.steps, planes),
            Chunks::new(&mut self.group_steps, groups),
        )
    }

    /// Number of group steps of a row.
    fn groups(&self, width: usize) -> usize {
        self.group.map_or(0, |columns| width.div_ceil(columns))
    }

    fn view(&self, rows: usize, planes: usize, width: usize) -> Quantized<'_> {
        let steps = &self.group_steps[..rows * self.groups(width)];
        let stride = Quantized::stride_of(width);
        Quantized {
            values: &self.values[..rows * planes * stride],
            stride,
            sums: &self.sums[..rows * planes],
            steps: &self.steps[..rows * planes],
            planes,
            groups: self.group.map(|columns| GroupSteps { columns, steps }),
        }
    }
}

/// Quantizes each group of columns to 8 bits with its own scale; returns the sum of all values.
fn quantize_groups(
    kernels: &Kernels,
    row: &[f32],
    columns: usize,
    values: &mut [i8],
    steps: &mut [f32],
) -> i32 {
    let groups = row.chunks(columns).zip(values.chunks_mut(columns)).zip(steps);
    groups
        .map(|((row, values), step)| {
            let sum;
            (sum, *step) = (kernels.quantize8)(row, &mut values[..row.len()]);
            sum
        })
        .sum()
}

/// Quantizes one row into each kind of chunk that is not empty, and applies that kind's rule.
fn quantize(
    kernels: &Kernels,
    row: &[f32],
    needs: Needs,
    [int8, int8_groups, int16]: [<PlaneChunks<'_> as Chunked>::Part; KINDS.len()],
) {
    let width = row.len();
    // Quantized values are always numbers. Those of a row that is not finite get a step that makes every
    // output NaN.
    let checked = |step: f32| if (kernels.within)(row, f32::INFINITY) { step } else { f32::NAN };
    for (kind, chunk) in [(0, int8), (1, int8_groups)] {
        if let (values, [sum], [step], group_steps) = chunk {
            (*sum, *step) = match needs.group.filter(|_| kind == 1) {
                None => (kernels.quantize8)(row, &mut values[..width]),
                Some(columns) => (quantize_groups(kernels, row, columns, values, group_steps), 1.0),
            };
            *step = checked(*step);
            needs.rules[kind].apply8(&mut values[..width], sum);
            values[width..].fill(0);
        }
    }
    if let (values, [high_sum, low_sum], [high_step, low_step], _) = int16 {
        let stride = values.len() / 2;
        let (high, low) = values.split_at_mut(stride);
        ([*high_sum, *low_sum], *low_step) =
            (kernels.quantize16)(row, &mut high[..width], &mut low[..width]);
        *low_step = checked(*low_step);
        *high_step = 256.0 * *low_step;
        needs.rules[2].apply16(&mut high[..width], &mut low[..width], [high_sum, low_sum]);
        high[width..].fill(0);
        low[width..].fill(0);
    }
}

impl Inputs {
    /// Computes rows, rotates them and quantizes them as their readers need. `job(row, out, part)`
    /// writes a row from the `row`-th chunk of `source`.
    pub fn fill<C: Chunked + Sync>(
        &mut self,
        exec: &mut Exec<'_, '_>,
        fill: &Fill<'_>,
        source: C,
        job: impl Fn(usize, &mut [f32], C::Part) + Sync,
    ) {
        let Fill { phase, rows, width, readers } = *fill;
        (self.rows, self.width) = (rows, width);
        let (needs, kernels) = (Needs::of(readers, false, self.rule), exec.kernels);
        let chunks = (self.plain.chunks(needs, rows, width), source);
        exec.scope.chunks(rows, rows >= WORTH_ROWS, chunks, |i, (form, part), _| {
            let (row, int8, int8_groups, int16) = form;
            job(i, row, part);
            quantize(kernels, row, needs, [int8, int8_groups, int16]);
        });
        exec.profile.lap(phase);
        self.observe(readers, false, needs.wanted);
        if let Some(rotation) = readers.iter().find_map(|l| l.rotation.as_deref()) {
            self.rotate(exec, readers, rotation);
        }
    }

    /// Rotates all rows, and quantizes them as those readers need that read rotated rows.
    fn rotate(&mut self, exec: &mut Exec<'_, '_>, readers: &[&Linear], rotation: &Rotation) {
        let (rows, width, kernels) = (self.rows, self.width, exec.kernels);
        let needs = Needs::of(readers, true, self.rule);
        let source = Chunks::new(&mut self.plain.floats, width);
        let chunks = (self.rotated.chunks(needs, rows, width), source);
        exec.scope.chunks(rows, rows >= WORTH_ROWS, chunks, |_, (form, plain), _| {
            let (row, int8, int8_groups, int16) = form;
            rotation.apply(kernels.hadamard, plain, row);
            quantize(kernels, row, needs, [int8, int8_groups, int16]);
        });
        exec.profile.lap(Phase::Rotation);
        self.observe(readers, true, needs.wanted);
    }

    /// Shows the observer the quantized rows of one form, and the matrices that read them.
    fn observe(&mut self, readers: &[&Linear], rotated: bool, wanted: [bool; KINDS.len()]) {
        let Some(observer) = &mut self.observer else { return };
        let readers: Vec<&Linear> =
            readers.iter().copied().filter(|l| l.rotation.is_some() == rotated).collect();
        let form = if rotated { &self.rotated } else { &self.plain };
        for (kind, wanted) in KINDS.into_iter().zip(wanted) {
            if wanted {
                observer(&readers, &form.quantized(kind, self.rows, self.width));
            }
        }
    }

    /// The rows before rotation and quantization; the first `rows · width` values are
    /// `[rows][width]`.
    pub fn floats(&self) -> &AlignedVec<f32> {
        &self.plain.floats
    }

    /// As [`floats`](Self::floats).
    pub fn floats_mut(&mut self) -> &mut AlignedVec<f32> {
        &mut self.plain.floats
    }

    /// Computes the products of the rows with `linears`, side by side: `out` is
    /// `[rows][Σ outputs]`. Biases are not added.
    pub fn product(&self, exec: &mut Exec<'_, '_>, linears: &[&Linear], out: &mut AlignedVec<f32>) {
        self.products(exec, linears, SplitMatrix::view, out);
    }

    /// Computes the product with the upper plane of a [`SplitMatrix`].
    pub fn upper_product(
        &self,
        exec: &mut Exec<'_, '_>,
        linear: &Linear,
        out: &mut AlignedVec<f32>,
    ) {
        self.products(exec, &[linear], SplitMatrix::upper, out);
    }

    /// Computes the products with `linears`, side by side.
    fn products(
        &self,
        exec: &mut Exec<'_, '_>,
        linears: &[&Linear],
        planes: PlaneSelector,
        out: &mut AlignedVec<f32>,
    ) {
        let width: usize = linears.iter().map(|l| l.weight.rows()).sum();
        out.grow(self.rows * width);
        let kernels = exec.kernels;
        let bounds = split(linears, self.rows, exec.scope);
        exec.scope.columns(&mut out[..self.rows * width], width, bounds, |mut view, scratch| {
            let range = view.range();
            let mut first = 0;
            for linear in linears {
                let end = first + linear.weight.rows();
                let (from, to) = (range.start.max(first), range.end.min(end));
                if from < to {
                    let mut view = view.narrow(from, to);
                    self.part(kernels, linear, planes, from - first, &mut view, scratch);
                }
                first = end;
            }
        });
    }

    /// Computes one panel's outputs of all rows from both planes of a [`SplitMatrix`]: `out` is
    /// `[rows][16]`.
    ///
    /// # Panics
    /// When the matrix is of another kind.
    pub fn panel(
        &self,
        kernels: &Kernels,
        linear: &Linear,
        panel: usize,
        out: &mut [f32],
        scratch: &mut Scratch,
    ) {
        let Matrix::Split(w) = &linear.weight else { panic!("a matrix in two planes") };
        let x = self.quantized(linear);
        let mut out = Columns::whole(out, PANEL_ROWS);
        (kernels.int8)(w.view(), panel..panel + 1, &x, &mut out, scratch);
    }

    /// The rows in the basis that a matrix reads.
    fn form(&self, linear: &Linear) -> &Form {
        if linear.rotation.is_some() { &self.rotated } else { &self.plain }
    }

    /// The rows, quantized for a matrix.
    fn quantized(&self, linear: &Linear) -> Quantized<'_> {
        self.form(linear).quantized(linear.activations, self.rows, self.width)
    }

    /// Computes outputs of one matrix, from its row `from` on, as many as `view` has columns.
    fn part(
        &self,
        kernels: &Kernels,
        linear: &Linear,
        planes: PlaneSelector,
        from: usize,
        view: &mut Columns<'_>,
        scratch: &mut Scratch,
    ) {
        let to = from + view.range().len();
        let panels = from / PANEL_ROWS..to.div_ceil(PANEL_ROWS);
        let x = || self.quantized(linear);
        match &linear.weight {
            Matrix::Float(w) => {
                let floats = &self.form(linear).floats[..self.rows * self.width];
                (kernels.float)(w, from..to, floats, view)
            }
            Matrix::Ternary(w) => kernels.ternary(w, panels, &x(), view, scratch),
            Matrix::Int8(w) => (kernels.int8)(w.view(), panels, &x(), view, scratch),
            Matrix::Split(w) => (kernels.int8)(planes(w), panels, &x(), view, scratch),
        }
    }
}

/// Parts of a product for each worker: enough to balance the load, few enough for long sequential
/// reads. Where memory bounds the product there are [`LONG_PARTS`].
const PARTS: usize = 4;
const LONG_PARTS: usize = 2;
/// Number of rows from which arithmetic may bound a product.
const FEW_ROWS: usize = 3;
/// Number of rows from which parts stay large, at [`LARGE_PANELS`] panels or more. A kernel's
/// preparation of a batch of activations then serves many outputs.
const LARGE_ROWS: usize = 14;
const LARGE_PANELS: usize = 1024 / PANEL_ROWS;

/// Number of each worker's parts of a product of `rows` rows with `panels` panels.
fn parts(rows: usize, panels: usize, workers: usize) -> usize {
    match rows {
        _ if workers == 1 => 1,
        ..FEW_ROWS => LONG_PARTS,
        FEW_ROWS..LARGE_ROWS => PARTS,
        _ => (panels / LARGE_PANELS / workers).clamp(1, PARTS),
    }
}

/// Columns at which the parts begin and end; each worker's cover the same panels whatever the rows. The
/// loader places weights in memory by the same shares ([`crate::loader`]).
fn split<'l, 's>(
    linears: &'l [&'l Linear],
    rows: usize,
    scope: &PoolScope<'s>,
) -> impl Iterator<Item = usize> + use<'l, 's> {
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
    scope.cut(total, parts(rows, total, scope.workers())).map(column)
}
