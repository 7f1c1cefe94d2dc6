//! Fields that name a model, and fields of the endpoints that load and unload models.

use crate::api::description::schema::{SchemaFn, schema_of};
use serde::Deserialize;
use utoipa::ToSchema;
use wf_run_cli::config::KeepAlive;

/// Schemas of the body that loads a model.
pub const LOAD: &[SchemaFn] = &[schema_of::<ModelFields>, schema_of::<LoadFields>];
/// Schemas of the body that unloads a model.
pub const UNLOAD: &[SchemaFn] = &[schema_of::<ModelFields>];

/// The field that names the model.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub struct ModelFields {
    /// Name of the model, or `default`. A server of several models needs it.
    pub model: Option<String>,
}

/// The field that asks for a stream.
#[derive(Deserialize)]
pub struct StreamField {
    /// True for a stream.
    pub stream: Option<bool>,
}

/// Fields of the endpoint that loads a model.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub struct LoadFields {
    /// Time that the model stays in memory without requests: `5m`, seconds, or a negative number for
    /// forever. The default is the server's.
    #[schema(value_type = Option<String>)]
    pub keep_alive: Option<KeepAlive>,
}
