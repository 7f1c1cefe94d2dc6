//! The commands of `wf-run`, run as a user runs them, one file a topic.

#[path = "../common/mod.rs"]
mod common;
mod completions;
mod convert;
mod defaults;
#[path = "../../../tests/common/defaults.rs"]
mod defaults_table;
mod eval;
mod files;
mod finite;
mod flags;
mod hub;
mod memory;
mod model;
mod nemotron;
mod odd_models;
mod settings;
mod signals;
mod usage;
