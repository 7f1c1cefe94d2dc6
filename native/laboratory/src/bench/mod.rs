//! The measurements of `wf-run bench` and `wf-run tune`.

pub mod drafts;
pub mod isa_comparison;
pub mod limits;
pub mod measure;
pub mod plot;
pub mod report;
pub mod requests;
mod roofline;
pub mod speed;
mod speed_report;
pub mod tuning;
