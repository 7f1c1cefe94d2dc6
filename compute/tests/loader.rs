//! Weights that any number of workers load part by part equal the original.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;
use wrinklefree_compute::loader::{WeightLoader, WeightSource};
use wrinklefree_compute::matrix::{FloatMatrix, FloatType, Int8Matrix, Matrix, Packing, Scales};
use wrinklefree_compute::matrix::{SplitMatrix, TernaryMatrix};
use wrinklefree_compute::par::{Bound, ThreadPool};
use wrinklefree_compute::ternary::{Layout, repack};

/// A source whose bytes are always copied, and counted.
#[derive(Default)]
struct CountingSource(AtomicUsize);

impl WeightSource for CountingSource {
    fn must_copy(&self, _: &[u8]) -> bool {
        true
    }

    fn read(&self, bytes: &[u8], to: &mut [u8]) {
        self.0.fetch_add(bytes.len(), Ordering::Relaxed);
        to.copy_from_slice(bytes);
    }
}

/// Runs a job on pools of several sizes; returns its results and the bytes that each read.
fn by_pools<R>(job: impl Fn(&mut WeightLoader<'_, '_>) -> R) -> Vec<(R, usize)> {
    let by = |threads| {
        let source = CountingSource::default();
        let thread_pool = ThreadPool::new(threads).unwrap();
        let result =
            thread_pool.run(Bound::Arithmetic, |scope| job(&mut WeightLoader::new(scope, &source)));
        (result, source.0.into_inner())
    };
    [1, 2, 5].map(by).into()
}

fn repack_one(
    w: &TernaryMatrix,
    layout: Layout,
    loader: &mut WeightLoader<'_, '_>,
) -> Option<TernaryMatrix> {
    repack(&[w], layout, loader).pop().flatten()
}

fn ternary(rows: usize, cols: usize, fourth: Option<usize>) -> TernaryMatrix {
    TernaryMatrix::pack(rows, cols, Scales::Tensor(0.5), |row, out| {
        out.iter_mut().enumerate().for_each(|(i, c)| *c = ((row * 31 + i * i) % 97 % 3) as u8);
        if fourth == Some(row) {
            out[cols / 2] = 3;
        }
    })
    .unwrap()
}

/// A matrix of several parts and a rest; `bits(row)` is the number of bits of a row's values.
fn int8(bits: impl Fn(usize) -> u32) -> Int8Matrix {
    let (rows, cols) = (3000, 333);
    Int8Matrix::pack(rows, cols, cols, |row, values, scales| {
        let wide = |i: usize| (row * 89 + i * 57) as u8 as i8 >> (8 - bits(row));
        values.iter_mut().enumerate().for_each(|(i, v)| *v = wide(i));
        scales[0] = row as f32;
    })
    .unwrap()
}

#[test]
fn loading_changes_the_layout() {
    let plain = ternary(3001, 1000, None);
    let tight = plain.in_layout(Layout::Tight).unwrap();
    assert_ne!(plain.codes(), tight.codes());
    for w in [&plain, &tight] {
        for layout in [Layout::TwoBit, Layout::Tight] {
            let want = if layout == Layout::Tight { &tight } else { &plain };
            for (found, read) in by_pools(|loader| repack_one(w, layout, loader).unwrap()) {
                assert!(found == *want && found.codes().as_ptr() != w.codes().as_ptr());
                assert_eq!(read, w.codes().len(), "each byte once");
            }
        }
    }
}

#[test]
fn a_fourth_code_in_any_part_does_not_fit() {
    for row in [0, 1500, 3000] {
        let w = ternary(3001, 1000, Some(row));
        for (found, _) in by_pools(|loader| repack_one(&w, Layout::Tight, loader)) {
            assert_eq!(found, None);
        }
    }
}

