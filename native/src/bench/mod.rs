//! The measurements of `wf-run bench` and `wf-run tune`.

pub mod limits;
pub mod measure;
mod plot;
pub mod provenance;
pub mod report;
pub mod requests;
mod roofline;
pub mod speed;
mod speed_report;
pub mod tuning;
