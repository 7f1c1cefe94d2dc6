//! The parts of a step that are assigned to one worker.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A range of parts that any worker may take from, one part at a time. Queues of two workers lie on
/// different cache lines.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct WorkQueue {
    next: AtomicUsize,
    end: AtomicUsize,
}

impl WorkQueue {
    /// Fills the queue with these parts; called before a step.
    pub fn assign(&self, parts: Range<usize>) {
        self.next.store(parts.start, Ordering::Relaxed);
        self.end.store(parts.end, Ordering::Relaxed);
    }

    /// Takes the next part; returns `None` when none is left.
    pub fn next(&self) -> Option<usize> {
        let end = self.end.load(Ordering::Relaxed);
        // An empty queue is only read, so that it does not move between caches.
        let left = || self.next.load(Ordering::Relaxed) < end;
        left().then(|| self.next.fetch_add(1, Ordering::Relaxed)).filter(|&part| part < end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_is_taken_once() {
        let queue = WorkQueue::default();
        assert_eq!(queue.next(), None);
        for parts in [3..40, 0..0, 5..6] {
            queue.assign(parts.clone());
            let taken = || std::iter::from_fn(|| queue.next()).collect::<Vec<_>>();
            let mut all = std::thread::scope(|scope| {
                let workers = [(); 3].map(|()| scope.spawn(taken));
                workers.map(|worker| worker.join().unwrap()).concat()
            });
            all.sort_unstable();
            assert_eq!(all, parts.collect::<Vec<_>>());
            assert_eq!(queue.next(), None);
        }
    }
}
