//! The architecture as tests: which layer may import which, where `unsafe`, SIMD and threads may
//! live, what the core must not touch, and how files, functions and sentences read.

mod imports;
mod promises;
mod prose;
mod size;

use std::path::{Path, PathBuf};

/// The layers of `src/` and `compute/src/`, and the layers that each may import besides itself.
const LAYERS: [(&str, &[&str]); 16] = [
    ("mem", &[]),
    ("batch_types", &[]),
    ("par", &["mem"]),
    ("loader", &["mem", "par"]),
    ("ternary", &["mem", "loader"]),
    ("matrix", &["mem", "loader", "ternary"]),
    ("kernel", &["mem", "par", "ternary", "matrix"]),
    ("format", &["mem", "loader", "ternary", "matrix", "kernel"]),
    ("cache", &["mem", "kernel", "format"]),
    ("decode", &["batch_types", "kernel"]),
    (
        "model",
        &[
            "mem",
            "par",
            "batch_types",
            "loader",
            "ternary",
            "matrix",
            "kernel",
            "format",
            "cache",
            "decode",
        ],
    ),
    ("text", &["format"]),
    ("engine", &["batch_types", "cache", "format", "model", "decode", "text"]),
    ("settings", &["format", "decode", "text"]),
    ("chat", &["text", "engine", "settings"]),
    ("lib", &[]),
];

/// The sources of the crates of `native/`.
const NATIVE: [&str; 4] =
    ["native/cli/src", "native/laboratory/src", "native/server/src", "native/src"];

/// The layers of `native/laboratory/src/`.
const LABORATORY_LAYERS: [(&str, &[&str]); 4] =
    [("bench", &[]), ("eval", &["bench"]), ("commands", &["bench", "eval"]), ("lib", &[])];

/// Layers that may hold `unsafe`: kernels and memory.
const UNSAFE: [&str; 3] = ["kernel", "mem", "par"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

/// Every `.rs` file under a folder, with its text.
fn sources(folder: &str) -> Vec<(PathBuf, String)> {
    files(folder, "rs")
}

/// Every file under a folder that ends in `extension`, with its text; no build output.
fn files(folder: &str, extension: &str) -> Vec<(PathBuf, String)> {
    let (mut found, mut folders) = (Vec::new(), vec![root().join(folder)]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let built = ["target", "node_modules", "dist", "pkg"];
            if built.iter().any(|folder| path.ends_with(folder)) {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == extension) {
                let text = std::fs::read_to_string(&path).unwrap();
                found.push((path, text));
            }
        }
    }
    assert!(!found.is_empty(), "{folder} has sources");
    found
}

/// Every source of the core.
fn core() -> Vec<(PathBuf, String)> {
    [sources("src"), sources("compute/src")].concat()
}

/// The layer that a file of the core belongs to.
fn layer(path: &Path) -> String {
    let inside = path.strip_prefix(root().join("compute")).or(path.strip_prefix(root())).unwrap();
    let first = inside.components().nth(1).unwrap().as_os_str().to_str().unwrap();
    first.trim_end_matches(".rs").to_owned()
}

/// The code of a file: comments and unit tests are not held to the rules.
fn code(text: &str) -> String {
    let text = text.split("#[cfg(test)]").next().unwrap();
    let lines = text.lines().map(|l| l.split("//").next().unwrap());
    lines.collect::<Vec<_>>().join("\n")
}

/// Fails where a file imports a layer that its own may not.
fn imports_point_down(path: &Path, text: &str, own: &str, layers: &[(&str, &[&str])]) {
    let (_, allowed) = layers
        .iter()
        .find(|(name, _)| *name == own)
        .unwrap_or_else(|| panic!("{}: the layer `{own}` is not in the table", path.display()));
    for import in code(text).split("crate::").skip(1) {
        let name: String =
            import.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        assert!(
            name == own || allowed.contains(&name.as_str()),
            "{}: `{own}` must not import `{name}`",
            path.display()
        );
    }
}

#[test]
fn imports_only_point_down() {
    for (path, text) in core() {
        imports_point_down(&path, &text, &layer(&path), &LAYERS);
    }
    let laboratory = "native/laboratory/src";
    for (path, text) in sources(laboratory) {
        let first = path.strip_prefix(root().join(laboratory)).unwrap().iter().next().unwrap();
        let own = first.to_str().unwrap().trim_end_matches(".rs");
        imports_point_down(&path, &text, own, &LABORATORY_LAYERS);
    }
}

