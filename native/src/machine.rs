//! This machine: kernels, threads, memory.

use crate::args::ComputeArgs;
use crate::cores;
use crate::exit::usage;
use anyhow::Context;
use std::{env, thread};
use wrinklefree::kernel::{Isa, Kernels};
use wrinklefree::model::Runtime;
use wrinklefree::par::ThreadPool;

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

/// How many threads compute, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Threads {
    /// For what memory bounds: decoding.
    pub decode: usize,
    /// For what arithmetic bounds: prompts, and batches.
    pub prefill: usize,
    /// Each stays on a core of its own.
    pub pinned: bool,
}

impl Threads {
    /// So many for everything.
    pub fn all(count: usize) -> Self {
        Self { decode: count, prefill: count, pinned: false }
    }

    /// What the user said; one for each core if nothing.
    pub fn new(args: &ComputeArgs) -> Self {
        let decode = args.threads.unwrap_or_else(cores::count);
        let prefill = args.prefill_threads.unwrap_or(decode);
        Self { decode, prefill, pinned: args.pin_threads }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.decode.max(self.prefill)
    }

    fn thread_pool(&self) -> anyhow::Result<ThreadPool> {
        let thread_pool = match self.pinned {
            true => self.pinned_team()?,
            false => ThreadPool::new(self.count())?,
        };
        Ok(thread_pool.limited(self.decode, self.prefill))
    }

    /// The calling thread is the first of the thread pool.
    fn pinned_team(&self) -> anyhow::Result<ThreadPool> {
        let cpus = cores::cpus();
        if self.count() > cpus.len() {
            let (threads, cpus) = (self.count(), cpus.len());
            return Err(usage(format!("{threads} threads cannot be pinned to {cpus} CPUs")));
        }
        cores::pin(cpus[0]).context("cannot pin a thread")?;
        let mut next = cpus.into_iter().skip(1);
        let thread_pool = ThreadPool::with(self.count(), |helper| {
            let cpu = next.next().expect("there are as many");
            let life = move || {
                // It computes the same wherever it runs.
                let _ = cores::pin(cpu);
                helper.work();
            };
            thread::Builder::new().name(format!("wf-thread_pool-{cpu}")).spawn(life).map(drop)
        });
        Ok(thread_pool?)
    }
}

/// Kernels and a thread pool.
pub fn runtime(threads: Threads) -> anyhow::Result<Runtime> {
    Ok(Runtime { kernels: kernels()?, thread_pool: threads.thread_pool()? })
}

/// Kernels and a thread for each core: to bring weights for whoever will compute with them later.
pub fn all_cores() -> anyhow::Result<Runtime> {
    runtime(Threads::all(cores::count()))
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
