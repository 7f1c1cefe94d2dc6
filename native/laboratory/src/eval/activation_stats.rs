//! Counts zeros in the quantized inputs of a model's ternary layers.

use std::ops::AddAssign;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use wrinklefree::format::Linear;
use wrinklefree::kernel::Quantized;
use wrinklefree::matrix::Matrix;
use wrinklefree::model::{Model, Workspace};
use wrinklefree::ternary::BLOCK_COLS;

/// Zeros among values, and blocks of nothing but zeros among blocks of 16 columns.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Zeros {
    values: u64,
    zeros: u64,
    blocks: u64,
    zero_blocks: u64,
}

impl Zeros {
    fn of(live: &[bool]) -> Self {
        let dead = |of: &[bool]| of.iter().all(|live| !live);
        let blocks = live.chunks(BLOCK_COLS);
        Self {
            values: live.len() as u64,
            zeros: live.iter().filter(|live| !**live).count() as u64,
            blocks: blocks.len() as u64,
            zero_blocks: blocks.filter(|block| dead(block)).count() as u64,
        }
    }

    /// Zeros, of all values.
    pub(crate) fn share(&self) -> f64 {
        share(self.zeros, self.values)
    }

    /// Blocks of zeros, of all blocks.
    pub fn block_share(&self) -> f64 {
        share(self.zero_blocks, self.blocks)
    }
}

/// None of nothing.
fn share(some: u64, all: u64) -> f64 {
    if all == 0 { 0.0 } else { some as f64 / all as f64 }
}

impl AddAssign for Zeros {
    fn add_assign(&mut self, more: Self) {
        self.values += more.values;
        self.zeros += more.zeros;
        self.blocks += more.blocks;
        self.zero_blocks += more.zero_blocks;
    }
}

/// Counts of zeros.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// In all inputs of ternary matrices, each once however many read it.
    pub(crate) all: Zeros,
    /// In those of `down`.
    pub down: Zeros,
    /// When each input of each layer's `down` was zero, where that is asked for.
    pub layers: Vec<Layer>,
}

/// When the inputs of a matrix were zero.
#[derive(Clone, Debug, Default)]
pub struct Layer {
    /// Rows that were seen.
    rows: usize,
    /// For each column a bit for each row, set where it was zero: `[columns][rows / 64]`.
    pub zero: Vec<Vec<u64>>,
}

impl Layer {
    fn add(&mut self, live: &[bool]) {
        let (word, bit) = (self.rows / 64, self.rows % 64);
        for (column, live) in self.zero.iter_mut().zip(live) {
            column.resize(word + 1, 0);
            column[word] |= u64::from(!live) << bit;
        }
        self.rows += 1;
    }
}

/// Counts under way.
pub struct Counter(Arc<Mutex<Counts>>);

impl Counter {
    /// Counts in all passes of `model` with this workspace.
    pub(crate) fn new(model: &Model, workspace: &mut Workspace) -> Self {
        Self::start(model, workspace, Vec::new())
    }

    /// The same, and notes for each row which columns of each layer's `down` are zero: a bit each.
    pub fn of_columns(model: &Model, workspace: &mut Workspace) -> Self {
        let layer = Layer { rows: 0, zero: vec![Vec::new(); model.spec().intermediate_size] };
        Self::start(model, workspace, vec![layer; model.spec().layers])
    }

    fn start(model: &Model, workspace: &mut Workspace, columns: Vec<Layer>) -> Self {
        let layers = &model.weights().layers;
        let shared = Arc::new(Mutex::new(Counts { layers: columns, ..Counts::default() }));
        // A matrix is known by where it is: the model outlives its passes.
        let downs: Vec<usize> = layers.iter().map(|layer| address(&layer.down)).collect();
        let counts = Arc::clone(&shared);
        workspace.observe_inputs(move |readers, x| {
            if readers.iter().all(|l| matches!(l.weight, Matrix::Ternary(_))) {
                let layer = downs.iter().position(|&down| down == address(readers[0]));
                count(&mut lock(&counts), layer, readers[0].weight.cols(), x);
            }
        });
        Self(shared)
    }

    /// Returns the counts so far.
    pub fn counts(&self) -> Counts {
        lock(&self.0).clone()
    }
}

fn address(linear: &Linear) -> usize {
    ptr::from_ref(linear).addr()
}

/// Numbers stay numbers after a panic.
fn lock(counts: &Mutex<Counts>) -> MutexGuard<'_, Counts> {
    counts.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Adds the rows that the `down` of `layer`, or other matrices, are to read.
fn count(counts: &mut Counts, layer: Option<usize>, cols: usize, x: &Quantized<'_>) {
    for token in 0..x.tokens() {
        let live: Vec<bool> = (0..cols).map(|column| x.joined(token, column) != 0).collect();
        let zeros = Zeros::of(&live);
        counts.all += zeros;
        if let Some(layer) = layer {
            counts.down += zeros;
            if let Some(columns) = counts.layers.get_mut(layer) {
                columns.add(&live);
            }
        }
    }
}
