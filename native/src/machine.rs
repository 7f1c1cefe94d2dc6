//! This machine: kernels, threads, memory.

use crate::args::ComputeArgs;
use crate::exit::usage;
use std::env;
use std::num::NonZeroUsize;
use std::thread::available_parallelism;
use wrinklefree::kernel::{Isa, Kernels};
use wrinklefree::model::Runtime;
use wrinklefree::par::Team;

/// The variable that overrides the choice of kernels.
const WF_ISA: &str = "WF_ISA";

/// Kernel sets that this machine can run, by name.
pub fn available() -> Vec<&'static str> {
    Isa::ALL.into_iter().filter(|&i| Kernels::for_isa(i).is_some()).map(Isa::name).collect()
}

/// The best kernels, or those that `WF_ISA` names.
pub fn kernels() -> anyhow::Result<Kernels> {
    let Some(name) = env::var_os(WF_ISA) else { return Ok(Kernels::best()) };
    let name = name.to_string_lossy();
    let machine = available().join(", ");
    let isa = Isa::parse(&name).ok_or_else(|| {
        let all = Isa::ALL.map(Isa::name).join(", ");
        usage(format!("{WF_ISA}={name} is unknown: expected {all}; this machine has {machine}"))
    })?;
    Kernels::for_isa(isa).ok_or_else(|| {
        usage(format!("{WF_ISA}={name} is not available here: this machine has {machine}"))
    })
}

/// Threads to use when the user did not say.
pub fn threads(args: &ComputeArgs) -> usize {
    args.threads.unwrap_or_else(|| available_parallelism().map_or(1, NonZeroUsize::get))
}

/// Kernels and a team of `threads`.
pub fn runtime(threads: usize) -> anyhow::Result<Runtime> {
    Ok(Runtime { kernels: kernels()?, team: Team::new(threads)? })
}

/// Bytes of memory that programs can get, where the system tells.
pub fn free_memory() -> Option<u64> {
    let memory = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = memory.lines().find_map(|l| l.strip_prefix("MemAvailable:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

/// The most memory this process ever had resident, in bytes, where the system tells.
pub fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}
