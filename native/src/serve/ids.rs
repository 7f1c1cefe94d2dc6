//! Unpredictable numbers and the unique ids made of them.

use std::hash::{BuildHasher, RandomState};

/// Returns a unique id that starts with `prefix`, such as `req-0123…`.
pub fn new(prefix: &str) -> String {
    format!("{prefix}-{}", unique())
}

/// Returns 32 hexadecimal digits that no other id has.
pub fn unique() -> String {
    format!("{:016x}{:016x}", random(), random())
}

/// Returns an unpredictable number.
pub fn random() -> u64 {
    RandomState::new().hash_one(0)
}
