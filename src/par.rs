//! The thread team.

/// Threads that compute one forward pass together.
pub struct Team {}

impl Team {
    /// A team of `threads` (at least one); one means the caller alone.
    pub fn new(_threads: usize) -> Self {
        Self {}
    }

    /// Members, the caller included.
    pub fn threads(&self) -> usize {
        1
    }
}
