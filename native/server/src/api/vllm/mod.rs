//! Endpoints of vLLM's API.

pub mod tokens;
