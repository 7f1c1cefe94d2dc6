//! Helpers that turn the structs of request bodies into OpenAPI schemas.

use utoipa::ToSchema;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{Components, Ref, Schema};

/// Adds the schemas of a type to the components and returns a reference to it.
pub type SchemaFn = fn(&mut Components) -> RefOr<Schema>;

/// The [`SchemaFn`] of `T`.
pub fn schema_of<T: ToSchema>(components: &mut Components) -> RefOr<Schema> {
    let mut schemas = vec![(T::name().into_owned(), T::schema())];
    T::schemas(&mut schemas);
    for (name, schema) in schemas {
        let other = components.schemas.insert(name.clone(), schema.clone());
        debug_assert!(other.is_none_or(|other| other == schema), "two schemas are called {name}");
    }
    Ref::from_schema_name(T::name()).into()
}
