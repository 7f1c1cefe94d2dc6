//! Settings of reasoning, and their effect on one output.

use crate::decode::{
    ClosingTokens, Constraint, MarkerTexts, ReasoningConstraint, ReasoningTokens, TokenTexts,
};
use crate::text::{
    ChatTemplate, PRESERVE_THINKING, ReasoningMarkers, ReasoningParser, ReasoningStart, Tokenizer,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::sync::Arc;

/// Variables of templates that settings cannot replace.
const RESERVED: [&str; 5] =
    ["messages", "tools", "documents", "add_generation_prompt", "strftime_now"];

/// Settings of reasoning. Unset values are those of the model's chat template.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::Args), group(id = "reasoning"))]
#[cfg_attr(feature = "clap", command(next_help_heading = "Reasoning"))]
#[cfg_attr(feature = "utoipa", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct Reasoning {
    /// Let the model think before it answers
    ///
    /// [default: as the chat template says]
    #[cfg_attr(feature = "clap", arg(long, value_name = "YES", num_args = 0..=1, require_equals = true, default_missing_value = "true"))]
    pub enable_thinking: Option<bool>,
    /// Amount of thinking
    ///
    /// Templates that know no effort get a budget instead: 256 tokens for minimal, 1024 for low, 4096 for
    /// medium.
    #[cfg_attr(feature = "clap", arg(long, value_name = "LEVEL", value_enum))]
    pub reasoning_effort: Option<Effort>,
    /// Tokens of thinking at most
    ///
    /// The thinking is closed then, and the model answers.
    #[serde(alias = "thinking_token_budget", alias = "thinking_budget_tokens")]
    #[cfg_attr(feature = "clap", arg(long, value_name = "N"))]
    pub thinking_budget: Option<usize>,
    /// Keep the thinking of earlier turns in the prompt
    ///
    /// With it the prompt begins with what was computed before, so that long conversations find all of
    /// it in the prefix cache. Most templates leave earlier thinking out.
    #[cfg_attr(feature = "clap", arg(long, value_name = "YES", num_args = 0..=1, require_equals = true, default_missing_value = "true"))]
    pub preserve_thinking: Option<bool>,
    /// Variables of the chat template, as JSON
    #[cfg_attr(feature = "clap", arg(long, value_name = "JSON", value_parser = object))]
    #[cfg_attr(feature = "utoipa", schema(value_type = Option<Object>))]
    pub chat_template_kwargs: Option<Map<String, Value>>,
}

/// Values of `reasoning_effort`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[cfg_attr(feature = "utoipa", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Effort {
    /// No thinking
    None,
    /// The least thinking
    Minimal,
    /// Little thinking
    Low,
    /// Some thinking
    Medium,
    /// Much thinking
    High,
    /// More than high
    Xhigh,
    /// The most thinking
    Max,
}

/// Error: the settings of reasoning do not fit the model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReasoningError {
    /// A variable that every conversation sets.
    #[error("chat_template_kwargs cannot set `{0}`: the conversation sets it")]
    Reserved(String),
    /// A variable whose value is not `true` or `false`.
    #[error("chat_template_kwargs.{0} must be true or false")]
    NotBoolean(&'static str),
    /// The model does not reason.
    #[error("the model's chat template knows no thinking: leave enable_thinking out")]
    NoReasoning,
    /// The tokenizer cannot write a marker.
    #[error(
        "a thinking budget needs `{0}`, and the model's tokenizer cannot write it: leave \
         thinking_budget out"
    )]
    NoToken(&'static str),
}

impl Effort {
    /// Name in requests and templates.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Minimal => "minimal",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::Xhigh => "xhigh",
            Self::Max => "max",
        }
    }

    /// Tokens of thinking, for templates that know no effort; `None` is any number.
    fn budget(self) -> Option<usize> {
        match self {
            Self::None => Some(0),
            Self::Minimal => Some(256),
            Self::Low => Some(1024),
            Self::Medium => Some(4096),
            Self::High | Self::Xhigh | Self::Max => None,
        }
    }
}

