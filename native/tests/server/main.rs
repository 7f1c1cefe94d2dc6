//! The server, driven over HTTP by its own client, one file a topic.

#[cfg(unix)]
mod access;
mod agents;
mod canary;
#[path = "../common/mod.rs"]
mod common;
mod context;
mod disk_cache;
mod drafter;
mod fields;
#[path = "../../../tests/common/format.rs"]
mod fixtures;
mod grammars;
mod histories;
mod hostile;
mod http2;
mod limits;
mod llama;
mod many_models;
mod mtp;
mod nemotron;
mod ollama;
mod operations;
mod outputs;
#[path = "../common/puppet.rs"]
mod puppet;
mod reasoning;
mod security;
mod serve;
mod silence;
mod snapshots;
mod stop_tokens;
mod structured;
mod templates;
mod tool_prompts;
mod transport;
