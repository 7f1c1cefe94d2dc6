//! Access: who may ask, from where, and how much at a time.

pub mod admission;
pub mod browser;
pub mod client;
pub mod cors;
pub mod host;
pub mod keys;
