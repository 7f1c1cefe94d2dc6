//! `wf-run`.
fn main() {}
