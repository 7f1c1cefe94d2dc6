//! The core behind a few functions for JavaScript: files go in as bytes, requests and events cross
//! as JSON. There is no clock, socket or storage here; the package's TypeScript has these.

mod error;
mod events;
mod model;
mod request;
mod session;
mod threads;
mod upload;

pub use session::Session;
pub use threads::helper;
pub use upload::Upload;
