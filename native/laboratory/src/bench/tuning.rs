//! Speeds with several instruction sets and numbers of threads, and the best of them.

use crate::bench::isa_comparison::{Comparison, Row};
use crate::bench::measure::{Bench, Kind, Test};
use std::thread;
use std::time::Duration;
use wrinklefree::cache::KvConfig;
use wrinklefree::kernel::{Isa, Kernels};
use wrinklefree::model::{Model, Runtime};
use wrinklefree_easy::machine::{self, Threads};

/// Tokens that are decoded, and those of the prompt, each time.
const DECODED: usize = 8;
const PROMPT: usize = 64;
/// Number of rounds in which instruction sets take turns.
const ROUNDS: usize = 3;
/// A speed of at least this share of the best counts as good as the best.
const CLOSE: f64 = 0.97;

/// A setup to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    /// Threads.
    pub threads: usize,
    /// Each on a core of its own.
    pub pinned: bool,
}

/// Tokens per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Speeds {
    /// One by one.
    pub decode: f64,
    /// Of a prompt.
    pub prompt: f64,
}

/// Speeds of an instruction set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct IsaSpeeds {
    /// The set.
    pub isa: Isa,
    /// Its best speeds.
    pub speeds: Speeds,
}

/// The setup to use on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Best {
    /// Threads for decoding.
    pub decode: usize,
    /// Threads for prompts.
    pub prefill: usize,
    /// True if the threads are pinned.
    pub pinned: bool,
}

/// Numbers of cores and CPUs that this process may use.
#[derive(Clone, Copy)]
pub struct Counts {
    /// Fast cores: all, where all are alike.
    pub performance: usize,
    /// Cores of all kinds.
    pub cores: usize,
    /// CPUs: some cores have two.
    pub cpus: usize,
}

/// All setups for a machine: powers of two, three quarters of the performance cores, all of these, all
/// cores, all CPUs.
pub fn setups(Counts { performance, cores, cpus }: Counts) -> Vec<Setup> {
    let powers = (0..).map(|i| 1 << i).take_while(|&n| n < performance);
    let most = [(performance * 3).div_ceil(4), performance, cores, cpus];
    let mut counts: Vec<usize> = powers.chain(most).collect();
    counts.sort_unstable();
    counts.dedup();
    let both = |threads| [false, true].map(|pinned| Setup { threads, pinned });
    counts.into_iter().flat_map(both).collect()
}

/// A test that a setup is measured by.
fn test(kind: Kind) -> Test {
    let tokens = match kind {
        Kind::Generate => DECODED,
        Kind::Prompt => PROMPT,
    };
    Test { kind, tokens, depth: 0, computed: None }
}

/// Measures one setup in about this time, on a thread that ends with it, as does its place.
pub fn measure(
    model: &Model,
    kernels: Kernels,
    setup: Setup,
    time: Duration,
) -> anyhow::Result<Speeds> {
    let threads = Threads { pinned: setup.pinned, ..Threads::all(setup.threads) };
    let alone = || {
        let runtime = Runtime { kernels, ..machine::runtime(threads)? };
        let speed = |kind| {
            let mut bench = Bench::new(model, &runtime, KvConfig::default(), test(kind))?;
            anyhow::Ok(bench.fastest(2, time / 2))
        };
        Ok(Speeds { decode: speed(Kind::Generate)?, prompt: speed(Kind::Prompt)? })
    };
    thread::scope(|scope| scope.spawn(alone).join()).expect("it does not panic")
}

/// Measures instruction sets by turns with so many threads, in about this time, each on a model that `load`
/// has laid out for it.
///
/// # Errors
/// As [`Comparison::run`].
pub fn measure_sets(
    sets: &[Kernels],
    threads: usize,
    time: Duration,
    load: impl Fn(&Runtime) -> anyhow::Result<(String, Model)>,
    done: impl Fn(),
) -> anyhow::Result<Vec<IsaSpeeds>> {
    let tests = [Kind::Generate, Kind::Prompt].map(test);
    let comparison = Comparison {
        sets,
        threads: &[threads],
        tests: &tests,
        kv: KvConfig::default(),
        rounds: ROUNDS,
        time: time / (sets.len() * tests.len() * ROUNDS) as u32,
    };
    let rows = comparison.run(load, done)?;
    let speed = |isa: Isa, kind: Kind| {
        let row = rows.iter().find(|row| row.isa == isa && row.test == test(kind));
        row.map_or(0.0, Row::best)
    };
    let speeds =
        |isa| Speeds { decode: speed(isa, Kind::Generate), prompt: speed(isa, Kind::Prompt) };
    Ok(sets.iter().map(Kernels::isa).map(|isa| IsaSpeeds { isa, speeds: speeds(isa) }).collect())
}

