//! Suggestions for names that are mistyped.

use wrinklefree_easy::models::OpenError;
use wrinklefree_easy::models::store::Store;

/// Returns the valid name that was probably meant.
pub fn nearest<'a>(wrong: &str, valid: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let typos = |name: &&str| strsim::damerau_levenshtein(wrong, name);
    let best = valid.min_by_key(typos)?;
    (typos(&best) <= 1 + wrong.len() / 5).then_some(best)
}

/// Returns the question whether a name was meant, to follow an error.
pub(crate) fn did_you_mean(meant: Option<&str>) -> String {
    meant.map(|meant| format!("; did you mean `{meant}`?")).unwrap_or_default()
}

/// Adds the model of the store that was probably meant to an error about a model that is not there.
pub fn explained(error: anyhow::Error, wrong: &str) -> anyhow::Error {
    let models = Store::from_env().list().unwrap_or_default();
    let known: Vec<&str> =
        models.iter().flat_map(|m| m.names.iter().chain([&m.id])).map(String::as_str).collect();
    match nearest(wrong, known.into_iter().filter(|name| *name != wrong)) {
        None => error,
        meant => anyhow::anyhow!("{error:#}{}", did_you_mean(meant)),
    }
}

/// Converts the error of a model that could not be opened.
pub fn opening(error: OpenError) -> anyhow::Error {
    match &error {
        OpenError::NotFound { model, .. } => {
            let model = model.clone();
            explained(error.into(), &model)
        }
        _ => error.into(),
    }
}
