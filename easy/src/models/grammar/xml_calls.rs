//! Grammar of calls in XML.

use super::TEXT;
use super::arguments::{argument_schema, grammar_schema, regex, text};
use super::definitions::Definitions;
use serde_json::{Value, json};
use std::fmt::Write;
use wrinklefree::chat::tools::{
    MOST_STEPS, Parameter, Parameters, Tool, Values, XmlDialect, alternatives,
};

/// Writes the rules of calls. Each parameter is a rule, and so is what may follow it.
pub struct XmlRules {
    dialect: &'static XmlDialect,
    /// The rules so far.
    pub lark: String,
    /// Bytes of definitions that may still be copied.
    copies: usize,
    /// Steps that may still be made to read the values of parameters.
    steps: usize,
}

/// A set of parameters that is written.
struct Writing<'a> {
    tool: &'a Tool,
    /// The tool's schema of arguments.
    root: &'a Value,
    set: &'a Parameters<'a>,
    /// Beginning of the names of its rules.
    id: String,
}

impl XmlRules {
    /// Begins with the rules of texts that are values: `more` ends where another parameter follows,
    /// `last` where the call ends. Where only one of them is possible, the text does not contain the end
    /// of the other: the parser ends a value at both.
    pub fn new(dialect: &'static XmlDialect) -> Self {
        let [more, last] = dialect.ends_of_value().map(|end| regex(&end));
        let mut lark = String::new();
        for (name, end, other) in [("more", &more, &last), ("last", &last, &more)] {
            let _ = write!(
                lark,
                "{name}[lazy]: /(.|\\n)*{end}/\n\
                 only_{name}[lazy]: /(.|\\n)*{end}/ & ~/(.|\\n)*{other}(.|\\n)*/\n"
            );
        }
        Self { dialect, lark, copies: TEXT, steps: MOST_STEPS }
    }

    /// Writes the rules of calls of tool number `index`, from its name on.
    ///
    /// # Errors
    /// If the schema of the tool's arguments cannot be held.
    pub fn call(&mut self, index: usize, tool: &Tool) -> Result<(), String> {
        let root = argument_schema(tool);
        let sets = alternatives(&root)?;
        let head = text(&format!("{}{}", tool.name, self.dialect.function[1]));
        let ids: Vec<String> = (0..sets.len()).map(|set| format!("{index}_{set}")).collect();
        let bodies: Vec<String> = ids.iter().map(|id| format!("b_{id}")).collect();
        let _ = writeln!(self.lark, "call_{index}: {head} ({})", bodies.join(" | "));
        for (set, id) in sets.iter().zip(ids) {
            self.set(&Writing { tool, root: &root, set, id })?;
        }
        Ok(())
    }

    fn set(&mut self, writing: &Writing<'_>) -> Result<(), String> {
        let Writing { set, id, .. } = writing;
        let [marker, close] = self.dialect.after_value();
        let mut bodies = Vec::new();
        if may_end(&set.named) {
            bodies.push(text(&format!("{close}{}", self.dialect.end_of_call())));
        }
        if may_go_on(set, 0) {
            bodies.push(format!("{} r_{id}_0", text(marker)));
        }
        let _ = writeln!(self.lark, "b_{id}: {}", bodies.join(" | "));
        for (place, parameter) in set.named.iter().enumerate() {
            let goes_on = may_go_on(set, place + 1);
            let skip = if parameter.required || !goes_on {
                String::new()
            } else {
                format!(" | r_{id}_{}", place + 1)
            };
            let _ = writeln!(self.lark, "r_{id}_{place}: p_{id}_{place}{skip}");
            self.parameter(writing, parameter, place)?;
        }
        let Some(others) = &set.others else { return Ok(()) };
        let place = set.named.len();
        let other = Parameter { name: "", schemas: others.clone(), required: false };
        let _ = writeln!(self.lark, "r_{id}_{place}: p_{id}_{place}");
        self.parameter(writing, &other, place)
    }