#[test]
fn unsafe_lives_in_kernels_and_memory_alone() {
    for (path, text) in sources("compute/src") {
        let has = code(&text).split_whitespace().any(|w| w == "unsafe");
        let allowed = UNSAFE.contains(&layer(&path).as_str());
        assert!(!has || allowed, "{}: unsafe outside {UNSAFE:?}", path.display());
    }
    // The C interface takes pointers: `capi/src/memory.rs` follows them for these three files.
    let capi = ["src/engine.rs", "src/memory.rs", "src/request.rs"];
    let easy = ["models/mapped.rs", "machine/cores/macos.rs", "machine/cores/windows.rs"];
    let native = ["native/cli/src/malloc.rs"];
    let native = NATIVE.map(|folder| (folder, &native[..]));
    for (folder, files) in [("easy", &easy[..]), ("capi", &capi)].into_iter().chain(native) {
        for (path, text) in sources(folder) {
            let has = code(&text).split_whitespace().any(|w| w == "unsafe");
            let allowed = files.iter().any(|file| path.ends_with(file));
            assert!(!has || allowed, "{}: only {files:?} may hold unsafe", path.display());
        }
    }
    for (path, text) in [sources("web/wasm/src"), sources("python/src")].concat() {
        let has = code(&text).split_whitespace().any(|w| w == "unsafe");
        assert!(!has, "{}: the bindings do without unsafe", path.display());
    }
}

/// Files and folders that may differ between operating systems.
const OF_SYSTEMS: [&str; 8] = [
    "compute/src/kernel",
    "compute/src/mem",
    "easy/src/machine",
    "easy/src/models/hub/cache.rs",
    "easy/src/models/mapped.rs",
    "native/cli/src/malloc.rs",
    "native/cli/src/signals.rs",
    "native/cli/src/system.rs",
];

#[test]
fn operating_systems_differ_in_the_files_that_own_the_machine() {
    let folders = ["src", "compute/src", "easy/src", "capi/src", "python/src"];
    for (path, text) in folders.into_iter().chain(NATIVE).flat_map(sources) {
        let inside = path.strip_prefix(root()).unwrap();
        if OF_SYSTEMS.iter().any(|place| inside.starts_with(place)) {
            continue;
        }
        for line in code(&text).lines().filter(|line| line.contains("cfg")) {
            let named = ["unix", "windows", "target_os"].iter().find(|name| line.contains(**name));
            assert!(named.is_none(), "{}: `{}`", path.display(), line.trim());
        }
    }
}

/// The core names no system and no shell; for some words one layer is excepted.
#[test]
fn the_core_touches_no_system_and_names_no_shell() {
    for (words, exception) in [
        (&["rayon", "std::thread"][..], "par"),
        (&["target_arch", "target_feature", "std::arch"], "kernel"),
        // Memory of nobody's; files are mapped by shells.
        (&["memmap2"], "mem"),
        (&["MmapOptions", "Mmap::", "MmapMut::map_mut"], ""),
        (&["std::fs", "std::net", "std::env", "std::process", "Instant", "SystemTime"], ""),
        (&["tokio", "axum", "wasm_bindgen", "println!", "eprintln!"], ""),
    ] {
        for (path, text) in core().iter().filter(|(path, _)| layer(path) != exception) {
            for word in words {
                assert!(!code(text).contains(word), "{}: `{word}`", path.display());
            }
        }
    }
    let read = |path: &str| std::fs::read_to_string(root().join(path)).unwrap();
    let manifest = [read("Cargo.toml"), read("compute/Cargo.toml")].join("\n");
    for name in ["tokio", "axum", "wasm-bindgen", "clap", "utoipa"] {
        let is = |l: &&str| [" = {", " = \""].iter().any(|e| l.starts_with(&format!("{name}{e}")));
        // Optional: a shell may ask for the derives.
        assert!(
            manifest.lines().filter(is).all(|l| l.contains("optional = true")),
            "the core depends on {name}"
        );
    }
}

/// The macros of std panic when nobody reads what they print.
#[test]
fn the_command_line_prints_through_its_own_functions() {
    for (path, text) in ["easy/src", "capi/src"].into_iter().chain(NATIVE).flat_map(sources) {
        for word in ["print!", "println!"] {
            assert!(!code(&text).contains(word), "{}: `{word}`: use out.rs", path.display());
        }
    }
}

/// Nothing else reaches the build of the image, and a workspace without a member is none.
#[test]
fn the_image_is_built_from_every_member() {
    let read = |path: &str| std::fs::read_to_string(root().join(path)).unwrap();
    let (manifest, copied) = (read("Cargo.toml"), read("native/deploy/Dockerfile.dockerignore"));
    let members = manifest.split_once("members = [").and_then(|(_, rest)| rest.split_once(']'));
    let members =
        members.expect("a workspace").0.split(',').map(|name| name.trim().trim_matches('"'));
    for member in members.chain(["LICENSE-*", "THIRD_PARTY.md"]) {
        // A folder brings the members inside it.
        let mut folders = Path::new(member).ancestors().filter_map(Path::to_str);
        let is_copied = folders.any(|folder| copied.lines().any(|l| l == format!("!{folder}")));
        assert!(is_copied, "Dockerfile.dockerignore lacks !{member}");
    }
}
