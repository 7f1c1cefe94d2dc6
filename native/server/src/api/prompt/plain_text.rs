//! Texts to continue as they are, independent of the API that they came through.

use crate::api::answer::aside::aside;
use crate::api::answer::generation::Generation;
use crate::api::answer::validation::OutputValidator;
use crate::api::body::only_one;
use crate::engine::arrival::Arrival;
use crate::engine::grammars::RequestedGrammar;
use crate::engine::served_model::ServedModel;
use crate::error::ApiError;
use wrinklefree::chat::{OutputParser, Snapshots};
use wrinklefree::engine::Request;

/// Prompts that are tokenized and wait for their grammar and the engine.
pub struct PlainText {
    /// Name of the request field with the prompts, for errors.
    pub field: &'static str,
    /// One request per prompt.
    pub requests: Vec<Request>,
    /// Grammar of all outputs.
    pub grammar: Option<RequestedGrammar>,
}

impl PlainText {
    /// Starts generating `copies` outputs of each prompt.
    ///
    /// # Errors
    /// If the grammar cannot be used, or the engine does not accept the requests.
    pub async fn start(
        self,
        model: &ServedModel,
        arrival: Arrival,
        copies: usize,
    ) -> Result<Generation, ApiError> {
        let Self { field, mut requests, grammar } = self;
        let mut left_out = Vec::new();
        if let Some(requested) = &grammar {
            let ready = model.grammars.compile(requested, &arrival).await?;
            aside(|| {
                for request in &mut requests {
                    let allowed = request.sampling.constraint.take();
                    let form = Some(ready.compiled.constraint.clone());
                    request.sampling.constraint = only_one(allowed, form)?;
                }
                Ok::<_, ApiError>(())
            })?;
            left_out.clone_from(&ready.not_enforced);
        }
        let grammar = grammar.as_ref();
        let validator = OutputValidator::new(&model.grammars, grammar, left_out, arrival, None);
        let started = Generation::start(model, arrival, &requests, copies, field).await?;
        let each = requests.iter().filter(|request| request.watch).flat_map(|request| {
            let one = Snapshots::new(request, OutputParser::default(), Some(&model.tokenizer));
            vec![one; copies]
        });
        Ok(started.with_snapshots(each.collect()).with_validator(validator))
    }
}
