//! Conversations: models that think before they answer, and calls of tools.
#![cfg(all(feature = "default-model", feature = "grammar"))]

#[path = "../../../tests/common/format.rs"]
mod fixtures;
#[allow(dead_code, reason = "tests of the server use more")]
#[path = "../../../native/tests/common/puppet.rs"]
mod puppet;
mod thinking;
mod tools;
