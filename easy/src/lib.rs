//! What a program around the core needs: finding, mapping and opening models, grammars, and this
//! machine's cores, memory and threads.
//!
//! [`models`] opens a model from a path, a directory, a hub id (feature `hub`) or the copy inside
//! the library (feature `default-model`). [`machine`] starts the threads that compute. Nothing here
//! prints: warnings are returned as values.

pub mod machine;
pub mod models;
