//! The heap of a server: the second of two places where the command line is `unsafe`.

/// Lets all threads share one heap, where glibc would give each its own, which keeps the most that it
/// ever needed: for hours that looks like a leak. Called before there are threads; the variable
/// MALLOC_ARENA_MAX counts more. Other allocators have no such heaps.
pub fn share() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    if std::env::var_os("MALLOC_ARENA_MAX").is_none() {
        // SAFETY: `mallopt` takes two numbers and sets a limit inside the allocator; what it does not
        // know it refuses. A limit that was refused costs memory and nothing else.
        unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
    }
}
