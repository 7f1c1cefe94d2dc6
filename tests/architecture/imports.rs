//! Imports between files: no circles, and one direction between the rooms of the server.

use super::{code, root, sources};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Folders with the sources of a crate each.
const CRATES: [&str; 10] = [
    "src",
    "compute/src",
    "easy/src",
    "native/cli/src",
    "native/laboratory/src",
    "native/server/src",
    "native/src",
    "capi/src",
    "python/src",
    "web/wasm/src",
];

/// The rooms of the server, `native/server/src/`, and those that each may import.
const SERVER_ROOMS: [(&str, &[&str]); 15] = [
    ("error", &[]),
    ("ids", &[]),
    ("ignored", &[]),
    ("page", &[]),
    ("demo", &[]),
    ("time", &[]),
    ("access", &["error"]),
    ("transport", &["access", "error"]),
    ("operation", &["error", "ids"]),
    ("engine", &["access", "error", "operation"]),
    ("registry", &["access", "engine", "error", "operation", "time"]),
    ("response_store", &["access", "engine"]),
    ("state", &["access", "engine", "error", "operation", "registry", "response_store"]),
    ("reload", &["access", "state", "transport"]),
    (
        "api",
        &[
            "access",
            "engine",
            "error",
            "ids",
            "ignored",
            "operation",
            "page",
            "registry",
            "response_store",
            "state",
            "time",
        ],
    ),
];

/// Names of files within a crate, as `format/gguf` for `format/gguf/mod.rs`, and the files that each imports.
type Imports = BTreeMap<String, BTreeSet<String>>;

/// The name of a file in the crate at `folder`; the root has none.
fn name(path: &Path, folder: &str) -> String {
    let inside = path.strip_prefix(root().join(folder)).unwrap().with_extension("");
    let text = inside.to_str().unwrap().replace('\\', "/");
    let text = text.strip_suffix("/mod").unwrap_or(&text);
    if ["lib", "main"].contains(&text) { String::new() } else { text.to_owned() }
}

/// The paths of a tree of imports: `a::{b, c::D}` has `a::b` and `a::c::D`.
fn paths(tree: &str) -> Vec<String> {
    let Some((head, rest)) = tree.split_once('{') else { return vec![tree.trim().into()] };
    let inner = rest.rsplit_once('}').map_or(rest, |(inner, _)| inner);
    let (mut depth, mut parts) = (0, vec![String::new()]);
    for c in inner.chars() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if c == ',' && depth == 0 {
            parts.push(String::new());
        } else {
            parts.last_mut().unwrap().push(c);
        }
    }
    let parts = parts.iter().map(|part| part.trim()).filter(|part| !part.is_empty());
    let whole = |path: String| match path.as_str() {
        "self" => head.trim().trim_end_matches("::").to_owned(),
        path => format!("{}{path}", head.trim()),
    };
    parts.flat_map(paths).map(whole).collect()
}

/// The file that an import of the file `from` leads to; `None` for other crates and for files that `from`
/// lies in, whose private items are its own.
fn target(path: &str, from: &str, files: &BTreeSet<String>) -> Option<String> {
    let mut parts: Vec<&str> = path.split("::").map(str::trim).collect();
    let mut place: Vec<&str> = from.split('/').filter(|part| !part.is_empty()).collect();
    match parts[0] {
        "crate" => {
            place.clear();
            parts.remove(0);
        }
        "super" => {
            while parts.first() == Some(&"super") {
                place.pop();
                parts.remove(0);
            }
        }
        child if files.contains(&[&place[..], &[child]].concat().join("/")) => {}
        _ => return None,
    }
    place.append(&mut parts);
    let found = (1..=place.len()).rev().map(|count| place[..count].join("/"));
    let found = found.into_iter().find(|file| files.contains(file))?;
    (found != from && !from.starts_with(&format!("{found}/"))).then_some(found)
}

/// The imports between the files of the crate at `folder`.
fn imports(folder: &str) -> Imports {
    let sources = sources(folder);
    let files: BTreeSet<String> = sources.iter().map(|(path, _)| name(path, folder)).collect();
    let of = |(path, text): &(std::path::PathBuf, String)| {
        let from = name(path, folder);
        let code = code(text);
        let statements = code.split(';').filter_map(|statement| {
            let (before, tree) = statement.rsplit_once("use ")?;
            let line = before.lines().last().unwrap_or_default().trim();
            (line.is_empty() || line.starts_with("pub")).then_some(tree)
        });
        let targets = statements.flat_map(paths).filter_map(|path| target(&path, &from, &files));
        (from.clone(), targets.collect())
    };
    sources.iter().map(of).collect()
}

/// All files that `from` reaches.
fn reached<'a>(from: &'a str, imports: &'a Imports) -> BTreeSet<&'a str> {
    let (mut found, mut open) = (BTreeSet::new(), vec![from]);
    while let Some(file) = open.pop() {
        for next in imports.get(file).into_iter().flatten() {
            if found.insert(next.as_str()) {
                open.push(next);
            }
        }
    }
    found
}

#[test]
fn no_file_imports_itself_in_a_circle() {
    for folder in CRATES {
        let imports = imports(folder);
        for file in imports.keys() {
            let reached_by = |other: &&str| reached(other, &imports).contains(file.as_str());
            let circle: Vec<&str> =
                reached(file, &imports).into_iter().filter(reached_by).collect();
            assert!(circle.is_empty(), "{folder}: a circle of imports: {circle:?}");
        }
    }
}

#[test]
fn rooms_of_the_server_import_in_one_direction() {
    let room = |file: &str| file.split('/').next().unwrap().to_owned();
    for (file, targets) in imports("native/server/src") {
        let own = room(&file);
        if own.is_empty() {
            continue; // the root starts and stops the server
        }
        let (_, allowed) = SERVER_ROOMS
            .iter()
            .find(|(name, _)| *name == own)
            .unwrap_or_else(|| panic!("server/src/{file}: the room `{own}` is not in the table"));
        for other in targets.iter().map(|target| room(target)) {
            let fits = other == own || allowed.contains(&other.as_str());
            assert!(fits, "server/src/{file}: `{own}` must not import `{other}`");
        }
    }
}

#[test]
fn trees_of_imports_are_read() {
    let tree = "a::{self, b::{C, d::E}, f as g}";
    assert_eq!(paths(tree), ["a", "a::b::C", "a::b::d::E", "a::f as g"]);
    let files = ["a", "a/b", "c"].map(String::from).into();
    assert_eq!(target("super::super::c::D", "a/b", &files).as_deref(), Some("c"));
    assert_eq!(target("b::D", "a", &files).as_deref(), Some("a/b"));
    assert_eq!(target("super::D", "a/b", &files), None);
}
