//! Models from the hub: downloads, resumption, and clear words when it does not work.

use crate::common::hub::{COMMIT, Hub, State};
use crate::common::{Ran, wf_run};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const REPO: &str = "org/name";

/// A repository whose weights are no model: fetching it works, loading it does not.
fn files() -> BTreeMap<String, Vec<u8>> {
    let weights: Vec<u8> = (0..300_000u32).map(|i| (i.wrapping_mul(i) >> 7) as u8).collect();
    [
        ("config.json", b"{}".to_vec()),
        ("tokenizer.json", b"{} ".to_vec()),
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

/// The log's line for a download of the weights.
fn model_at(range: &str) -> String {
    format!("/org/name/resolve/{COMMIT}/model.safetensors {range}")
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
    assert!(hub.log().iter().any(|l| *l == model_at("-")));

    let again = inspect(&hub, home.path(), &[REPO], &[]).ends(1, &[]);
    assert!(!again.stderr.contains("downloading"), "{}", again.stderr);
    assert_eq!(hub.log(), ["/api/models/org/name/revision/main -"]);
}

#[test]
fn a_mirror_that_knows_get_alone_will_do() {
    let (hub, home) = (hub(), tempfile::tempdir().expect("a directory"));
    hub.change(|state| state.get_only = true);
    inspect(&hub, home.path(), &[REPO], &[]).ends(1, &[]);
    assert_complete(home.path());
    assert!(hub.log().contains(&model_at("0-0")));
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
    assert!(log.contains(&model_at("100000-")), "{log:?}");
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
    inspect(&hub, home.path(), &[REPO], &[]).ends(1, &["resuming"]);
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
    let advice = ["config.json", "model.safetensors", "tokenizer.json", "as the model: ./name"];
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
        .ends(1, &["Missing: model-2-of-2.safetensors\n", COMMIT]);
}

/// Asserts that a run failed with these words, and that the cache is the only place it wrote to.
#[track_caller]
fn assert_refused(home: &Path, ran: Ran, parts: &[&str]) {
    let ran = ran.ends(1, parts);
    assert!(!ran.stderr.contains("panicked"), "{}", ran.stderr);
    let outside = crate::common::names(home);
    assert!(outside.iter().all(|name| ["hub", "victim"].contains(&name.as_str())), "{outside:?}");
    let folders = home.join("hub");
    let folders = if folders.exists() { crate::common::names(&folders) } else { Vec::new() };
    let allowed = [".locks", "models--org--name"];
    assert!(folders.iter().all(|name| allowed.contains(&name.as_str())), "{folders:?}");
}

/// Number of requests whose line begins so.
fn count(hub: &Hub, begin: &str) -> usize {
    hub.log().iter().filter(|line| line.starts_with(begin)).count()
}

fn json(status: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}")
        .into()
}

fn moved(to: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    )
    .into()
}

#[test]
fn entity_tags_cannot_leave_the_cache() {
    let (hub, home) = (hub(), tempfile::tempdir().expect("a directory"));
    let victim = home.path().join("victim");
    std::fs::write(&victim, "precious").expect("written");
    let absolute = victim.display().to_string();
    for tag in ["../../../../victim", &absolute, "..", ".", "", "a/b", "x.part", "a\\b", "a\tb"] {
        for header in ["ETag", "X-Linked-Etag"] {
            let described = format!("{header}: \"{tag}\"\r\nX-Repo-Commit: {COMMIT}\r\n");
            hub.change(|state| state.described = [("config.json".into(), described)].into());
            let ran = inspect(&hub, home.path(), &[REPO], &[]);
            assert_refused(home.path(), ran, &["cannot download config.json", "ETag"]);
            assert_eq!(std::fs::read_to_string(&victim).expect("there"), "precious", "{tag}");
        }
    }
}

#[test]
fn commits_cannot_leave_the_cache() {
    let (hub, home) = (hub(), tempfile::tempdir().expect("a directory"));
    let other = COMMIT.replace('0', "f");
    for commit in ["../..", "/", "", "main", &other] {
        let described = format!("ETag: \"abc\"\r\nX-Repo-Commit: {commit}\r\n");
        hub.change(|state| state.described = [("config.json".into(), described)].into());
        let ran = inspect(&hub, home.path(), &[REPO], &[]);
        assert_refused(home.path(), ran, &["it sends commit", COMMIT]);
    }
    for commit in ["../../../../victim", "/tmp", "", "main"] {
        let info = serde_json::json!({"sha": commit, "siblings": [{"rfilename": "m.gguf"}]});
        let info = json("200 OK", &info.to_string());
        hub.change(|state| state.scripts = vec![("/api/".into(), info)]);
        let ran = inspect(&hub, home.path(), &[REPO], &[]);
        assert_refused(home.path(), ran, &["it names the commit", "no hash"]);
    }
}

