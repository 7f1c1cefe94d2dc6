//! Cores as macOS counts them.

/// Returns the number of performance cores; `None` on a Mac with one kind of core.
pub(super) fn performance_cores() -> Option<usize> {
    let name = c"hw.perflevel0.physicalcpu";
    let (mut count, mut size) = (0i32, size_of::<i32>());
    let (to, null) = ((&raw mut count).cast(), std::ptr::null_mut());
    // SAFETY: the name ends with a zero byte, `to` points to `size` bytes, and nothing is set.
    let failed = unsafe { libc::sysctlbyname(name.as_ptr(), to, &raw mut size, null, 0) } != 0;
    usize::try_from(count).ok().filter(|&count| !failed && count > 0)
}