impl Reasoning {
    /// Returns these settings, with unset values taken from `other`.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        let preserve_thinking = self.preserves().or(other.preserves());
        let chat_template_kwargs = match (self.chat_template_kwargs, other.chat_template_kwargs) {
            (Some(own), Some(mut all)) => {
                all.extend(own);
                Some(all)
            }
            (own, other) => own.or(other),
        };
        Self {
            enable_thinking: self.enable_thinking.or(other.enable_thinking),
            reasoning_effort: self.reasoning_effort.or(other.reasoning_effort),
            thinking_budget: self.thinking_budget.or(other.thinking_budget),
            preserve_thinking,
            chat_template_kwargs,
        }
    }

    /// Returns the variables for the chat template.
    ///
    /// # Errors
    /// If one is reserved, or not of its type.
    pub fn variables(&self) -> Result<Map<String, Value>, ReasoningError> {
        let mut variables = self.chat_template_kwargs.clone().unwrap_or_default();
        if let Some(name) = variables.keys().find(|name| RESERVED.contains(&name.as_str())) {
            return Err(ReasoningError::Reserved(name.clone()));
        }
        if variables.get(PRESERVE_THINKING).is_some_and(|value| !value.is_boolean()) {
            return Err(ReasoningError::NotBoolean(PRESERVE_THINKING));
        }
        if let Some(preserves) = self.preserves() {
            variables.insert(PRESERVE_THINKING.into(), preserves.into());
        }
        if let Some(enabled) = self.thinks() {
            variables.insert("enable_thinking".into(), enabled.into());
        }
        if let Some(effort) = self.reasoning_effort.filter(|&effort| effort != Effort::None) {
            variables.insert("reasoning_effort".into(), effort.name().into());
        }
        Ok(variables)
    }

    /// Returns true if the thinking of earlier turns is kept; `None` if the template decides.
    #[must_use]
    pub fn preserves(&self) -> Option<bool> {
        let variable =
            self.chat_template_kwargs.as_ref().and_then(|kwargs| kwargs.get(PRESERVE_THINKING));
        self.preserve_thinking.or(variable.and_then(Value::as_bool))
    }

    /// Returns true if the model is asked to think, false if it is asked not to.
    fn thinks(&self) -> Option<bool> {
        let none = self.reasoning_effort == Some(Effort::None);
        self.enable_thinking.or(none.then_some(false))
    }

    /// Applies the settings to the output that follows a rendered prompt.
    ///
    /// # Errors
    /// If the model does not reason and is asked to.
    pub fn of_output(
        &self,
        template: &ChatTemplate,
        prompt: &str,
    ) -> Result<OutputReasoning, ReasoningError> {
        let Some(markers) = ReasoningMarkers::of_template(template) else {
            return match self.enable_thinking {
                Some(true) => Err(ReasoningError::NoReasoning),
                _ => Ok(OutputReasoning::default()),
            };
        };
        let start = markers.start(prompt);
        if start == ReasoningStart::Closed {
            return Ok(OutputReasoning::default());
        }
        let knows_effort = template.source().contains("reasoning_effort");
        let of_effort = self.reasoning_effort.filter(|_| !knows_effort).and_then(Effort::budget);
        let off = (self.thinks() == Some(false)).then_some(0);
        let budget = off.or(self.thinking_budget).or(of_effort);
        Ok(OutputReasoning { place: Some((markers, start)), budget })
    }
}

/// The reasoning of one output.
#[derive(Clone, Debug, Default)]
pub struct OutputReasoning {
    /// Markers and the place of the reasoning; `None` if the output is the answer.
    place: Option<(ReasoningMarkers, ReasoningStart)>,
    /// Tokens of reasoning at most.
    budget: Option<usize>,
}

impl OutputReasoning {
    /// Returns a parser of the output; `None` if it has no reasoning.
    #[must_use]
    pub fn parser(&self) -> Option<ReasoningParser> {
        self.place.map(|(markers, start)| ReasoningParser::new(markers, start))
    }

    /// Returns the constraint of the output whose answer follows `answer`. The text ends with `eos`.
    ///
    /// # Errors
    /// If the tokenizer cannot write a marker that is needed.
    pub fn constrain(
        &self,
        tokenizer: &Tokenizer,
        eos: &[u32],
        answer: Option<Box<dyn Constraint>>,
    ) -> Result<Option<Box<dyn Constraint>>, ReasoningError> {
        let Some((markers, start)) = self.place else { return Ok(answer) };
        if self.budget.is_none() && answer.is_none() {
            return Ok(None);
        }
        let encode = |text: &str| tokenizer.encode(text, false).unwrap_or_default();
        let written = |marker: &'static str| {
            let tokens = encode(marker);
            if tokens.is_empty() { Err(ReasoningError::NoToken(marker)) } else { Ok(tokens) }
        };
        let close = written(markers.close)?;
        let open = match start {
            ReasoningStart::Optional => Some(written(markers.open)?),
            ReasoningStart::Open | ReasoningStart::Closed => None,
        };
        let cut = close.len() > 1 || open.as_ref().is_some_and(|open| open.len() > 1);
        let texts = cut.then(|| {
            let close = markers.close;
            let rests = (1..close.len()).map(|n| tokenizer.tokens_from(&close[n..]));
            let closing =
                ClosingTokens { whole: tokenizer.tokens_with(close), rests: rests.collect() };
            let texts = Arc::new(Texts(tokenizer.clone()));
            MarkerTexts::new([markers.open, close], texts, &closing)
        });
        let around = [encode("\n"), encode("\n\n")];
        let tokens = ReasoningTokens { open, close, around, eos: eos.to_vec(), texts };
        Ok(Some(Box::new(ReasoningConstraint::new(tokens, self.budget, answer))))
    }
}

