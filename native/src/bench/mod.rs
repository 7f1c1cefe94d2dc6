//! What `wf-run bench` is made of.

pub mod bandwidth;
pub mod measure;
pub mod report;
pub mod requests;
pub mod speed;
pub mod synthetic;