#[test]
fn file_names_cannot_leave_the_cache() {
    let (hub, home) = (hub(), tempfile::tempdir().expect("a directory"));
    for name in ["../x.gguf", "/x.gguf", "a/../../x.gguf", "a\\..\\x.gguf", "C:x.gguf", "a//x.gguf"]
    {
        let files = [(name.to_string(), b"GGUF".to_vec())].into();
        hub.change(|state| drop(state.repos.insert(REPO.into(), files)));
        let ran = inspect(&hub, home.path(), &[REPO], &[]);
        assert_refused(home.path(), ran, &["odd name"]);
    }
    for revision in ["../../x", "/x", "a//b", ".."] {
        let ran = inspect(&hub, home.path(), &[REPO, "--revision", revision], &[]);
        assert_refused(home.path(), ran, &["is no revision"]);
    }
}

#[test]
fn tokens_go_to_the_hub_alone() {
    let (hub, store, home) = (hub(), self::hub(), tempfile::tempdir().expect("a directory"));
    let to = format!("{}/{REPO}/resolve/main/config.json", store.address);
    let moved = moved(&to);
    hub.change(|state| {
        state.token = Some("secret".into());
        state.scripts = vec![(format!("GET /{REPO}/resolve/{COMMIT}/config.json"), moved)];
    });
    inspect(&hub, home.path(), &[REPO], &[("HF_TOKEN", "secret")]).ends(1, &[]);
    assert_complete(home.path());
    assert!(hub.tokens().iter().all(|token| token == "secret"));
    assert_eq!(store.log().len(), 1, "the other host was asked");
    assert_eq!(store.tokens(), [""; 0], "without the token");
}

#[test]
fn redirects_end() {
    let (hub, home) = (hub(), tempfile::tempdir().expect("a directory"));
    for part in ["GET /api/", "HEAD /", "GET /org/"] {
        hub.change(|state| state.scripts = vec![(part.into(), moved("/api/again/org/"))]);
        hub.log();
        let ran = inspect(&hub, home.path(), &[REPO], &[]);
        assert_refused(home.path(), ran, &[]);
        let asked = hub.log().len();
        assert!(asked <= 14, "{part}: {asked} requests");
    }
    for (to, why) in [
        ("/api/models/org/name/revision/main", "redirects more than 10 times"),
        ("file:///etc/passwd", "no web address"),
        ("ftp://127.0.0.1/x", "no web address"),
        ("http://", "no web address"),
    ] {
        hub.change(|state| state.scripts = vec![("GET /api/".into(), moved(to))]);
        assert_refused(home.path(), inspect(&hub, home.path(), &[REPO], &[]), &[why]);
    }
}

/// Headers of a file that large file storage keeps: its name is the SHA-256 of its contents.
const LARGE: &str =
    "X-Linked-Etag: \"d5397f395028a36a877582420027c07a9dffa109caf6625ee9fb42ba86859168\"\r\n";

#[test]
fn the_hash_of_large_files_is_checked() {
    let (hub, home) = (hub(), tempfile::tempdir().expect("a directory"));
    hub.change(|state| state.described = [("model.safetensors".into(), LARGE.into())].into());
    // A connection that breaks, and an old part with other bytes.
    hub.change(|state| state.cuts = vec![100_000, 1000, 1000]);
    let part = home.path().join("hub/models--org--name/blobs");
    std::fs::create_dir_all(&part).expect("made");
    let hash = &LARGE[16..80];
    std::fs::write(part.join(format!("{hash}.part")), [7; 1000]).expect("written");
    inspect(&hub, home.path(), &[REPO], &[]).ends(1, &[]);
    assert_complete(home.path());

    let home = tempfile::tempdir().expect("a directory");
    let mut forged = files().remove("model.safetensors").expect("weights");
    forged[200_000] ^= 1;
    hub.change(|state| state.forged = [("model.safetensors".into(), forged)].into());
    hub.log();
    let ran = inspect(&hub, home.path(), &[REPO], &[]);
    assert_refused(home.path(), ran, &["model.safetensors", "SHA-256", hash]);
    assert_eq!(count(&hub, &model_at("-")), 1, "nothing else would come");
    assert!(!snapshot(home.path()).join("model.safetensors").exists());
    let blobs = crate::common::names(&home.path().join("hub/models--org--name/blobs"));
    assert!(blobs.iter().all(|name| !name.contains(hash)), "{blobs:?}");
}

