//! The engine of a model: the thread that owns it, its queue and events, and what it keeps between requests.

pub mod arrival;
pub mod chunk_file;
pub mod disk_cache;
pub mod event;
pub mod event_batcher;
pub mod exact_history;
pub mod fair;
pub mod grammars;
pub mod prompt_pacer;
pub mod queue_error;
pub mod served_model;
pub mod shared;
pub mod slots;
pub mod text_limits;
pub mod thread;
pub mod turns;
