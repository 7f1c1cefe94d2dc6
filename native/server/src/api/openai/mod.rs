//! OpenAI's API.

pub mod chat;
pub mod completions;
pub mod embeddings;
pub mod models;
pub mod responses;
