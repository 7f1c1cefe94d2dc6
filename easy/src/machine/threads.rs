//! Kernels and the thread pool.

use super::cores;
use anyhow::Context;
use std::{env, fmt, thread};
use wrinklefree::kernel::{Isa, Kernels};
use wrinklefree::model::Runtime;
use wrinklefree::par::{CoreSpeeds, ThreadPool};

/// The environment variable that overrides the choice of kernels.
const WF_ISA: &str = "WF_ISA";

/// A setting that this machine cannot satisfy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MachineError {
    /// `WF_ISA` names no kernel set.
    UnknownIsa(String),
    /// `WF_ISA` names a kernel set that this CPU cannot run.
    UnavailableIsa(String),
    /// Each pinned thread needs a CPU of its own.
    TooManyPinned {
        /// Threads that were asked for.
        threads: usize,
        /// CPUs that this process may use.
        cpus: usize,
    },
}

impl fmt::Display for MachineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownIsa(name) => f.write_str(&unknown_isa(name, &available())),
            Self::UnavailableIsa(name) => f.write_str(&unavailable_isa(name, &available())),
            Self::TooManyPinned { threads, cpus } => {
                write!(f, "{threads} threads cannot be pinned to {cpus} CPUs")
            }
        }
    }
}

impl std::error::Error for MachineError {}

/// Returns the message for a name that no kernel set has, on a machine that can run the sets `here`.
fn unknown_isa(name: &str, here: &[&str]) -> String {
    let (all, here) = (native().collect::<Vec<_>>().join(", "), here.join(", "));
    format!("{WF_ISA}={name} is unknown: expected {all}; this machine has {here}")
}

/// Returns the message for a kernel set that is none of those that the machine can run, `here`.
fn unavailable_isa(name: &str, here: &[&str]) -> String {
    format!("{WF_ISA}={name} is not available here: this machine has {}", here.join(", "))
}

/// Returns the names of the kernel sets that a program can have: not those of WebAssembly.
pub fn native() -> impl Iterator<Item = &'static str> {
    let native = |isa: &Isa| !matches!(isa, Isa::Simd128 | Isa::RelaxedSimd);
    Isa::ALL.into_iter().filter(native).map(Isa::name)
}

/// Returns the names of the kernel sets that this machine can run.
pub fn available() -> Vec<&'static str> {
    Isa::ALL.into_iter().filter(|&i| Kernels::for_isa(i).is_some()).map(Isa::name).collect()
}

/// Returns the kernels that `WF_ISA` names, or the best ones of this machine. An empty variable counts
/// as unset.
///
/// # Errors
/// If `WF_ISA` is unknown or not available here.
pub fn kernels() -> Result<Kernels, MachineError> {
    let name = env::var_os(WF_ISA).unwrap_or_default().to_string_lossy().trim().to_string();
    if name.is_empty() {
        return Ok(Kernels::best());
    }
    match Isa::parse(&name) {
        None => Err(MachineError::UnknownIsa(name)),
        Some(isa) => Kernels::for_isa(isa).ok_or(MachineError::UnavailableIsa(name)),
    }
}

/// Number of threads that compute, and whether they are pinned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Threads {
    /// Threads for work that memory bounds: decoding.
    pub decode: usize,
    /// Threads for work that arithmetic bounds: prompts and batches.
    pub prefill: usize,
    /// True if each thread stays on a CPU of its own.
    pub pinned: bool,
}

impl Threads {
    /// Uses `count` threads for everything, not pinned.
    pub fn all(count: usize) -> Self {
        Self { decode: count, prefill: count, pinned: false }
    }

    /// Returns the size of the thread pool.
    pub fn count(&self) -> usize {
        self.decode.max(self.prefill)
    }

    fn thread_pool(&self) -> anyhow::Result<ThreadPool> {
        // A pinned thread sees its own CPU alone.
        let speeds = self.speeds();
        let thread_pool =
            if self.pinned { self.pinned_pool()? } else { ThreadPool::new(self.count())? };
        Ok(thread_pool.on_cores(&speeds).limited(self.decode, self.prefill))
    }

    /// Speeds of the cores that the threads run on. The system keeps as many threads as there are
    /// performance cores on these.
    fn speeds(&self) -> CoreSpeeds {
        match self.pinned {
            true => CoreSpeeds::Each(cores::speeds().into_iter().take(self.count()).collect()),
            false if self.count() > cores::count() && cores::differ() => CoreSpeeds::Mixed,
            false => CoreSpeeds::Equal,
        }
    }

    /// Pins the calling thread too: it is the first of the pool.
    fn pinned_pool(&self) -> anyhow::Result<ThreadPool> {
        let cpus = cores::cpus();
        if self.count() > cpus.len() {
            let (threads, cpus) = (self.count(), cpus.len());
            return Err(MachineError::TooManyPinned { threads, cpus }.into());
        }
        cores::pin(cpus[0]).context("cannot pin a thread")?;
        let mut next = cpus.into_iter().skip(1);
        let thread_pool = ThreadPool::with_spawn(self.count(), |worker| {
            let cpu = next.next().expect("there is a CPU for each thread");
            let work = move || {
                // An unpinned thread computes the same, only slower.
                let _ = cores::pin(cpu);
                worker.work();
            };
            thread::Builder::new().name(format!("wf-worker-{cpu}")).spawn(work).map(drop)
        });
        Ok(thread_pool?)
    }
}

/// Starts the thread pool and chooses the kernels.
///
/// # Errors
/// If `WF_ISA` cannot be used, or threads cannot be started or pinned.
pub fn runtime(threads: Threads) -> anyhow::Result<Runtime> {
    Ok(Runtime { kernels: kernels()?, thread_pool: threads.thread_pool()? })
}

/// Starts one thread for each performance core, to load weights that another runtime will compute with.
///
/// # Errors
/// As [`runtime`].
pub fn all_cores() -> anyhow::Result<Runtime> {
    runtime(Threads::all(cores::count()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sets of machines that tests do not run on.
    const MACHINES: [&[&str]; 6] = [
        &["scalar"],
        &["scalar", "avx2"],
        &["scalar", "avx2", "avxvnni"],
        &["scalar", "avx2", "avx512"],
        &["scalar", "avx2", "avxvnni", "avx512", "amx"],
        &["scalar", "neon", "dotprod", "i8mm"],
    ];

    #[test]
    fn messages_list_the_sets_of_any_machine() {
        for here in MACHINES {
            let list = here.join(", ");
            let unknown = unknown_isa("mmx", here);
            let expected = format!(
                "WF_ISA=mmx is unknown: expected scalar, avx2, avxvnni, avx512, amx, neon, dotprod, \
                 i8mm; this machine has {list}"
            );
            assert_eq!(unknown, expected);
            let unavailable = unavailable_isa("relaxed-simd", here);
            let expected =
                format!("WF_ISA=relaxed-simd is not available here: this machine has {list}");
            assert_eq!(unavailable, expected);
            assert!(here.iter().all(|name| Isa::parse(name).is_some()), "{here:?}");
        }
    }
}
