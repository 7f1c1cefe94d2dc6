//! Models from the hub: downloads, resumption, and clear words when it does not work.

mod common;

use common::hub::{COMMIT, Hub, State};
use common::{Ran, wf_run};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const REPO: &str = "org/name";

/// A repository whose weights are no model: fetching it works, loading it does not.
fn files() -> BTreeMap<String, Vec<u8>> {
    let weights: Vec<u8> = (0..300_000u32).map(|i| (i.wrapping_mul(i) >> 7) as u8).collect();
    [
        ("config.json", b"{}".to_vec()),
        ("tokenizer.json", b"{}".to_vec()),
        ("model.safetensors", weights),
        ("README.md", b"not needed".to_vec()),
        ("consolidated.00.pth", b"not needed".to_vec()),
    ]
    .map(|(name, bytes)| (name.to_string(), bytes))
    .into()
}

fn hub() -> Hub {
    Hub::start(State { repos: [(REPO.into(), files())].into(), ..State::default() })
}

fn inspect(hub: &Hub, home: &Path, args: &[&str], variables: &[(&str, &str)]) -> Ran {
    let mut command = wf_run(&[&["inspect"], args].concat());
    hub.environment(&mut command, home).envs(variables.iter().copied());
    command.output().expect("wf-run starts").into()
}

fn snapshot(home: &Path) -> PathBuf {
    home.join("hub/models--org--name/snapshots").join(COMMIT)
}

#[track_caller]
fn assert_complete(home: &Path) {
    for (name, bytes) in files() {
        let path = snapshot(home).join(&name);
        if name == "README.md" || name == "consolidated.00.pth" {
            assert!(!path.exists(), "{name} was fetched");
        } else {
            assert!(std::fs::read(path).expect("a file") == bytes, "{name} differs");
        }
    }
}

#[test]
fn fetches_what_matters_once() {
    let (hub, home) = (hub(), tempfile::tempdir().expect("a directory"));
    inspect(&hub, home.path(), &[REPO], &[])
        .ends(1, &["downloading model.safetensors (293.0 KiB)"]);
    assert_complete(home.path());
    assert!(hub.log().iter().any(|l| l.contains("/resolve/main/model.safetensors")));

    let again = inspect(&hub, home.path(), &[REPO], &[]).ends(1, &[]);
    assert!(!again.stderr.contains("downloading"), "{}", again.stderr);
    assert_eq!(hub.log(), ["/api/models/org/name/revision/main -"]);
}

#[test]
fn another_revision() {
    let (hub, home) = (hub(), tempfile::tempdir().expect("a directory"));
    inspect(&hub, home.path(), &[REPO, "--revision", "refs/pr/1"], &[]).ends(1, &[]);
    assert!(hub.log().contains(&"/api/models/org/name/revision/refs%2Fpr%2F1 -".to_string()));
    assert_complete(home.path());
}

#[test]
fn a_broken_connection_is_taken_up_again() {
    let (hub, home) = (hub(), tempfile::tempdir().expect("a directory"));
    hub.change(|state| state.cuts = vec![300_000, 1, 1_000_000, 100_000]);
    // The last entry goes to the first download: config.json is whole, then the weights break.
    inspect(&hub, home.path(), &[REPO], &[]).ends(1, &["resuming"]);
    assert_complete(home.path());
}

#[test]
fn a_later_run_resumes() {
    let (hub, home) = (hub(), tempfile::tempdir().expect("a directory"));
    hub.change(|state| state.cuts = vec![0, 0, 0, 0, 100_000, 1000, 1000]);
    inspect(&hub, home.path(), &[REPO], &[])
        .ends(1, &["cannot download model.safetensors", "again"]);
    hub.change(|state| state.cuts.clear());
    hub.log();
    inspect(&hub, home.path(), &[REPO], &[]).ends(1, &[]);
    assert_complete(home.path());
    let log = hub.log();
    assert!(log.contains(&"/org/name/resolve/main/model.safetensors 100000-".into()), "{log:?}");
}

#[test]
fn a_complete_part_is_not_resumed_past_its_end() {
    let (hub, home) = (hub(), tempfile::tempdir().expect("a directory"));
    inspect(&hub, home.path(), &[REPO], &[]).ends(1, &[]);
    let link = snapshot(home.path()).join("model.safetensors");
    let blob = link.canonicalize().expect("a blob");
    std::fs::rename(&blob, blob.with_extension("part")).expect("renamed");
    std::fs::remove_file(&link).expect("removed");
    inspect(&hub, home.path(), &[REPO], &[]).ends(1, &[]);
    assert_complete(home.path());
}

