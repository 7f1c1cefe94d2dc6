//! The body of `POST /v1/embeddings`.

use crate::api::body::model::ModelFields;
use crate::api::body::prompts::Prompts;
use crate::api::description::schema::{SchemaFn, schema_of};
use serde::Deserialize;
use utoipa::ToSchema;

/// Schemas of the body.
pub const BODY: &[SchemaFn] = &[schema_of::<ModelFields>, schema_of::<EmbeddingFields>];
/// Schemas of the body of `/pooling`.
pub const POOLING: &[SchemaFn] =
    &[schema_of::<ModelFields>, schema_of::<EmbeddingFields>, schema_of::<PoolingFields>];

/// Fields of embeddings.
#[derive(Deserialize, ToSchema)]
pub struct EmbeddingFields {
    /// Texts to embed.
    pub input: Prompts,
    /// Encoding of the embeddings.
    pub encoding_format: Option<EmbeddingEncoding>,
    /// Length of the embeddings. Only the model's own length is supported.
    pub dimensions: Option<usize>,
    /// Method that combines the hidden states of a text into one embedding.
    pub pooling: Option<PoolingMethod>,
}

/// Fields that only `/pooling` has.
#[derive(Deserialize, ToSchema)]
pub struct PoolingFields {
    /// Task: only `embed` is supported.
    #[schema(pattern = "^embed$")]
    pub task: Option<String>,
    /// Embeddings have length 1. False is not supported.
    pub normalize: Option<bool>,
}

/// Encoding of an embedding: an array of numbers, or base64 of little-endian f32.
#[derive(Clone, Copy, Default, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum EmbeddingEncoding {
    #[default]
    Float,
    /// Little-endian f32.
    Base64,
}

/// Method of pooling: the mean over all tokens, or the last token.
#[derive(Clone, Copy, Default, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PoolingMethod {
    #[default]
    Mean,
    Last,
}
