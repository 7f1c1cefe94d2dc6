//! Cores and CPUs of this machine, and pinning threads to them.
//!
//! A processor may have fast (performance) and slow (efficiency) cores. The systems say so in different
//! ways, and each has a file here.

#[cfg(any(target_os = "linux", test))]
mod linux;
#[cfg(target_os = "macos")]
mod macos;
#[cfg(target_os = "windows")]
mod windows;
#[cfg(any(target_os = "windows", test))]
mod windows_cpu_sets;

use super::limits;
use std::num::NonZeroUsize;
use std::path::Path;
use std::thread::available_parallelism;

/// The CPUs that this process may use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Cpus {
    /// The first CPU of each core, from the fastest core to the slowest.
    cores: Vec<usize>,
    /// Number of these that are performance cores.
    performance: usize,
    /// The other CPUs of these cores.
    siblings: Vec<usize>,
    /// Relative speed of each of `cores`, then of each of `siblings`.
    speeds: Vec<u32>,
}

/// Returns the CPUs that this process may use: first one for each core, from the fastest to the slowest,
/// then their siblings. If the system does not list them, they are numbered from 0.
pub fn cpus() -> Vec<usize> {
    let Cpus { cores, siblings, .. } = read();
    [cores, siblings].concat()
}

/// Returns the relative speeds of the cores of [`cpus`], in the same order.
pub fn speeds() -> Vec<u32> {
    read().speeds
}

/// Says if the cores that this process may use are of several kinds.
pub fn differ() -> bool {
    let Cpus { performance, cores, .. } = read();
    performance < cores.len()
}

/// Returns the number of performance cores that this process may use, limited by a container's quota:
/// the number of threads that computes fastest without measuring. A second thread on a core helps
/// neither arithmetic, which the core shares, nor memory, which one keeps busy. A pass on cores of all
/// kinds also waits for the slow ones.
pub fn count() -> usize {
    read().performance.clamp(1, limit())
}

/// Returns the number of cores that this process may use, the efficiency cores included, limited by a
/// container's quota.
pub fn all() -> usize {
    read().cores.len().clamp(1, limit())
}

/// The number of threads that can run at the same time here.
fn limit() -> usize {
    parallelism().min(limits::cpus(Path::new("/")).unwrap_or(usize::MAX))
}

fn parallelism() -> usize {
    available_parallelism().map_or(1, NonZeroUsize::get)
}

#[cfg(target_os = "linux")]
fn read() -> Cpus {
    linux::cpus(Path::new("/"), &allowed())
}

/// The system says how many cores there are of each kind, and not which CPUs are theirs.
#[cfg(not(target_os = "linux"))]
fn read() -> Cpus {
    #[cfg(target_os = "macos")]
    let performance = macos::performance_cores();
    #[cfg(target_os = "windows")]
    let performance = windows::performance_cores();
    #[cfg(not(any(target_os = "macos", target_os = "windows")))]
    let performance = None;
    let cpus = parallelism();
    let cores = num_cpus::get_physical().clamp(1, cpus);
    Cpus {
        cores: (0..cores).collect(),
        performance: performance.unwrap_or(cores).clamp(1, cores),
        siblings: (cores..cpus).collect(),
        speeds: vec![1; cpus],
    }
}

/// Returns the number of NUMA nodes with memory, or 1 if the system does not say. A core reads
/// memory of its own node fastest.
#[cfg(target_os = "linux")]
pub fn memory_nodes() -> usize {
    let listed = std::fs::read_to_string("/sys/devices/system/node/has_memory").ok();
    listed.and_then(|text| linux::list(text.trim())).map_or(1, |nodes| nodes.len().max(1))
}

/// Other systems do not say.
#[cfg(not(target_os = "linux"))]
pub fn memory_nodes() -> usize {
    1
}

#[cfg(target_os = "linux")]
fn allowed() -> Vec<usize> {
    use rustix::thread::{CpuSet, sched_getaffinity};
    match sched_getaffinity(None) {
        Ok(set) => (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect(),
        Err(_) => (0..parallelism()).collect(),
    }
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

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn every_cpu_is_there_once_and_cores_come_first() {
        let cpus = cpus();
        let mut sorted = cpus.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, allowed());
        assert!((1..=all()).contains(&count()) && all() <= cpus.len());
        assert_eq!(speeds().len(), cpus.len());
    }

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
