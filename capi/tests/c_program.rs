//! Compiles C programs against the header and the library, and runs them.
#![cfg(all(unix, feature = "default-model"))]

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
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

/// The folder of the compiled library: `target/<profile>/deps`.
fn libraries() -> PathBuf {
    let test = std::env::current_exe().expect("a path");
    test.parent().expect("a folder").to_owned()
}

/// Compiles a program and returns its output.
fn output(source: &Path) -> String {
    let libraries = libraries();
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

/// The commands of the page run where `story.c` is, far from the checkout. What cargo would build is
/// there already.
#[test]
fn the_documented_commands_print_what_the_page_says_from_any_folder() {
    let page = fs::read_to_string(root().join("../docs/c.md")).expect("there");
    let block = |language: &str| {
        let (_, rest) = page.split_once(&format!("```{language}\n")).expect("a block");
        rest.split_once("```").expect("its end").0
    };
    let home = tempfile::tempdir().expect("a folder");
    let path = |name: &str| home.path().join(name);
    for folder in ["bin", "wrinklefree/target", "somewhere else"] {
        fs::create_dir_all(path(folder)).expect("made");
    }
    symlink(root(), path("wrinklefree/capi")).expect("linked");
    symlink(libraries(), path("wrinklefree/target/release")).expect("linked");
    let cargo = "#!/bin/sh\nprintf '%s ' \"$@\" > \"$HOME/arguments\"\n";
    fs::write(path("bin/cargo"), cargo).expect("written");
    fs::set_permissions(path("bin/cargo"), Permissions::from_mode(0o755)).expect("set");
    fs::write(path("somewhere else/story.c"), block("c")).expect("written");
    let search = std::env::var("PATH").expect("there");
    let ran = Command::new("sh")
        .args(["-e", "-c", block("sh")])
        .current_dir(path("somewhere else"))
        .env("HOME", home.path())
        .env("PATH", format!("{}:{search}", path("bin").display()))
        .output()
        .expect("runs");
    let error = String::from_utf8_lossy(&ran.stderr);
    assert_eq!(String::from_utf8_lossy(&ran.stdout), block("text"), "{error}");
    let arguments = fs::read_to_string(path("arguments")).expect("written");
    let manifest = path("wrinklefree/Cargo.toml");
    assert!(arguments.contains(&format!("--manifest-path {} ", manifest.display())), "{arguments}");
}
