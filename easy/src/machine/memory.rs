//! Memory of the machine and of this process, as Linux reports it.

use std::fs;

/// Returns the bytes of memory that programs can still allocate; `None` where the system does not
/// say.
pub fn free_memory() -> Option<u64> {
    kilobytes("/proc/meminfo", "MemAvailable:")
}

/// Returns the largest resident size of this process so far in bytes; `None` where the system does
/// not say.
pub fn peak_memory() -> Option<u64> {
    kilobytes("/proc/self/status", "VmHWM:")
}

/// Reads a line such as `VmHWM:  123 kB`, in bytes.
fn kilobytes(file: &str, name: &str) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    let value = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(value.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}
