//! Completion scripts, sourced by the shells that they are for.

use crate::common::run;
use std::path::Path;
use std::process::Command;
use std::{env, fs};

/// Completions of bash for the last of the words: its function gets them in variables.
const BASH: &str = r#"
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
function=$(complete -p wf-run | sed 's/.*-F \([^ ]*\).*/\1/')
$function "$1" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
printf '%s\n' "${COMPREPLY[@]}"
"#;

/// Completions that zsh lists after a tab, in a terminal of its own.
const ZSH: &str = r#"
script=$1; shift
zmodload zsh/zpty
zpty z zsh -f -i
zpty -w z "fpath=(${script:h} \$fpath); autoload -Uz compinit; compinit -u -D; LISTMAX=1000; PS1=REA''DY"
zpty -r z shown '*READY*'
zpty -w -n z "$*"$'\t\x15'
zpty -w z "print EN''DED"
zpty -r z shown '*ENDED*'
print -r -- "$shown"
zpty -d z
"#;

/// Completions of fish.
const FISH: &str = r#"
source $argv[1]
complete -C "$argv[2..]" | cut -f 1
"#;

/// A shell: its name, the name of a script in the folder where it looks, and how it is asked.
const SHELLS: [(&str, &[&str], &str, &str); 3] = [
    ("bash", &["--norc", "-c"], "wf-run", BASH),
    ("zsh", &["-f", "-c"], "_wf-run", ZSH),
    ("fish", &["--no-config", "-c"], "wf-run.fish", FISH),
];

/// Returns what a shell offers at the end of a line of words.
fn offered(shell: (&str, &[&str], &str, &str), folder: &Path, words: &[&str]) -> String {
    let (name, options, file, asks) = shell;
    let mut asked = Command::new(name);
    asked.args(options).arg(asks);
    // The first argument of `-c` is the name of the script, except in fish.
    if name != "fish" {
        asked.arg(name);
    }
    asked.arg(folder.join(file)).args(words).env("TERM", "xterm").env("HOME", folder);
    let output = asked.output().expect("the shell starts");
    assert!(output.stderr.is_empty(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    anstream::adapter::strip_str(&text).to_string()
}

/// Needs bash, zsh and fish: a shell that is missing is left out, unless REQUIRE_SHELLS is set.
#[test]
fn shells_complete_commands_flags_and_values() {
    let folder = tempfile::tempdir().expect("a directory");
    for shell @ (name, _, file, _) in SHELLS {
        if Command::new(name).arg("--version").output().is_err() {
            assert!(env::var_os("REQUIRE_SHELLS").is_none(), "{name} is not installed");
            continue;
        }
        let script = run(&["completions", name]).ends(0, &[]).stdout;
        fs::write(folder.path().join(file), script).expect("written");
        for (words, wanted) in [
            (&["wf-run", ""][..], &["generate", "serve", "eval", "completions"][..]),
            (&["wf-run", "generate", "--max-"], &["--max-tokens"]),
            (&["wf-run", "generate", "--kv-dtype", ""], &["bf16", "fp8-e4m3", "int8"]),
            (&["wf-run", "serve", "--decode-mode", ""], &["verify", "adaptive"]),
            (&["wf-run", "eval", "quality", "--draft", ""], &["ngram", "denoise"]),
            (&["wf-run", "convert", "--to", ""], &["packed", "gguf", "hf"]),
            (&["wf-run", "completions", ""], &["bash", "zsh", "fish"]),
        ] {
            let offered = offered(shell, folder.path(), words);
            for word in wanted {
                assert!(offered.contains(word), "{name}: {words:?} lacks {word}: {offered}");
            }
            assert!(!offered.contains("check-grammars"), "{name}: {words:?}: {offered}");
        }
    }
}
