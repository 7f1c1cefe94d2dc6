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

/// Returns memory that is free to the system, also from between what is in use. Takes milliseconds.
pub fn trim() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: `malloc_trim` takes a number and gives back pages that nothing uses.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Bytes that the program holds, as glibc counts them. `None` with another allocator, and before glibc
/// 2.33.
pub fn live_bytes() -> Option<u64> {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        // SAFETY: the name is a C string. It is looked up, because the program also runs where it is
        // missing.
        let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"mallinfo2".as_ptr()) };
        if found.is_null() {
            return None;
        }
        // SAFETY: this is the type of the function of that name in glibc.
        let count: extern "C" fn() -> libc::mallinfo2 = unsafe { std::mem::transmute(found) };
        let heap = count();
        Some((heap.uordblks + heap.hblkhd) as u64)
    }
    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    None
}
