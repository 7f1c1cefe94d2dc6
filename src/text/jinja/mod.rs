//! The part of Jinja that chat templates need, on minijinja, for templates that nobody trusts.
//!
//! minijinja counts instructions, but one instruction can do any amount of work: a `~` that doubles
//! a string sixty times costs sixty instructions. So every instruction whose work depends on the
//! size of a value is preceded by one that pays for it ([`code`]), as are filters, tests, methods
//! and functions ([`library`]), from one allowance of bytes ([`Budget`]). It is never given back,
//! so it bounds memory as well as time.

mod budget;
mod code;
mod library;

pub(super) use budget::Budget;
pub(super) use code::{Source, compile};
pub(super) use library::environment;
