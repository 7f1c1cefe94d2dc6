//! Memory that is left for this process, and memory that it uses.

use super::limits::{self, MemoryLimit};
use std::fmt;
use std::fs;
use std::path::Path;

/// Memory that this process can still allocate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryLeft {
    /// Number of bytes.
    pub bytes: u64,
    /// The tightest limit.
    pub limit: LimitedBy,
}

/// A limit of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitedBy {
    /// The memory of the machine.
    Machine,
    /// A control group of so many bytes: that of a container, a service or a user.
    Group(u64),
    /// An address space of so many bytes: `ulimit -v`.
    AddressSpace(u64),
    /// The bytes that a server's models may take.
    Server,
}

impl fmt::Display for LimitedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mb = |bytes: &u64| bytes / 1_000_000;
        match self {
            Self::Machine => f.write_str("the memory of this machine"),
            Self::Server => f.write_str("the limit of this server's models"),
            Self::Group(bytes) => write!(f, "the container's limit (cgroup) of {} MB", mb(bytes)),
            Self::AddressSpace(bytes) => {
                write!(f, "the limit of address space (ulimit -v) of {} MB", mb(bytes))
            }
        }
    }
}

/// Returns the memory that this process can still allocate without swap: what is left of the machine's,
/// of its control group's and of its address space. `None` where the system does not say.
pub fn memory_left() -> Option<MemoryLeft> {
    let machine = kilobytes("/proc/meminfo", "MemAvailable:")
        .map(|bytes| MemoryLeft { bytes, limit: LimitedBy::Machine });
    let limited = |limit: Option<MemoryLimit>, by: fn(u64) -> LimitedBy| {
        limit.map(|limit| MemoryLeft { bytes: limit.free, limit: by(limit.total) })
    };
    let group = limited(limits::memory(Path::new("/")), LimitedBy::Group);
    let space = limited(limits::address_space(), LimitedBy::AddressSpace);
    [machine, group, space].into_iter().flatten().min_by_key(|left| left.bytes)
}

/// Returns the bytes of memory that this process can still allocate ([`memory_left`]).
pub fn free_memory() -> Option<u64> {
    memory_left().map(|left| left.bytes)
}

/// Returns the bytes of swap space that are free; `None` where the system does not say.
pub fn free_swap() -> Option<u64> {
    kilobytes("/proc/meminfo", "SwapFree:")
}

/// Returns the largest resident size of this process so far in bytes; `None` where the system does
/// not say.
pub fn peak_memory() -> Option<u64> {
    status("VmHWM:")
}

/// Returns the resident size of this process in bytes; `None` where the system does not say.
pub fn resident_memory() -> Option<u64> {
    status("VmRSS:")
}

/// Reads a size of this process, in bytes.
pub(super) fn status(name: &str) -> Option<u64> {
    kilobytes("/proc/self/status", name)
}

/// Reads a line such as `VmHWM:  123 kB`, in bytes.
fn kilobytes(file: &str, name: &str) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    let value = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(value.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}
