//! The description of the API: schemas of bodies, examples and the OpenAPI document.

pub mod examples;
pub mod openapi;
pub mod schema;
