//! Names of models on the hub.

use crate::models::model_files::Wanted;

/// A repository and which of its models.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubId {
    /// `org/name`.
    pub repo: String,
    /// Selects a model in the repository.
    pub wanted: Wanted,
}

impl HubId {
    /// Reads `org/name`, `org/name:QUANT` or `org/name/path/file.gguf`.
    pub fn parse(text: &str) -> Option<Self> {
        let (path, quant) = match text.split_once(':') {
            Some((path, quant)) => (path, Some(quant)),
            None => (text, None),
        };
        let parts: Vec<&str> = path.split('/').collect();
        let ok = |p: &&str| {
            let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
            !p.is_empty() && !p.starts_with('.') && p.chars().all(plain)
        };
        let ([org, name, file @ ..], true) = (&parts[..], parts.iter().all(ok)) else {
            return None;
        };
        // The hub has no such names, and the cache could not tell `a/b--c` from `a--b/c`.
        if [org, name].iter().any(|part| part.contains("--") || part.contains("..")) {
            return None;
        }
        let is_gguf = |f: &str| f.to_ascii_lowercase().ends_with(".gguf");
        let wanted = match (file, quant) {
            // `models/x.gguf` is a path that does not exist, not a repository.
            ([], None) if is_gguf(name) || name.ends_with(".safetensors") => return None,
            ([], None) => Wanted::Any,
            ([], Some(quant)) if !quant.is_empty() => Wanted::Quant(quant.into()),
            ([.., last], None) if is_gguf(last) => Wanted::File(file.join("/")),
            _ => return None,
        };
        Some(Self { repo: format!("{org}/{name}"), wanted })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids() {
        let id = |text| HubId::parse(text).map(|i| (i.repo, i.wanted));
        let repo = || "org/name-1.58_B".to_string();
        assert_eq!(id("org/name-1.58_B"), Some((repo(), Wanted::Any)));
        assert_eq!(id("org/name-1.58_B:Q2_0"), Some((repo(), Wanted::Quant("Q2_0".into()))));
        let file = Wanted::File("a/m.gguf".into());
        assert_eq!(id("org/name-1.58_B/a/m.gguf"), Some((repo(), file)));
    }

    #[test]
    fn no_ids() {
        for text in [
            "name",
            "/a/b",
            "./a/b",
            "../a",
            "a/b/c",
            "a//b",
            "a/b:",
            "a/x.gguf",
            "~/a",
            "a b/c",
            "models/x.safetensors",
            "a/b/m.gguf:Q4",
            "a--b/c",
            "a/b--c",
            "a/b..c",
            "C:\\models\\x",
            "",
        ] {
            assert_eq!(HubId::parse(text), None, "{text}");
        }
    }
}