#[test]
fn the_size_of_other_files_is_checked() {
    let (hub, home) = (hub(), tempfile::tempdir().expect("a directory"));
    for length in [0, 299_999, 300_001] {
        let forged = [("model.safetensors".into(), vec![0; length])].into();
        hub.change(|state| state.forged = forged);
        let ran = inspect(&hub, home.path(), &[REPO], &[]);
        assert_refused(home.path(), ran, &["instead of 300000"]);
        assert!(!snapshot(home.path()).join("model.safetensors").exists());
    }
    // A body of unknown length may not go on for ever.
    let endless = [&b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"[..], &[0; 400_000]].concat();
    hub.change(|state| state.scripts = vec![(model_at("").trim().into(), endless)]);
    hub.change(|state| state.scripts[0].0.insert_str(0, "GET "));
    let ran = inspect(&hub, home.path(), &[REPO], &[]);
    assert_refused(home.path(), ran, &["more than 300000 bytes"]);
}

#[test]
fn a_hub_is_quoted() {
    let (hub, home) = (hub(), tempfile::tempdir().expect("a directory"));
    for (status, body, words) in [
        (
            "400 Bad Request",
            r#"{"error":"Invalid rev id: main"}"#,
            "status 400: Invalid rev id: main",
        ),
        (
            "403 Forbidden",
            r#"{"error":"Access is restricted"}"#,
            "status 403: Access is restricted",
        ),
        ("404 Not Found", r#"{"error":"Repository not found"}"#, "(Repository not found)"),
        ("429 Too Many Requests", r#"{"error":"Slow down"}"#, "HTTP status 429: Slow down"),
        ("503 Unavailable", r#"{"error":"In maintenance"}"#, "HTTP status 503: In maintenance"),
        ("200 OK", r#"{"error":"Quota is used up"}"#, "Quota is used up"),
        ("200 OK", "<html>sign in</html>", "no description of a model"),
    ] {
        hub.change(|state| state.scripts = vec![("/api/".into(), json(status, body))]);
        let ran = inspect(&hub, home.path(), &[REPO], &[]).ends(1, &[words]);
        assert!(!ran.stderr.contains("cannot reach"), "{}", ran.stderr);
    }
}

#[test]
fn only_what_may_pass_is_tried_again() {
    let (hub, home) = (hub(), tempfile::tempdir().expect("a directory"));
    for (status, attempts) in [("400 Bad Request", 1), ("404 Not Found", 1), ("503 Busy", 5)] {
        let script = ("GET /org/".to_string(), json(status, r#"{"error":"no"}"#));
        hub.change(|state| state.scripts = vec![script]);
        hub.log();
        inspect(&hub, home.path(), &[REPO], &[]).ends(1, &["cannot download config.json", "no"]);
        let asked = count(&hub, "/org/name/resolve/");
        assert_eq!(asked, attempts, "{status}");
    }
}

#[test]
fn garbage_is_refused_in_bounded_time_and_memory() {
    let (hub, home) = (hub(), tempfile::tempdir().expect("a directory"));
    let large = json("200 OK", &" ".repeat(33 << 20));
    for script in
        [&b"\0\xff\xfe"[..], b"HTTP/1.1 999 \xff\r\n\r\n", b"", &large, &json("200 OK", "[")]
    {
        hub.change(|state| state.scripts = vec![("GET /api/".into(), script.into())]);
        let begin = Instant::now();
        let ran = inspect(&hub, home.path(), &[REPO], &[("HF_HUB_DOWNLOAD_TIMEOUT", "1")]);
        assert_refused(home.path(), ran, &[]);
        assert!(begin.elapsed() < Duration::from_secs(30), "{:?}", begin.elapsed());
    }
    for head in [
        &b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n"[..],
        b"HTTP/1.1 200 OK\r\nETag: \xff\xff\r\nContent-Length: 1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nETag: \"a\"\r\nX-Linked-Size: -1\r\n\r\n",
    ] {
        hub.change(|state| state.scripts = vec![("HEAD /".into(), head.into())]);
        assert_refused(home.path(), inspect(&hub, home.path(), &[REPO], &[]), &["it sends"]);
    }
}
