//! The order in which products that memory bounds walk through panels.

use std::ops::Range;

/// Groups of `P` panels, one of each `P`-th part, and the fewer than `P` that are left: memory gives a core
/// more when it is read at two places at a time, each from front to back (Xeon with AVX-512: 1.1 to 1.3
/// times as much), and what takes long to decode has more to do side by side.
pub fn apart<const P: usize>(
    panels: Range<usize>,
) -> (impl Iterator<Item = [usize; P]>, Range<usize>) {
    let part = panels.len() / P;
    let first = panels.start..panels.start + part;
    let groups = first.map(move |panel| std::array::from_fn(|p| panel + p * part));
    (groups, panels.start + P * part..panels.end)
}

#[cfg(test)]
mod tests {
    use super::apart;

    #[test]
    fn each_panel_comes_once() {
        for (panels, pairs, left) in [
            (3..8, vec![[3, 5], [4, 6]], 7..8),
            (2..6, vec![[2, 4], [3, 5]], 6..6),
            (5..6, vec![], 5..6),
            (4..4, vec![], 4..4),
        ] {
            let (got, rest) = apart(panels);
            assert_eq!((got.collect(), rest), (pairs, left));
        }
        let (fours, rest) = apart(1..12);
        assert_eq!((fours.collect(), rest), (vec![[1, 3, 5, 7], [2, 4, 6, 8]], 9..12));
    }
}