/// Returns the best of instruction sets, the narrowest of which comes first: the widest, unless another one is
/// faster by more than chance. `None` without any.
pub fn best_set(measured: &[IsaSpeeds]) -> Option<Isa> {
    // Two speeds, each to be better by so much.
    let both = |set: &IsaSpeeds| set.speeds.decode * set.speeds.prompt;
    let top = measured.iter().map(both).fold(0.0, f64::max);
    measured.iter().rev().find(|set| both(set) >= CLOSE * CLOSE * top).map(|set| set.isa)
}

/// The fewest threads that are as good as the fastest, pinned only where that is better.
pub fn best(measured: &[(Setup, Speeds)]) -> Best {
    let choose = |pinned: bool, of: fn(&Speeds) -> f64| {
        let all = measured.iter().filter(|(setup, _)| setup.pinned == pinned);
        let top = all.clone().map(|(_, speeds)| of(speeds)).fold(0.0, f64::max);
        let good = all.filter(|(_, speeds)| of(speeds) >= CLOSE * top);
        (good.map(|(setup, _)| setup.threads).min().unwrap_or(1), top)
    };
    let [free, pinned] = [false, true].map(|pinned| {
        let (decode, decoding) = choose(pinned, |speeds| speeds.decode);
        let (prefill, reading) = choose(pinned, |speeds| speeds.prompt);
        (Best { decode, prefill, pinned }, decoding * reading)
    });
    // Two speeds, each to be better by so much.
    if free.1 < CLOSE * CLOSE * pinned.1 { pinned.0 } else { free.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_once() {
        let all = |performance, cores, cpus| setups(Counts { performance, cores, cpus });
        let counts = |performance, cores, cpus| -> Vec<usize> {
            let free = all(performance, cores, cpus).into_iter().filter(|s| !s.pinned);
            free.map(|s| s.threads).collect()
        };
        assert_eq!(counts(1, 1, 1), [1]);
        assert_eq!(counts(2, 2, 2), [1, 2]);
        assert_eq!(counts(30, 30, 60), [1, 2, 4, 8, 16, 23, 30, 60]);
        assert_eq!(counts(8, 16, 24), [1, 2, 4, 6, 8, 16, 24]);
        assert_eq!(all(2, 2, 4).len(), 6);
    }

    #[test]
    fn the_widest_set_wins_unless_another_is_faster() {
        let table = |rows: &[(Isa, f64, f64)]| {
            let row = |&(isa, decode, prompt)| IsaSpeeds { isa, speeds: Speeds { decode, prompt } };
            best_set(&rows.iter().map(row).collect::<Vec<_>>())
        };
        let narrow = (Isa::Avx2, 50.0, 250.0);
        assert_eq!(table(&[narrow, (Isa::AvxVnni, 49.0, 250.0)]), Some(Isa::AvxVnni));
        assert_eq!(table(&[narrow, (Isa::AvxVnni, 13.4, 250.0)]), Some(Isa::Avx2));
        let widest = (Isa::Avx512, 50.0, 361.0);
        assert_eq!(table(&[narrow, (Isa::AvxVnni, 50.0, 300.0), widest]), Some(Isa::Avx512));
        assert_eq!(table(&[]), None);
    }

    #[test]
    fn the_fewest_of_the_good_ones_win() {
        let table = |rows: &[(usize, bool, f64, f64)]| -> Best {
            let row = |&(threads, pinned, decode, prompt)| {
                (Setup { threads, pinned }, Speeds { decode, prompt })
            };
            best(&rows.iter().map(row).collect::<Vec<_>>())
        };
        // Memory is full with four threads; pinning gives too little.
        let free = [(1, false, 10.0, 100.0), (4, false, 29.5, 390.0), (8, false, 30.0, 700.0)];
        let pinned = [(1, true, 10.0, 100.0), (8, true, 30.5, 710.0)];
        let all = [&free[..], &pinned[..]].concat();
        assert_eq!(table(&all), Best { decode: 4, prefill: 8, pinned: false });
        let better = [&free[..], &[(8, true, 33.0, 760.0)][..]].concat();
        assert_eq!(table(&better), Best { decode: 8, prefill: 8, pinned: true });
    }
}
