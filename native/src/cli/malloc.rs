//! The memory allocator of a server: the only place where the program is `unsafe`.

/// Lets all threads share one heap. glibc gives each thread its own, which keeps the most that it
/// ever needed; over hours that looks like a leak.
///
/// Call it before threads are started. `MALLOC_ARENA_MAX` takes precedence. Other allocators have no
/// such heaps, so elsewhere this does nothing.
pub fn share() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    if std::env::var_os("MALLOC_ARENA_MAX").is_none() {
        // SAFETY: `mallopt` takes two numbers and sets a limit inside the allocator; it refuses
        // what it does not know. A refused limit costs memory and nothing else.
        unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
    }
}
