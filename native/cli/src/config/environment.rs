//! The environment: `WF_<KEY>` for every key, and `MODEL_PATH`.

use super::keys::Key;
use super::{Layers, Said, WF_CONFIG, check};
use crate::suggest::{did_you_mean, nearest};
use std::ffi::{OsStr, OsString};

/// The variable that names the model for other programs too; `WF_MODEL_PATH` takes precedence.
const MODEL_PATH: &str = "MODEL_PATH";

/// Variables with our prefix that are not keys.
const OTHERS: [&str; 3] = [WF_CONFIG, "WF_ISA", "WF_LOG"];

/// Reads settings from variables, and warns of unknown ones with our prefix. Empty ones are ignored.
///
/// # Errors
/// Names the variable.
pub fn read(
    keys: &[Key],
    variables: impl Iterator<Item = (OsString, OsString)>,
) -> Result<Layers, String> {
    let mut layers = Layers::default();
    let ours = variables.filter_map(|(name, value)| Some((name.into_string().ok()?, value)));
    let ours = ours.filter(|(name, _)| name.starts_with("WF_") || name == MODEL_PATH);
    let mut ours: Vec<_> = ours.filter(|(_, value)| !value.is_empty()).collect();
    // MODEL_PATH comes first, so WF_MODEL_PATH replaces it.
    ours.sort();
    for (name, value) in ours {
        let own = if name == MODEL_PATH { "WF_MODEL_PATH" } else { &name };
        let Some(key) = keys.iter().find(|key| key.variable() == own) else {
            layers.warnings.extend(warning(keys, &name));
            continue;
        };
        let values = if key.is_list() {
            list(&value).ok_or_else(|| format!("{name} is not UTF-8"))?
        } else {
            vec![value]
        };
        check(key, &values).map_err(|e| format!("{name}: {e}"))?;
        layers.said.insert(key.id().into(), Said { values, source: name });
    }
    Ok(layers)
}

/// Splits a list at its commas.
fn list(value: &OsStr) -> Option<Vec<OsString>> {
    Some(value.to_str()?.split(',').map(|v| v.trim().into()).collect())
}

fn warning(keys: &[Key], name: &str) -> Option<String> {
    if OTHERS.contains(&name) {
        return None;
    }
    let known: Vec<String> = keys.iter().map(Key::variable).collect();
    let meant = nearest(name, known.iter().map(String::as_str).chain(OTHERS));
    Some(format!("the variable {name} sets nothing{}", did_you_mean(meant)))
}
