//! This machine: its cores, its memory, and the kernels and threads that compute on it.

pub mod cores;
mod limits;
mod memory;
mod paths;
mod threads;

pub use memory::{
    LimitedBy, MemoryLeft, free_memory, free_swap, memory_left, peak_memory, resident_memory,
};
pub use paths::canonicalize;
pub use threads::{MachineError, Threads, all_cores, available, kernels, native, runtime};