/// The bytes of a tokenizer's tokens.
#[derive(Debug)]
struct Texts(Tokenizer);

impl TokenTexts for Texts {
    fn bytes(&self, token: u32) -> &[u8] {
        self.0.bytes(token)
    }
}

#[cfg(feature = "clap")]
fn object(text: &str) -> Result<Map<String, Value>, String> {
    serde_json::from_str(text).map_err(|e| format!("expected a JSON object: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::TextParts;
    use serde_json::json;

    fn template(source: &str) -> ChatTemplate {
        let parts = TextParts { chat_template: Some(source.into()), ..TextParts::default() };
        ChatTemplate::new(&parts).expect("valid").expect("there")
    }

    #[test]
    fn variables_come_from_all_settings() {
        let kwargs = |value: Value| value.as_object().cloned();
        let own = Reasoning {
            reasoning_effort: Some(Effort::Low),
            chat_template_kwargs: kwargs(json!({"a": 1})),
            ..Reasoning::default()
        };
        let defaults = Reasoning {
            enable_thinking: Some(true),
            chat_template_kwargs: kwargs(json!({"a": 2, "b": 3})),
            ..Reasoning::default()
        };
        let all = json!({"a": 1, "b": 3, "enable_thinking": true, "reasoning_effort": "low"});
        assert_eq!(Value::from(own.or(defaults).variables().expect("valid")), all);
        let none = Reasoning { reasoning_effort: Some(Effort::None), ..Reasoning::default() };
        assert_eq!(
            Value::from(none.variables().expect("valid")),
            json!({"enable_thinking": false})
        );
        let chat_template_kwargs = kwargs(json!({"messages": []}));
        let reserved = Reasoning { chat_template_kwargs, ..Reasoning::default() };
        assert_eq!(reserved.variables(), Err(ReasoningError::Reserved("messages".into())));
        let of_request = |value: Value| Reasoning {
            chat_template_kwargs: kwargs(value),
            ..Reasoning::default()
        };
        let of_server = || Reasoning { preserve_thinking: Some(true), ..Reasoning::default() };
        for (request, want) in [(json!({}), true), (json!({PRESERVE_THINKING: false}), false)] {
            let variables = of_request(request).or(of_server()).variables().expect("valid");
            assert_eq!(variables[PRESERVE_THINKING], want);
        }
        let wrong = of_request(json!({PRESERVE_THINKING: "yes"})).or(of_server()).variables();
        assert_eq!(wrong, Err(ReasoningError::NotBoolean(PRESERVE_THINKING)));
    }

    #[test]
    fn an_output_reasons_where_its_prompt_says_so() {
        let plain = template("{{ messages }}");
        let thinking = template("{{ messages }}<think>\n{# </think> #}");
        let off = Reasoning { enable_thinking: Some(false), ..Reasoning::default() };
        let on = Reasoning { enable_thinking: Some(true), ..Reasoning::default() };
        let low = Reasoning { reasoning_effort: Some(Effort::Low), ..Reasoning::default() };
        assert!(off.of_output(&plain, "x").expect("valid").parser().is_none());
        assert_eq!(on.of_output(&plain, "x").unwrap_err(), ReasoningError::NoReasoning);
        let budget =
            |settings: &Reasoning| settings.of_output(&thinking, "x<think>\n").unwrap().budget;
        assert_eq!((budget(&off), budget(&on), budget(&low)), (Some(0), None, Some(1024)));
        assert!(on.of_output(&thinking, "x").expect("valid").parser().is_some());
        assert!(on.of_output(&thinking, "x</think>\n\n").expect("valid").parser().is_none());
    }
}
