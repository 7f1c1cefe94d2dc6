//! The subset of Jinja that chat templates need, on minijinja, for untrusted templates.
//!
//! minijinja counts instructions, but one instruction can do any amount of work: sixty `~` that double
//! a string cost sixty instructions. So an instruction whose work depends on the size of a value is
//! preceded by one that charges for it ([`compile`](mod@compile)). Filters, tests, methods and functions
//! charge as well ([`library`]). All charge one budget of bytes ([`Budget`]), which is never refunded,
//! so it bounds memory as well as time.
//!
//! Templates are written for Python's Jinja, so what differs there is replaced: operators
//! ([`operators`]), methods ([`methods`]), filters and tests ([`filters`]).

mod args;
mod budget;
mod compile;
mod cost;
mod filters;
mod format;
mod library;
mod methods;
mod operators;
mod source;
mod unwind;

pub(super) use budget::Budget;
pub(super) use compile::compile;
pub(super) use library::{Reporter, environment};
pub(super) use source::{TemplateSource, panic_message};
