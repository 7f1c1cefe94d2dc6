//! A worker's share of the parts of a step.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What is left of a worker's share of a step; shares of two workers are on different cache lines.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct Share {
    next: AtomicUsize,
    end: AtomicUsize,
}

impl Share {
    /// Before a step: these parts.
    pub fn deal(&self, parts: Range<usize>) {
        self.next.store(parts.start, Ordering::Relaxed);
        self.end.store(parts.end, Ordering::Relaxed);
    }

    /// The next part, for whoever asks.
    pub fn take(&self) -> Option<usize> {
        let end = self.end.load(Ordering::Relaxed);
        // Whoever comes when nothing is left writes nothing.
        let left = || self.next.load(Ordering::Relaxed) < end;
        left().then(|| self.next.fetch_add(1, Ordering::Relaxed)).filter(|&part| part < end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_is_taken_once_by_whoever_asks() {
        let share = Share::default();
        assert_eq!(share.take(), None);
        for parts in [3..40, 0..0, 5..6] {
            share.deal(parts.clone());
            let taken = || std::iter::from_fn(|| share.take()).collect::<Vec<_>>();
            let mut all = std::thread::scope(|scope| {
                let workers = [(); 3].map(|()| scope.spawn(taken));
                workers.map(|worker| worker.join().unwrap()).concat()
            });
            all.sort_unstable();
            assert_eq!(all, parts.collect::<Vec<_>>());
            assert_eq!(share.take(), None);
        }
    }
}
