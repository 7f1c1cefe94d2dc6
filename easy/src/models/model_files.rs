//! Selects the files of a repository or directory that make up a model.

use anyhow::{bail, ensure};

/// Files that the loader reads next to the weights; the first one is required.
pub const SIDE_FILES: [&str; 9] = [
    "config.json",
    "tokenizer.json",
    "tokenizer.model",
    "added_tokens.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "generation_config.json",
    "dlm_config.json",
];

/// Folder of the adapter that some models have for drafts.
pub const ADAPTER: &str = "linear_spec_lora";
/// Files of the adapter. The loader refuses weights without a configuration.
const ADAPTER_FILES: [&str; 2] =
    ["linear_spec_lora/adapter_config.json", "linear_spec_lora/adapter_model.safetensors"];

/// Number of files that a message names.
const LISTED: usize = 50;

/// The model that the user asked for.
#[cfg_attr(not(feature = "hub"), allow(dead_code, reason = "only hub ids name a part"))]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// The only model that is there.
    Any,
    /// The GGUF file with this part in its name: `Q2_0` is `m-Q2_0.gguf`, not `m-PQ2_0.gguf`.
    Quant(String),
    /// Exactly this GGUF file.
    File(String),
}

/// Selects the files to load out of all that exist.
pub fn select(names: &[String], wanted: &Wanted) -> anyhow::Result<Vec<String>> {
    match wanted {
        Wanted::File(name) => {
            ensure!(names.contains(name), "there is no {name}; {}", offer(&ggufs(names)));
            Ok(parts(names, name))
        }
        Wanted::Quant(quant) => {
            let part = |p: &str| p.eq_ignore_ascii_case(quant);
            let mut fits = ggufs(names);
            fits.retain(|n| n.split(['-', '.', '/']).any(part));
            ensure!(!fits.is_empty(), "no GGUF file is {quant}; {}", offer(&ggufs(names)));
            one_gguf(fits)
        }
        Wanted::Any => any(names),
    }
}

/// Returns the files of the model that `file`, one of `names`, is a part of.
pub fn files_of_model(names: &[String], file: &str) -> Vec<String> {
    match any(names) {
        Ok(picked) if picked.iter().any(|n| n == file) => picked,
        // It is not the model that the whole directory stands for.
        _ => side_files(names).chain([file.into()]).collect(),
    }
}

fn side_files(names: &[String]) -> impl Iterator<Item = String> {
    let has = |name: &str| names.iter().any(|n| n == name);
    // What only a directory without `tokenizer.json` needs.
    let json = has("tokenizer.json");
    let superseded =
        move |name: &str| json && ["tokenizer.model", "added_tokens.json"].contains(&name);
    let all = SIDE_FILES.into_iter().chain(ADAPTER_FILES);
    all.filter(move |s| has(s) && !superseded(s)).map(String::from)
}

fn any(names: &[String]) -> anyhow::Result<Vec<String>> {
    let top: Vec<&String> = names.iter().filter(|n| !n.contains('/')).collect();
    let mut picked: Vec<String> = side_files(names).collect();
    let tensors: Vec<&String> =
        top.iter().copied().filter(|n| n.ends_with(".safetensors")).collect();

    if let Some(index) = top.iter().find(|n| n.ends_with(".safetensors.index.json")) {
        let stem = index.trim_end_matches(".safetensors.index.json");
        let shard = |n: &&&String| n.strip_prefix(stem).is_some_and(|rest| rest.starts_with('-'));
        picked.push((*index).clone());
        picked.extend(tensors.iter().filter(shard).map(|n| (*n).clone()));
        return Ok(picked);
    }
    if !tensors.is_empty() {
        let plain = tensors.iter().filter(|n| **n == "model.safetensors");
        let plain: Vec<String> = plain.map(|n| (*n).clone()).collect();
        let all = || tensors.iter().map(|n| (*n).clone()).collect();
        picked.extend(one(if plain.is_empty() { all() } else { plain })?);
        return Ok(picked);
    }
    let found = if names.is_empty() { "nothing".into() } else { list(names) };
    let ggufs = ggufs(names);
    ensure!(
        !ggufs.is_empty(),
        "no weights: expected model.safetensors, model.safetensors.index.json with its shards, or \
         a .gguf file; found {found}"
    );
    one_gguf(ggufs)
}

/// GGUF files; without vision encoders (`mmproj`), unless there are no others.
fn ggufs(names: &[String]) -> Vec<String> {
    let all = names.iter().filter(|n| n.to_lowercase().ends_with(".gguf"));
    let (vision, models): (Vec<_>, Vec<_>) =
        all.cloned().partition(|n| n.to_lowercase().contains("mmproj"));
    if models.is_empty() { vision } else { models }
}

/// The name of a split file (`m-00001-of-00003.gguf`) without the number of its part.
fn split_name(name: &str) -> Option<(&str, &str)> {
    const NUMBER: usize = "00001".len();
    let (rest, count) = name.strip_suffix(".gguf")?.rsplit_once("-of-")?;
    let (stem, number) = rest.rsplit_once('-')?;
    let is_number = |text: &str| text.len() == NUMBER && text.bytes().all(|b| b.is_ascii_digit());
    (is_number(number) && is_number(count)).then_some((stem, count))
}

/// Returns true for a part of a split file.
pub fn is_split(name: &str) -> bool {
    split_name(name).is_some()
}

/// All parts of a split file, or a whole file alone.
pub fn parts(names: &[String], name: &str) -> Vec<String> {
    match split_name(name) {
        None => vec![name.into()],
        split => names.iter().filter(|n| split_name(n) == split).cloned().collect(),
    }
}

