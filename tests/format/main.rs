//! Model files: what is read, written and refused.

mod bad_input;
mod codec;
#[path = "../common/counting.rs"]
mod counting;
mod drafter;
mod export;
mod finite;
#[path = "../common/format.rs"]
mod fixtures;
mod golden;
mod hadamard;
mod load;
mod mtp;
mod nemotron;
mod qwen35;
mod real_files;
mod streamed_file;