#[test]
fn planes_are_those_of_all_values() {
    // In the last two cases the first part needs fewer bits than the rest.
    let cases: [(&dyn Fn(usize) -> u32, _); 5] = [
        (&|_| 8, Packing::Split),
        (&|_| 6, Packing::Six),
        (&|_| 4, Packing::Upper),
        (&|row| if row < 2999 { 4 } else { 8 }, Packing::Split),
        (&|row| if row < 2999 { 3 } else { 6 }, Packing::Six),
    ];
    for (bits, packing) in cases {
        let w = int8(bits);
        for (found, _) in by_pools(|loader| SplitMatrix::repacked(&w, loader)) {
            assert_eq!(found.parts().packing, packing);
            let (mut a, mut b) = ([0f32; 333], [0f32; 333]);
            for row in 0..3000 {
                w.row_f32(row, &mut a);
                found.row_f32(row, &mut b);
                assert_eq!(a, b);
            }
        }
    }
}

#[test]
fn matrices_that_keep_their_layout_are_copied() {
    let w = int8(|_| 8);
    let floats = FloatMatrix::new(3000, 333, FloatType::Bf16, vec![7u8; 3000 * 666].into());
    let matrices = [
        Matrix::Split(SplitMatrix::new(&w)),
        Matrix::Ternary(ternary(3001, 1000, None)),
        Matrix::Float(floats.unwrap()),
        Matrix::Int8(w),
    ];
    for matrix in &matrices {
        for (found, read) in by_pools(|loader| matrix.relocate(loader)) {
            assert!(found == *matrix);
            assert_eq!(read, matrix.bytes());
        }
        assert!(matrix.relocate(&mut WeightLoader::alone()) == *matrix);
    }
}

/// A source in which no worker reads a second time before all have read once, or ten seconds have passed.
/// It records which thread read what.
struct RecordingSource {
    workers: usize,
    reads: Mutex<Vec<(thread::ThreadId, Range<usize>)>>,
}

impl WeightSource for RecordingSource {
    fn must_copy(&self, _: &[u8]) -> bool {
        true
    }

    fn read(&self, bytes: &[u8], to: &mut [u8]) {
        let from = bytes.as_ptr().addr();
        self.reads.lock().unwrap().push((thread::current().id(), from..from + bytes.len()));
        let begin = Instant::now();
        while self.reads.lock().unwrap().len() < self.workers && begin.elapsed().as_secs() < 10 {
            thread::yield_now();
        }
        to.copy_from_slice(bytes);
    }
}

/// Memory that a worker writes first is on its NUMA node. It must be what the worker reads in a product of
/// all three matrices.
#[test]
fn workers_load_what_they_will_read() {
    const WORKERS: usize = 4;
    // Each worker has five of the 20 panels, all of one matrix, and reads them at once.
    let group = [160, 80, 80].map(|rows| ternary(rows, 1000, None));
    let panel = group[0].codes().len() / 10;
    for layout in [Layout::TwoBit, Layout::Tight] {
        let source = RecordingSource { workers: WORKERS, reads: Mutex::default() };
        let thread_pool = ThreadPool::new(WORKERS).unwrap();
        let found = thread_pool.run(Bound::Memory, |scope| {
            repack(&group, layout, &mut WeightLoader::new(scope, &source))
        });
        let want = group.iter().map(|w| w.in_layout(layout));
        assert!(found.into_iter().eq(want));

        let mut reads = source.reads.into_inner().unwrap();
        let first = group[0].codes().as_ptr().addr();
        assert!(
            reads.contains(&(thread::current().id(), first..first + 5 * panel)),
            "the calling thread"
        );
        assert_eq!(reads.len(), WORKERS);
        assert!(reads.iter().all(|(_, range)| range.len() == 5 * panel));
        reads.sort_by_key(|(thread, _)| format!("{thread:?}"));
        reads.dedup_by_key(|(thread, _)| *thread);
        assert_eq!(reads.len(), WORKERS, "one part for each worker");
    }
}
