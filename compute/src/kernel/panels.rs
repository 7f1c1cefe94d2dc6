//! The order in which products that memory bounds walk through panels.

use std::ops::Range;

/// Bytes within which places are read side by side, about.
const WINDOW: usize = 640 << 10;

/// Groups of `P` panels of so many bytes, one of each `P`-th part of a window, and the fewer than `P` that
/// are left: memory gives a core more when it is read at two places at a time, each from front to back (Xeon
/// with AVX-512: 1.1 to 1.3 times as much), if they are not far from each other (1.05 to 1.15 times what it
/// gives where they are megabytes apart), and what takes long to decode has more to do side by side.
pub fn apart<const P: usize>(
    panels: Range<usize>,
    bytes: usize,
) -> (impl Iterator<Item = [usize; P]>, Range<usize>) {
    let all = panels.len() / P;
    // Groups of a window, of windows as even as can be.
    let windows = all.div_ceil((WINDOW / P / bytes.max(1)).max(1)).max(1);
    let most = all.div_ceil(windows);
    let groups = (0..all).map(move |group| {
        let before = group / most * most;
        let part = most.min(all - before);
        let first = panels.start + P * before + (group - before);
        std::array::from_fn(|p| first + p * part)
    });
    (groups, panels.start + P * all..panels.end)
}

#[cfg(test)]
mod tests {
    use super::{WINDOW, apart};

    #[test]
    fn each_panel_comes_once() {
        for (panels, pairs, left) in [
            (3..8, vec![[3, 5], [4, 6]], 7..8),
            (2..6, vec![[2, 4], [3, 5]], 6..6),
            (5..6, vec![], 5..6),
            (4..4, vec![], 4..4),
        ] {
            let (got, rest) = apart(panels, 1 << 10);
            assert_eq!((got.collect(), rest), (pairs, left));
        }
        let (fours, rest) = apart(1..12, 1 << 10);
        assert_eq!((fours.collect(), rest), (vec![[1, 3, 5, 7], [2, 4, 6, 8]], 9..12));
    }

    #[test]
    fn places_are_near_each_other() {
        let bytes = WINDOW / 6;
        let (got, rest) = apart(10..25, bytes);
        let pairs = vec![[10, 13], [11, 14], [12, 15], [16, 19], [17, 20], [18, 21], [22, 23]];
        assert_eq!((got.collect(), rest), (pairs, 24..25));
        for bytes in [0, 1, 8560, WINDOW, usize::MAX] {
            let (got, rest) = apart::<4>(7..507, bytes);
            let mut all: Vec<usize> = got.flatten().chain(rest).collect();
            all.sort_unstable();
            assert!(all.into_iter().eq(7..507), "{bytes}");
        }
    }
}