/// The only model of these GGUF files, which may be split.
fn one_gguf(ggufs: Vec<String>) -> anyhow::Result<Vec<String>> {
    match ggufs.first() {
        Some(first) if parts(&ggufs, first).len() == ggufs.len() => Ok(ggufs),
        _ => one(ggufs),
    }
}

fn one(names: Vec<String>) -> anyhow::Result<Vec<String>> {
    if names.len() > 1 {
        bail!("several models: name one of {}", list(&names));
    }
    Ok(names)
}

fn offer(names: &[String]) -> String {
    if names.is_empty() { "it has no GGUF files".into() } else { format!("it has {}", list(names)) }
}

/// Names files in a message. A repository may have any number.
pub fn list(names: &[String]) -> String {
    let shown = &names[..names.len().min(LISTED)];
    let more = match names.len() - shown.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    shown.join(", ") + &more
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pick(names: &[&str], wanted: &Wanted) -> Result<Vec<String>, String> {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        select(&names, wanted).map_err(|e| e.to_string())
    }

    #[test]
    fn a_plain_model() {
        let names = ["README.md", "model.safetensors", "config.json", "consolidated.safetensors"];
        assert_eq!(
            pick(&names, &Wanted::Any).expect("found"),
            ["config.json", "model.safetensors"]
        );
    }

    #[test]
    fn shards_of_the_index_only() {
        let names = [
            "config.json",
            "model-00001-of-00002.safetensors",
            "model-00002-of-00002.safetensors",
            "model.safetensors.index.json",
            "original/model.safetensors",
            "other.safetensors",
        ];
        let picked = pick(&names, &Wanted::Any).expect("found");
        assert_eq!(picked, [names[0], names[3], names[1], names[2]]);
    }

    #[test]
    fn a_file_brings_what_belongs_to_it() {
        let names = [
            "config.json",
            "model-00001-of-00002.safetensors",
            "model-00002-of-00002.safetensors",
            "model.safetensors.index.json",
            "other.safetensors",
        ];
        let owned = names.map(String::from);
        assert_eq!(files_of_model(&owned, names[2]), [names[0], names[3], names[1], names[2]]);
        assert_eq!(files_of_model(&owned, names[4]), [names[0], names[4]]);
        let two = ["a.safetensors", "b.safetensors", "tokenizer.json"].map(String::from);
        assert_eq!(files_of_model(&two, "b.safetensors"), ["tokenizer.json", "b.safetensors"]);
    }

    #[test]
    fn an_adapter_for_drafts_comes_with_both_of_its_files() {
        let names =
            ["config.json", ADAPTER_FILES[0], ADAPTER_FILES[1], "model.safetensors", "x/y.json"];
        assert_eq!(pick(&names, &Wanted::Any).expect("found"), names[..4]);
        let names = ["config.json", ADAPTER_FILES[1], "model.safetensors"];
        assert_eq!(pick(&names, &Wanted::Any).expect("found"), names);
    }

    #[test]
    fn a_split_model_is_one_and_its_vision_encoder_is_none() {
        let names = ["m-Q8_0-00001-of-00002.gguf", "m-Q8_0-00002-of-00002.gguf", "mmproj-f16.gguf"];
        for wanted in [Wanted::Any, Wanted::Quant("q8_0".into()), Wanted::File(names[1].into())] {
            assert_eq!(pick(&names, &wanted).expect("found"), names[..2], "{wanted:?}");
        }
        assert_eq!(pick(&names[2..], &Wanted::Any).expect("named"), names[2..]);
        let two = ["a-00001-of-00002.gguf", "a-00002-of-00002.gguf", "b.gguf"];
        assert!(pick(&two, &Wanted::Any).expect_err("two models").contains("several models"));
    }

    #[test]
    fn a_tokenizer_model_where_there_is_no_tokenizer_json() {
        let names = ["config.json", "model.safetensors", "tokenizer.model", "tokenizer.json"];
        let picked = pick(&names[..3], &Wanted::Any).expect("found");
        assert_eq!(picked, ["config.json", "tokenizer.model", "model.safetensors"]);
        let picked = pick(&names, &Wanted::Any).expect("found");
        assert_eq!(picked, ["config.json", "tokenizer.json", "model.safetensors"]);
    }

    #[test]
    fn gguf_by_quant_or_name_or_alone() {
        let names = ["m-F16.gguf", "m-Q2_0.gguf", "m-PQ2_0.gguf", "README.md"];
        let quant = Wanted::Quant("q2_0".into());
        assert_eq!(pick(&names, &quant).expect("found"), ["m-Q2_0.gguf"]);
        let file = Wanted::File("m-F16.gguf".into());
        assert_eq!(pick(&names, &file).expect("found"), ["m-F16.gguf"]);
        assert_eq!(pick(&["m.gguf"], &Wanted::Any).expect("found"), ["m.gguf"]);
        let error = pick(&names, &Wanted::Any).expect_err("two to choose from");
        assert!(error.contains("m-F16.gguf, m-Q2_0.gguf"), "{error}");
        let error = pick(&names, &Wanted::Quant("TQ1".into())).expect_err("not there");
        assert!(error.contains("it has m-F16.gguf"), "{error}");
    }

    #[test]
    fn no_weights_says_what_was_found() {
        let error = pick(&["pytorch_model.bin"], &Wanted::Any).expect_err("no weights");
        assert!(
            error.contains("pytorch_model.bin") && error.contains("model.safetensors"),
            "{error}"
        );
        let many: Vec<String> = (0..1_000_000).map(|i| format!("{i}.bin")).collect();
        let error = select(&many, &Wanted::Any).expect_err("no weights").to_string();
        assert!(error.len() < 2000 && error.ends_with("49.bin and 999950 more"), "{error}");
    }
}