#[test]
fn a_server_that_ignores_ranges_cannot_spoil_a_file() {
    let (hub, home) = (hub(), tempfile::tempdir().expect("a directory"));
    hub.change(|state| {
        state.cuts = vec![100_000, 1000, 1000];
        state.ignores_range = true;
    });
    inspect(&hub, home.path(), &[REPO], &[]).ends(1, &["instead of 300000"]);
    assert_complete(home.path());
}

#[test]
fn unknown_and_private_repositories() {
    let (hub, home) = (hub(), tempfile::tempdir().expect("a directory"));
    inspect(&hub, home.path(), &["org/other"], &[])
        .ends(1, &["org/other", "does not exist", "no local path org/other"]);
    hub.change(|state| state.token = Some("secret".into()));
    inspect(&hub, home.path(), &[REPO], &[]).ends(1, &["private", "set HF_TOKEN"]);
    inspect(&hub, home.path(), &[REPO], &[("HF_TOKEN", "wrong")]).ends(1, &["refuses the token"]);
    inspect(&hub, home.path(), &[REPO], &[("HF_TOKEN", "secret")]).ends(1, &[]);
    assert_complete(home.path());
}

#[test]
fn gguf_by_quant() {
    let (hub, home) = (hub(), tempfile::tempdir().expect("a directory"));
    let files = ["m-F16.gguf", "m-Q2_0.gguf"].map(|n| (n.to_string(), n.as_bytes().to_vec()));
    hub.change(|state| drop(state.repos.insert(REPO.into(), files.into())));
    inspect(&hub, home.path(), &[REPO], &[])
        .ends(1, &["several models", "m-F16.gguf, m-Q2_0.gguf"]);
    inspect(&hub, home.path(), &["org/name:q2_0"], &[]).ends(1, &["downloading m-Q2_0.gguf"]);
    inspect(&hub, home.path(), &["org/name/m-F16.gguf"], &[]).ends(1, &["downloading m-F16.gguf"]);
    inspect(&hub, home.path(), &["org/name:TQ1_0"], &[]).ends(1, &["no GGUF file is TQ1_0"]);
}

#[test]
fn offline_says_what_to_place_where() {
    let (hub, home) = (hub(), tempfile::tempdir().expect("a directory"));
    let advice = ["config.json", "model.safetensors", "tokenizer.json", "--model ./name"];
    let offline = inspect(&hub, home.path(), &[REPO], &[("HF_HUB_OFFLINE", "1")]);
    offline.ends(1, &advice).ends(1, &["HF_HUB_OFFLINE is set"]);
    assert_eq!(hub.log(), [""; 0]);
    let nobody = ("HF_ENDPOINT", "http://127.0.0.1:1");
    inspect(&hub, home.path(), &[REPO], &[nobody]).ends(1, &advice);

    // What is in the cache works without a network.
    inspect(&hub, home.path(), &[REPO], &[]).ends(1, &[]);
    for variable in [nobody, ("HF_HUB_OFFLINE", "1")] {
        let ran = inspect(&hub, home.path(), &[REPO], &[variable]).ends(1, &[]);
        assert!(!ran.stderr.contains("cannot reach"), "{}", ran.stderr);
    }
}

#[test]
fn a_partial_cache_names_what_is_missing() {
    let (hub, home) = (hub(), tempfile::tempdir().expect("a directory"));
    let index =
        br#"{"weight_map":{"a":"model-1-of-2.safetensors","b":"model-2-of-2.safetensors"}}"#;
    let files = [
        ("config.json", b"{}".to_vec()),
        ("model.safetensors.index.json", index.to_vec()),
        ("model-1-of-2.safetensors", b"x".to_vec()),
    ];
    let files = files.map(|(name, bytes)| (name.to_string(), bytes));
    hub.change(|state| drop(state.repos.insert(REPO.into(), files.into())));
    inspect(&hub, home.path(), &[REPO], &[]).ends(1, &[]);
    inspect(&hub, home.path(), &[REPO], &[("HF_HUB_OFFLINE", "1")])
        .ends(1, &["Missing:\n  model-2-of-2.safetensors\n", COMMIT]);
}
