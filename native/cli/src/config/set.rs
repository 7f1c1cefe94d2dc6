//! Writes keys to a configuration file.

use super::Layers;
use crate::atomic_file::Draft;
use anyhow::Context;
use std::fs;
use std::io::{ErrorKind, Write};
use std::path::Path;

/// Sets keys outside of sections in the file at `path`, or in a new one. Everything else, also
/// comments, stays.
///
/// # Errors
/// If the file cannot be read or written, or is no configuration.
pub fn set(path: &Path, keys: &[(&str, String)]) -> anyhow::Result<()> {
    let old = match fs::read_to_string(path) {
        Ok(text) => {
            Layers::read(Some(path))?;
            text
        }
        Err(e) if e.kind() == ErrorKind::NotFound => String::new(),
        Err(e) => return Err(e).with_context(|| format!("cannot read {}", path.display())),
    };
    let mut draft = Draft::new(path, true)?;
    let new = keys.iter().fold(old, |text, (key, value)| with(&text, key, value));
    draft.write_all(new.as_bytes()).with_context(|| format!("cannot write {}", path.display()))?;
    draft.keep()
}

/// Replaces or adds the line that sets the key.
fn with(text: &str, key: &str, value: &str) -> String {
    let sets = |line: &str| line.strip_prefix(key).is_some_and(|rest| rest.starts_with(':'));
    let mut lines: Vec<String> = text.lines().map(String::from).collect();
    match lines.iter_mut().find(|line| sets(line)) {
        Some(line) => {
            let comment = line.find(" #").map_or(String::new(), |at| line[at..].to_string());
            *line = format!("{key}: {value}{comment}");
        }
        // At the top: the end may belong to a section.
        None => lines.insert(0, format!("{key}: {value}")),
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_changed_where_it_stands() {
        let text = "# mine\nthreads: null # all\nkv:\n  dtype: int8\n";
        let changed = "# mine\nthreads: 4 # all\nkv:\n  dtype: int8\n";
        assert_eq!(with(text, "threads", "4"), changed);
        assert_eq!(with(changed, "host", "::1"), format!("host: ::1\n{changed}"));
        assert_eq!(with("", "threads", "4"), "threads: 4\n");
        assert_eq!(with("threads_max: 1\n", "threads", "4"), "threads: 4\nthreads_max: 1\n");
    }

    #[test]
    fn the_example_stays_a_configuration() {
        let folder = tempfile::tempdir().expect("a directory");
        let path = folder.path().join("wf.yaml");
        set(&path, &[("threads", "3".into())]).expect("a new file");
        assert_eq!(fs::read_to_string(&path).expect("there"), "threads: 3\n");
        fs::write(&path, super::super::example()).expect("written");
        set(&path, &[("threads", "3".into()), ("pin_threads", "true".into())]).expect("set");
        let text = fs::read_to_string(&path).expect("there");
        assert!(
            text.contains("\nthreads: 3\n") && text.contains("\npin_threads: true\n"),
            "{text}"
        );
        fs::write(&path, "thread: 1\n").expect("written");
        let error = set(&path, &[("threads", "3".into())]).expect_err("a wrong key");
        assert!(error.to_string().contains("thread"), "{error:#}");
    }
}
