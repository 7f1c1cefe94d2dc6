//! Tells the program the commit and the target that it is built from, for `wf-run --version`.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    // Not WF_…: under `cargo run` these reach the program, which reads such variables as settings.
    let target = env::var("TARGET").unwrap_or_else(|_| "unknown".into());
    println!("cargo:rustc-env=BUILT_TARGET={target}");
    println!("cargo:rustc-env=BUILT_COMMIT={}", commit());
}

/// Returns the variable `BUILD_COMMIT`, for builds without a repository, or the commit that is
/// checked out, or `unknown`.
fn commit() -> String {
    println!("cargo:rerun-if-env-changed=BUILD_COMMIT");
    println!("cargo:rerun-if-changed=build.rs");
    let given = env::var("BUILD_COMMIT").ok().filter(|commit| !commit.trim().is_empty());
    let named = given.or_else(packaged).or_else(checked_out).unwrap_or_else(|| "unknown".into());
    named.trim().chars().filter(char::is_ascii_alphanumeric).take(12).collect()
}

/// Returns the commit of a published crate, where cargo writes it into a file.
fn packaged() -> Option<String> {
    let text = std::fs::read_to_string(".cargo_vcs_info.json").ok()?;
    let (_, rest) = text.split_once("\"sha1\": \"")?;
    Some(rest.split('"').next()?.into())
}

fn checked_out() -> Option<String> {
    // An unpacked archive inside another repository has none of its commits.
    let own = Path::new(&env::var_os("CARGO_MANIFEST_DIR")?).parent()?.canonicalize().ok()?;
    let top = PathBuf::from(git(&["rev-parse", "--show-toplevel"])?).canonicalize().ok()?;
    if top != own {
        return None;
    }
    // It grows with every commit and every checkout.
    let log = env::current_dir().ok()?.join(git(&["rev-parse", "--git-path", "logs/HEAD"])?);
    if log.exists() {
        println!("cargo:rerun-if-changed={}", log.display());
    }
    git(&["rev-parse", "--short=12", "HEAD"])
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned()).filter(|text| !text.is_empty())
}
