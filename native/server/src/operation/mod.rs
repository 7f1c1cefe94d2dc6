//! Operation: log, metrics, reloads and warm-up.

pub mod log;
pub mod log_writer;
pub mod metrics;
#[cfg(feature = "otlp")]
pub mod otlp;
pub mod request_log;
pub mod warmup;
