//! Cores and CPUs of this machine, and pinning threads to them.

use super::limits;
use std::num::NonZeroUsize;
use std::path::Path;
use std::thread::available_parallelism;

/// Returns the CPUs that this process may use: first one for each core, then their siblings. If the
/// system does not list them, they are numbered from 0.
pub fn cpus() -> Vec<usize> {
    let (first, rest) = divided();
    [first, rest].concat()
}

/// Returns the number of cores that this process may use, limited by a container's quota. A second
/// thread on a core helps neither arithmetic, which the core shares, nor memory, which one keeps
/// busy.
pub fn count() -> usize {
    let quota = limits::cpus(Path::new("/")).unwrap_or(usize::MAX);
    divided().0.len().min(physical()).clamp(1, parallelism().min(quota))
}

/// The CPUs of each core are listed, and counted by [`divided`].
#[cfg(target_os = "linux")]
fn physical() -> usize {
    usize::MAX
}

/// Returns the number of cores of the machine.
#[cfg(not(target_os = "linux"))]
fn physical() -> usize {
    num_cpus::get_physical()
}

/// Returns the number of NUMA nodes with memory, or 1 if the system does not say. A core reads
/// memory of its own node fastest.
#[cfg(target_os = "linux")]
pub fn memory_nodes() -> usize {
    let listed = std::fs::read_to_string("/sys/devices/system/node/has_memory").ok();
    listed.and_then(|text| list(text.trim())).map_or(1, |nodes| nodes.len().max(1))
}

/// Other systems do not say.
#[cfg(not(target_os = "linux"))]
pub fn memory_nodes() -> usize {
    1
}

fn parallelism() -> usize {
    available_parallelism().map_or(1, NonZeroUsize::get)
}

/// Splits CPUs into the first of each core and the others.
fn divided() -> (Vec<usize>, Vec<usize>) {
    let all = allowed();
    let first = |cpu: usize| siblings(cpu).into_iter().filter(|s| all.contains(s)).min();
    all.iter().partition(|&&cpu| first(cpu) == Some(cpu))
}

/// Returns the CPUs on the core of `cpu`, including itself.
#[cfg(target_os = "linux")]
fn siblings(cpu: usize) -> Vec<usize> {
    let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
    let listed = std::fs::read_to_string(path).ok().and_then(|text| list(text.trim()));
    listed.unwrap_or_else(|| vec![cpu])
}

/// Other systems do not say.
#[cfg(not(target_os = "linux"))]
fn siblings(cpu: usize) -> Vec<usize> {
    vec![cpu]
}

/// Parses a list such as `0-2,8`.
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

/// Pins the calling thread, and those that it starts later, to this CPU.
///
/// # Errors
/// If the system refuses, or has no such call.
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
