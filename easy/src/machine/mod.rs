//! This machine: its cores, its memory, and the kernels and threads that compute on it.

pub mod cores;
mod memory;
mod threads;

pub use memory::{free_memory, peak_memory};
pub use threads::{MachineError, Threads, all_cores, available, kernels, runtime};
