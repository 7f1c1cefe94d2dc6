//! Formats of calls, by the signs of chat templates.

use super::json_calls::{JsonCallParser, JsonFormat};
use super::xml::{self, XmlDialect, XmlParser, XmlTypes};
use super::{CallParser, Tool};
use crate::text::ChatTemplate;
use serde::{Deserialize, Serialize};

/// Format of calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum CallFormat {
    /// JSON between markers: Hermes 2, Qwen2.5 and Qwen3.
    #[default]
    Hermes,
    /// XML: Qwen3-Coder and Qwen3.5.
    QwenXml,
    /// XML: GLM-4.5 and later.
    GlmXml,
    /// JSON that is the whole output: Llama 3.1 and later.
    Llama,
    /// A list after `[TOOL_CALLS]`: Mistral up to Small 3.1.
    Mistral,
    /// `[TOOL_CALLS]` before each name and `[ARGS]` after it: Mistral since Magistral.
    MistralArgs,
    /// `<function=name>{…}</function>`: Functionary 3.1.
    Functionary,
}

/// Signs in templates, most specific first.
const SIGNS: [(&str, CallFormat); 7] = [
    ("<arg_key>", CallFormat::GlmXml),
    ("<parameter=", CallFormat::QwenXml),
    ("<tool_call>", CallFormat::Hermes),
    ("[ARGS]", CallFormat::MistralArgs),
    ("[TOOL_CALLS]", CallFormat::Mistral),
    ("<function=", CallFormat::Functionary),
    ("\"parameters\": ", CallFormat::Llama),
];

const HERMES: JsonFormat = JsonFormat {
    open: "<tool_call>",
    before_name: "\n{\"name\": \"",
    after_name: "\", \"arguments\": ",
    close: "}\n</tool_call>",
    between: Some("\n<tool_call>\n{\"name\": \""),
    end: "",
    first: false,
    mixed: true,
};
const LLAMA: JsonFormat = JsonFormat {
    open: "{\"name\": \"",
    before_name: "",
    after_name: "\", \"parameters\": ",
    close: "}",
    between: None,
    first: true,
    mixed: false,
    ..HERMES
};
const MISTRAL: JsonFormat = JsonFormat {
    open: "[TOOL_CALLS]",
    before_name: "[{\"name\": \"",
    close: "}",
    between: Some(", {\"name\": \""),
    end: "]",
    mixed: false,
    ..HERMES
};
const MISTRAL_ARGS: JsonFormat = JsonFormat {
    open: "[TOOL_CALLS]",
    before_name: "",
    after_name: "[ARGS]",
    close: "",
    between: Some("[TOOL_CALLS]"),
    mixed: false,
    ..HERMES
};
const FUNCTIONARY: JsonFormat = JsonFormat {
    open: "<function=",
    before_name: "",
    after_name: ">",
    close: "</function>",
    between: Some("<function="),
    mixed: false,
    ..HERMES
};
impl CallFormat {
    /// Returns the format that a template writes; `None` if it knows no calls.
    #[must_use]
    pub fn of_template(template: &ChatTemplate) -> Option<Self> {
        let source = template.tool_source();
        let written = SIGNS.into_iter().find(|(sign, _)| source.contains(sign))?.1;
        // Other templates may have the word too, in an example.
        let is_llama = source.contains("ipython") || source.contains("<|python_tag|>");
        (written != Self::Llama || is_llama).then_some(written)
    }

    /// Returns the texts around calls in JSON; `None` for XML.
    #[must_use]
    pub fn json(self) -> Option<&'static JsonFormat> {
        match self {
            Self::Hermes => Some(&HERMES),
            Self::Llama => Some(&LLAMA),
            Self::Mistral => Some(&MISTRAL),
            Self::MistralArgs => Some(&MISTRAL_ARGS),
            Self::Functionary => Some(&FUNCTIONARY),
            Self::QwenXml | Self::GlmXml => None,
        }
    }

    /// Returns the texts around calls in XML.
    #[must_use]
    pub fn xml(self) -> &'static XmlDialect {
        if self == Self::GlmXml { &xml::GLM } else { &xml::QWEN }
    }

    /// Returns a parser of outputs with calls of these tools, at least one if it is `required`.
    pub fn parser<'a>(self, tools: impl Iterator<Item = &'a Tool>, required: bool) -> CallParser {
        match self.json() {
            Some(format) => CallParser::Json(JsonCallParser::new(format, required)),
            None => CallParser::Xml(XmlParser::new(XmlTypes::new(tools), self.xml(), required)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::TextParts;

    #[test]
    fn templates_show_their_format() {
        for (source, want) in [
            ("<tool_call>\\n{\"name\"", Some(CallFormat::Hermes)),
            ("<tool_call>\\n<function=x>\\n<parameter=", Some(CallFormat::QwenXml)),
            ("<tool_call>{{ name }}\\n<arg_key>", Some(CallFormat::GlmXml)),
            ("Environment: ipython {\"name\": x, \"parameters\": y}", Some(CallFormat::Llama)),
            ("[TOOL_CALLS][", Some(CallFormat::Mistral)),
            ("[TOOL_CALLS]{{ name }}[ARGS]", Some(CallFormat::MistralArgs)),
            ("<function={{ name }}>", Some(CallFormat::Functionary)),
            ("a schema such as {\"parameters\": {}}", None),
            ("", None),
        ] {
            let source = format!("{{# {} #}}", source.replace("{{", "").replace("}}", ""));
            let text = TextParts { chat_template: Some(source), ..TextParts::default() };
            let template = ChatTemplate::new(&text).expect("valid").expect("there");
            assert_eq!(CallFormat::of_template(&template), want, "{}", template.source());
        }
    }
}
