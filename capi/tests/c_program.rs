//! Compiles C programs against the header and the library, and runs them.
#![cfg(all(unix, feature = "default-model"))]

use std::path::{Path, PathBuf};
use std::process::Command;
use wrinklefree_c::{wf_engine, wf_request};

/// Handles may be shared between threads, as the header says.
const _: fn() = || {
    fn shared<T: Send + Sync>() {}
    shared::<wf_engine>();
    shared::<wf_request>();
};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Compiles a program and returns its output.
fn output(source: &Path) -> String {
    let test = std::env::current_exe().expect("a path");
    let libraries = test.parent().expect("target/<profile>/deps");
    let folder = tempfile::tempdir().expect("a folder");
    let program: PathBuf = folder.path().join("program");
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    let compiled = Command::new(compiler)
        .args(["-std=c11", "-D_DEFAULT_SOURCE", "-Wall", "-Wextra", "-Werror", "-pedantic", "-o"])
        .args([&program, source])
        .arg(format!("-I{}", root().join("include").display()))
        .arg(format!("-L{}", libraries.display()))
        .arg(format!("-Wl,-rpath,{}", libraries.display()))
        .args(["-lwrinklefree_c", "-lpthread", "-lm"])
        .output()
        .expect("a C compiler");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let ran = Command::new(&program).output().expect("runs");
    let (out, err) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "{}: {err}{out}", ran.status);
    out.into_owned()
}

#[test]
fn a_c_program_generates_cancels_and_gets_errors() {
    let text = output(&root().join("tests/program.c"));
    assert!(text.starts_with("Once upon a time"), "{text}");
}

#[test]
fn the_documented_program_prints_what_the_page_says() {
    let page = std::fs::read_to_string(root().join("../docs/c.md")).expect("there");
    let block = |language: &str| {
        let (_, rest) = page.split_once(&format!("```{language}\n")).expect("a block");
        rest.split_once("```").expect("its end").0
    };
    let folder = tempfile::tempdir().expect("a folder");
    let source = folder.path().join("story.c");
    std::fs::write(&source, block("c")).expect("written");
    assert_eq!(output(&source), block("text"));
}
