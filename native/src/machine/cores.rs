//! The cores of this machine, and threads that stay on them.

use std::num::NonZeroUsize;
use std::thread::available_parallelism;

/// CPUs that this process may use: the first of each core, then those that share a core with one of
/// them. Where the system does not tell, they are numbered.
pub fn cpus() -> Vec<usize> {
    let (first, rest) = divided();
    [first, rest].concat()
}

/// Cores that this process may use, as far as the system gives it time on them (a container's quota).
/// Two threads of a core share what does the arithmetic, and one alone can keep its memory busy.
pub fn count() -> usize {
    divided().0.len().clamp(1, parallelism())
}

/// Nodes of this machine that have memory: a core reads that of its own node fastest. One where the
/// system does not tell.
#[cfg(target_os = "linux")]
pub fn memory_nodes() -> usize {
    let listed = std::fs::read_to_string("/sys/devices/system/node/has_memory").ok();
    listed.and_then(|text| list(text.trim())).map_or(1, |nodes| nodes.len().max(1))
}

/// Other systems do not tell.
#[cfg(not(target_os = "linux"))]
pub fn memory_nodes() -> usize {
    1
}

fn parallelism() -> usize {
    available_parallelism().map_or(1, NonZeroUsize::get)
}

/// The first CPU of each core, and the others.
fn divided() -> (Vec<usize>, Vec<usize>) {
    let all = allowed();
    let first = |cpu: usize| siblings(cpu).into_iter().filter(|s| all.contains(s)).min();
    all.iter().partition(|&&cpu| first(cpu) == Some(cpu))
}

/// CPUs that run on the core of this one, itself included.
#[cfg(target_os = "linux")]
fn siblings(cpu: usize) -> Vec<usize> {
    let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
    let listed = std::fs::read_to_string(path).ok().and_then(|text| list(text.trim()));
    listed.unwrap_or_else(|| vec![cpu])
}

/// Other systems do not tell.
#[cfg(not(target_os = "linux"))]
fn siblings(cpu: usize) -> Vec<usize> {
    vec![cpu]
}

/// The numbers of a list such as `0-2,8`.
#[cfg(target_os = "linux")]
fn list(text: &str) -> Option<Vec<usize>> {
    let mut numbers = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        numbers.extend(first.parse::<usize>().ok()?..=last.parse().ok()?);
    }
    Some(numbers)
}

#[cfg(target_os = "linux")]
fn allowed() -> Vec<usize> {
    use rustix::thread::{CpuSet, sched_getaffinity};
    match sched_getaffinity(None) {
        Ok(set) => (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect(),
        Err(_) => numbered(),
    }
}

#[cfg(not(target_os = "linux"))]
fn allowed() -> Vec<usize> {
    numbered()
}

fn numbered() -> Vec<usize> {
    (0..parallelism()).collect()
}

/// Keeps the calling thread, and those that it will start, on this CPU.
///
/// # Errors
/// When the system refuses, or has no such call.
#[cfg(target_os = "linux")]
pub fn pin(cpu: usize) -> std::io::Result<()> {
    use rustix::thread::{CpuSet, sched_setaffinity};
    let mut set = CpuSet::new();
    set.set(cpu);
    Ok(sched_setaffinity(None, &set)?)
}

/// See above.
#[cfg(not(target_os = "linux"))]
pub fn pin(_: usize) -> std::io::Result<()> {
    Err(std::io::Error::other("threads cannot be pinned on this system"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cpu_is_there_once_and_cores_come_first() {
        let cpus = cpus();
        let mut sorted = cpus.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, allowed());
        assert!((1..=cpus.len()).contains(&count()));
        let cores = divided().0.len();
        let on_core =
            |cpu: usize| cpus[..cores].iter().filter(|c| siblings(cpu).contains(c)).count();
        assert!(cpus.iter().all(|&cpu| on_core(cpu) == 1), "{cpus:?}");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn lists_of_cpus() {
        assert_eq!(list("0"), Some(vec![0]));
        assert_eq!(list("0-2,8,10-11"), Some(vec![0, 1, 2, 8, 10, 11]));
        assert_eq!((list(""), list("0-x")), (None, None));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_pinned_thread_stays() {
        let cpu = cpus()[0];
        let stays = std::thread::spawn(move || {
            pin(cpu).expect("allowed");
            allowed()
        });
        assert_eq!(stays.join().expect("no panic"), [cpu]);
    }
}