    /// Writes a parameter and what follows it. The one without a name stands for all that the schema does
    /// not name.
    fn parameter(
        &mut self,
        writing: &Writing<'_>,
        parameter: &Parameter<'_>,
        place: usize,
    ) -> Result<(), String> {
        let Writing { tool, root, set, id } = writing;
        let after = self.dialect.parameter[1];
        let head = match parameter.name {
            "" => format!("N_{id}"),
            name => text(&format!("{name}{after}")),
        };
        if parameter.name.is_empty() {
            let names: Vec<String> = set.named.iter().map(|named| regex(named.name)).collect();
            let after = regex(after);
            let except = if names.is_empty() {
                String::new()
            } else {
                format!(" & ~/({}){after}/", names.join("|"))
            };
            let _ = writeln!(self.lark, "N_{id}: /[^<>\\n]+{after}/{except}");
        } else if parameter.name.contains(['<', '>', '\n']) {
            return Err(format!(
                "the name of the parameter {:?} cannot stand in XML",
                parameter.name
            ));
        }
        let next = (place + 1).min(set.named.len());
        let follows = Follows {
            rule: may_go_on(set, next).then(|| format!("r_{id}_{next}")),
            ends: may_end(set.named.get(next..).unwrap_or_default()),
        };
        let values = Values::of_schemas(&parameter.schemas, root, &mut self.steps);
        if self.steps == 0 {
            return Err("the schema of its parameters is too complex".into());
        }
        let value = match values.listed() {
            _ if !values.have_texts() => {
                let schema = match parameter.schemas[..] {
                    [schema] => schema.clone(),
                    _ => json!({"allOf": parameter.schemas}),
                };
                let schema = Definitions::new(root, &mut self.copies).whole(&schema)?;
                let schema = grammar_schema(tool, schema)?;
                let _ = writeln!(self.lark, "v_{id}_{place}: %json {schema}");
                self.followed(&format!("v_{id}_{place}"), &follows)
            }
            Some((texts, others)) => {
                let texts = texts.into_iter().map(text).chain(others.into_iter().map(written));
                let texts = texts.collect::<Vec<_>>().join(" | ");
                self.followed(&format!("({texts})"), &follows)
            }
            None => match values.constrained.filter(|_| tool.strict) {
                None => follows.text(self.dialect),
                Some(keyword) => {
                    return Err(format!(
                        "`{keyword}` of the parameter `{}` cannot be enforced in this model's calls, \
                         where texts stand without quotes: leave it out, or `strict`",
                        parameter.name
                    ));
                }
            },
        };
        let _ = writeln!(self.lark, "p_{id}_{place}: {head} {value}");
        if self.lark.len() > TEXT {
            Err(format!("the grammar of its calls has more than {TEXT} bytes"))
        } else {
            Ok(())
        }
    }

    /// Returns the symbols of a value and of what follows it.
    fn followed(&self, value: &str, follows: &Follows) -> String {
        let [more, last] = self.dialect.ends_of_value().map(|end| text(&end));
        let more = follows.rule.as_ref().map(|rule| format!("{more} {rule}"));
        let last = follows.ends.then(|| format!("{last} {}", text(self.dialect.end_of_call())));
        let ends: Vec<String> = more.into_iter().chain(last).collect();
        format!("{value} ({})", ends.join(" | "))
    }
}

/// Texts that may follow a value.
struct Follows {
    /// Rule of the parameters that may follow; `None` if none may.
    rule: Option<String>,
    /// True if the call may end.
    ends: bool,
}

impl Follows {
    /// Returns the symbols of any text and of what follows it.
    fn text(&self, dialect: &XmlDialect) -> String {
        let only = if self.rule.is_some() && self.ends { "" } else { "only_" };
        let more = self.rule.as_ref().map(|rule| format!("{only}more {rule}"));
        let last = self.ends.then(|| format!("{only}last {}", text(dialect.end_of_call())));
        format!("({})", more.into_iter().chain(last).collect::<Vec<_>>().join(" | "))
    }
}

/// Returns true if a call may end before these parameters.
fn may_end(rest: &[Parameter<'_>]) -> bool {
    !rest.iter().any(|parameter| parameter.required)
}

/// Returns true if a parameter may follow the first ones.
fn may_go_on(set: &Parameters<'_>, place: usize) -> bool {
    place < set.named.len() || set.others.is_some()
}

/// Returns the symbols of a value that is no text: JSON, or as templates write it.
fn written(value: &Value) -> String {
    let json = text(&value.to_string());
    match value {
        Value::Null => format!("{json} | \"None\""),
        Value::Bool(true) => format!("{json} | \"True\""),
        Value::Bool(false) => format!("{json} | \"False\""),
        _ => json,
    }
}
