//! WebAssembly bindings of the core for the npm package `wrinklefree`.
//!
//! An [`Upload`] receives a file's bytes, and a [`Session`] runs requests on the model. Requests and
//! events cross the border as JSON. The crate uses no socket and no storage; those are TypeScript's.

mod error;
mod events;
mod model;
mod request;
mod session;
mod threads;
mod upload;

pub use session::Session;
pub use threads::run_pool_worker;
pub use upload::Upload;
