//! What an answer must look like, as Anthropic's API says it.

use crate::models::grammar::Grammar;
use crate::serve::api::Asked;
use crate::serve::error::ApiError;
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

/// The fields that say it.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[schema(as = AnthropicOutputFields)]
pub struct OutputFields {
    output_config: Option<OutputConfig>,
    /// The older name of `output_config.format`.
    output_format: Option<OutputFormat>,
}

#[derive(Clone, Debug, Deserialize, ToSchema)]
#[schema(as = AnthropicOutputConfig)]
struct OutputConfig {
    format: Option<OutputFormat>,
}

/// JSON that fits a schema.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
#[schema(as = AnthropicOutputFormat)]
enum OutputFormat {
    JsonSchema {
        #[schema(value_type = Object)]
        schema: Value,
    },
}

impl OutputFields {
    /// The grammar that is asked for.
    pub fn grammar(self) -> Result<Option<Asked>, ApiError> {
        let (format, field) =
            match (self.output_config.and_then(|config| config.format), self.output_format) {
                (Some(_), Some(_)) => {
                    let message =
                        "output_format is the older name of output_config.format: say one";
                    return Err(ApiError::bad("output_format", message));
                }
                (None, old) => (old, "output_format"),
                (new, None) => (new, "output_config.format"),
            };
        Ok(format.map(|OutputFormat::JsonSchema { schema }| {
            let grammar = Grammar::JsonSchema(schema);
            Asked { grammar, field }
        }))
    }
}
