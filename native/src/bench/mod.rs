//! What `wf-run bench` is made of.

pub mod limits;
pub mod measure;
pub mod report;
pub mod requests;
mod roofline;
pub mod speed;
mod speed_report;
pub mod tuning;
