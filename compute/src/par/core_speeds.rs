//! Shares of work for cores of different speeds.

/// Speeds of the cores that a pool's workers run on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum CoreSpeeds {
    /// All cores are equally fast.
    #[default]
    Equal,
    /// Some cores are slower, and the system moves the workers between cores.
    Mixed,
    /// Relative speed of each worker's core, in the order of the workers; they stay on their cores.
    Each(Vec<u32>),
}

/// Cuts work into parts by the speeds of the workers' cores.
pub(super) struct Shares {
    /// Sum of the speeds of the workers before each one; the last is the sum of all.
    before: Vec<u64>,
    /// Factor of the number of parts.
    finer: usize,
}

/// Factor of the number of parts where nobody knows which worker is slow: the others can then take most
/// of its parts, and wait for a small one at most.
const FINER: usize = 3;

impl Shares {
    /// # Panics
    /// If [`CoreSpeeds::Each`] has not a speed above 0 for every worker.
    pub fn new(workers: usize, speeds: &CoreSpeeds) -> Self {
        let (speeds, finer) = match speeds {
            CoreSpeeds::Equal => (vec![1; workers], 1),
            CoreSpeeds::Mixed => (vec![1; workers], FINER),
            CoreSpeeds::Each(speeds) => (speeds.clone(), 1),
        };
        let complete = speeds.len() == workers && !speeds.contains(&0);
        assert!(complete, "a pool of {workers} workers needs {workers} speeds above 0: {speeds:?}");
        let sums = speeds.iter().scan(0, |sum, &speed| {
            *sum += u64::from(speed);
            Some(*sum)
        });
        Self { before: std::iter::once(0).chain(sums).collect(), finer }
    }

    /// See [`PoolScope::cut`](super::PoolScope::cut).
    pub fn cut(
        &self,
        units: usize,
        each: usize,
        workers: usize,
    ) -> impl Iterator<Item = usize> + use<'_> {
        let (before, each) = (&self.before[..=workers], each * self.finer);
        let whole = u128::from(before[workers]) * each as u128;
        (0..=each * workers).map(move |i| {
            // The last bound is the end of the last worker's parts.
            let worker = (i / each.max(1)).min(workers - 1);
            let part = (i - worker * each) as u64;
            let speed = before[worker + 1] - before[worker];
            let reached = before[worker] * each as u64 + speed * part;
            (units as u128 * u128::from(reached) / whole.max(1)) as usize
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Eight fast cores, and eight that are half as fast.
    const LAPTOP: [u32; 16] = [2, 2, 2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1];

    /// Time of a step, relative to the time that it takes if no worker ever waits. Workers of these
    /// speeds take their own parts first and then those of the workers after them, as
    /// [`PoolScope`](crate::par::PoolScope) does.
    fn step(cut: &[usize], speeds: &[u32]) -> f64 {
        let (workers, parts) = (speeds.len(), cut.len() - 1);
        let mut left: Vec<_> =
            (0..workers).map(|w| parts * w / workers..parts * (w + 1) / workers).collect();
        let mut time = vec![0f64; workers];
        let mut end = 0f64;
        loop {
            let earliest = (0..workers).min_by(|&a, &b| time[a].total_cmp(&time[b]));
            let worker = earliest.expect("a worker");
            let queue = (0..workers).map(|w| (worker + w) % workers).find(|&w| !left[w].is_empty());
            let Some(part) = queue.and_then(|queue| left[queue].next()) else { break };
            time[worker] += (cut[part + 1] - cut[part]) as f64 / f64::from(speeds[worker]);
            end = end.max(time[worker]);
        }
        let ideal = cut[parts] as f64 / f64::from(speeds.iter().sum::<u32>());
        end / ideal
    }

    fn cut(speeds: &CoreSpeeds, units: usize, each: usize) -> Vec<usize> {
        Shares::new(LAPTOP.len(), speeds).cut(units, each, LAPTOP.len()).collect()
    }

    #[test]
    fn a_slow_core_does_not_hold_a_step_up() {
        // 1,620 panels do not divide into the speeds' parts.
        for (each, before) in [(1, 1.45), (2, 1.1)] {
            let units = 1620;
            let equal = step(&cut(&CoreSpeeds::Equal, units, each), &LAPTOP);
            let mixed = step(&cut(&CoreSpeeds::Mixed, units, each), &LAPTOP);
            let known = step(&cut(&CoreSpeeds::Each(LAPTOP.to_vec()), units, each), &LAPTOP);
            assert!(equal > before, "equal parts make fast cores wait: {equal}");
            assert!(mixed < 1.06, "{mixed}");
            assert!(known < 1.02, "{known}");
        }
    }

    #[test]
    fn bounds_cover_all_units_and_depend_on_the_speeds_only() {
        let all = [CoreSpeeds::Equal, CoreSpeeds::Mixed, CoreSpeeds::Each(vec![5, 3, 1])];
        for (speeds, units) in all.iter().flat_map(|s| [0, 1, 7, 20, 1728].map(|u| (s, u))) {
            for workers in 1..=3 {
                let shares = Shares::new(3, speeds);
                let of = |each| shares.cut(units, each, workers).collect::<Vec<_>>();
                assert_eq!(of(0), [0]);
                let one = of(1);
                for each in 1..5 {
                    let cut = of(each);
                    assert!(cut.is_sorted() && cut[0] == 0 && *cut.last().expect("one") == units);
                    let begins = cut.iter().step_by((cut.len() - 1) / workers);
                    let coarse = one.iter().step_by((one.len() - 1) / workers);
                    assert!(begins.eq(coarse), "{speeds:?} {units} {workers} {each}");
                }
            }
        }
    }

    #[test]
    #[should_panic(expected = "needs 3 speeds above 0")]
    fn every_worker_needs_a_speed() {
        Shares::new(3, &CoreSpeeds::Each(vec![1, 2]));
    }
}
