//! Unpredictable numbers and the unique ids made of them.

pub use wrinklefree_easy::random_seed as random;

/// Returns a unique id that starts with `prefix`, such as `req-0123…`.
pub fn new(prefix: &str) -> String {
    format!("{prefix}-{}", unique())
}

/// Returns 32 hexadecimal digits that no other id has.
pub fn unique() -> String {
    format!("{:016x}{:016x}", random(), random())
}
