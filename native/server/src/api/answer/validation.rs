//! Reports whether outputs match a schema that was held for best effort.

use crate::engine::arrival::Arrival;
use crate::engine::grammars::{AnswerForm, GrammarCompiler, RequestedGrammar};
use serde_json::{Value, json};
use std::sync::Arc;
use wrinklefree::chat::OutputParser;

/// Field of responses with the report.
const FIELD: &str = "schema_validation";

/// Validates the outputs of one request.
pub struct OutputValidator {
    compiler: Arc<GrammarCompiler>,
    schema: AnswerForm,
    not_enforced: Vec<String>,
    arrival: Arrival,
    /// Finds the answer in an output.
    parser: Option<OutputParser>,
}

impl OutputValidator {
    /// Makes the validator of a request for best effort; `None` for others.
    pub fn new(
        compiler: &Arc<GrammarCompiler>,
        requested: Option<&RequestedGrammar>,
        not_enforced: Vec<String>,
        arrival: Arrival,
        parser: Option<OutputParser>,
    ) -> Option<Self> {
        let schema = requested?.validated()?.clone();
        Some(Self { compiler: compiler.clone(), schema, not_enforced, arrival, parser })
    }

    /// Returns the report about an output; `None` if it calls tools instead of answering.
    pub async fn report(&self, output: &str) -> Option<Value> {
        let answer = match &self.parser {
            None => output.to_string(),
            Some(parser) => {
                let blocks = parser.clone().parse(output);
                if blocks.calls().next().is_some() {
                    return None;
                }
                blocks.text()
            }
        };
        let mut report = self.compiler.validate(&self.schema, &answer, &self.arrival).await;
        report.not_enforced.clone_from(&self.not_enforced);
        Some(json!(report))
    }
}

/// Adds the reports to a response, or to the last event of an output or of a stream: to each choice, to
/// a response in the event, or to the whole.
pub fn attach(body: &mut Value, reports: &[Option<Value>]) {
    let mut reports = reports.iter();
    if let Some(choices) = body.get_mut("choices").and_then(Value::as_array_mut) {
        for (choice, report) in choices.iter_mut().zip(reports) {
            report.iter().for_each(|report| choice[FIELD] = (*report).clone());
        }
        return;
    }
    let Some(Some(report)) = reports.next() else { return };
    match body.get_mut("response") {
        Some(response) => response[FIELD] = report.clone(),
        None => body[FIELD] = report.clone(),
    }
}

/// Adds the report to the event that ends a stream with named events.
pub fn attach_to_end(events: &mut [Value], report: Option<&Value>) {
    let ends = ["response.completed", "response.incomplete", "message_delta"];
    let last = events.iter_mut().find(|event| ends.iter().any(|name| event["type"] == *name));
    if let (Some(event), Some(report)) = (last, report) {
        attach(event, &[Some(report.clone())]);
    }
}
