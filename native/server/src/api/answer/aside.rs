//! Work that takes long for a thread of the connections.

/// Runs work whose size a client chooses. The connections of this thread go on meanwhile.
pub fn aside<T>(work: impl FnOnce() -> T) -> T {
    tokio::task::block_in_place(work)
}
