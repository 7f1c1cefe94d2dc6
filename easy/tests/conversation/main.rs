//! Conversations: models that think before they answer, and calls of tools.
#![cfg(all(feature = "default-model", feature = "grammar"))]

mod thinking;
mod tools;
