//! The prompt cache on disk: a conversation goes on after a restart where it was.

use crate::common::run;
use crate::common::server::{Reply, Server, wait_until};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

const TEXT: &str = "Tell me of the fox who lives in the forest and of her friends. ";
/// The embedded model, and one with recurrent states.
const MODELS: [&[&str]; 2] = [&[], &["--synthetic", "tiny-hybrid", "-c", "4096"]];

fn server(folder: &Path, args: &[&str]) -> Server {
    Server::start(&[&["--cache-dir", folder.to_str().unwrap()], args].concat())
}

/// Returns the value of a metric, asked with these headers.
fn metric(server: &Server, headers: &str, name: &str) -> u64 {
    server.metric(headers, name) as u64
}

/// Waits until something is written to disk after `before` tokens.
fn written(server: &Server, headers: &str, before: u64) -> u64 {
    let now = || metric(server, headers, "wf_disk_cache_written_tokens_total");
    wait_until("something is written", || now() > before);
    now()
}

fn complete(server: &Server, headers: &str, body: Value) -> Reply {
    server.send("POST", "/v1/completions", headers, &body.to_string()).is(200)
}

/// Returns the text and the number of cached tokens.
fn text(reply: &Reply) -> (String, u64) {
    let answer = reply.json();
    let cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap();
    (answer["choices"][0]["text"].as_str().unwrap().into(), cached)
}

fn prompt(more: Value) -> Value {
    let mut body = json!({"prompt": TEXT.repeat(12), "temperature": 0, "max_tokens": 40});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

#[test]
fn a_conversation_goes_on_after_a_kill() {
    for model in MODELS {
        let folder = tempfile::tempdir().expect("a folder");
        let first = server(folder.path(), model);
        let (answer, cached) = text(&complete(&first, "", prompt(json!({}))));
        assert_eq!(cached, 0);
        written(&first, "", 0);
        let next = format!("{}{answer} And then", TEXT.repeat(12));
        let next = prompt(json!({"prompt": next}));
        let want = text(&complete(&first, "", next.clone()));
        assert!(want.1 > 150, "{want:?}");
        // The test's server is killed when it is dropped.
        drop(first);

        let second = server(folder.path(), model);
        assert!(metric(&second, "", "wf_disk_cache_bytes") > 0);
        let found = text(&complete(&second, "", next));
        assert_eq!(found.0, want.0, "{model:?}");
        assert!(found.1 >= want.1, "{model:?}: {} of {} cached", found.1, want.1);
        assert!(metric(&second, "", "wf_disk_cache_read_tokens_total") >= want.1);
        drop(second);

        // The same question again is the beginning of what is kept.
        let third = server(folder.path(), model);
        let again = text(&complete(&third, "", prompt(json!({}))));
        assert_eq!(again.0, answer, "{model:?}");
        assert!(again.1 > 100, "{model:?}: {} cached", again.1);
    }
}

#[test]
fn a_server_that_is_asked_to_end_writes_the_last_answer() {
    let folder = tempfile::tempdir().expect("a folder");
    let first = server(folder.path(), MODELS[1]);
    let want = text(&complete(&first, "", prompt(json!({}))));
    first.terminate();
    first.ended().ends(0, &[]);
    let second = server(folder.path(), MODELS[1]);
    let (found, cached) = text(&complete(&second, "", prompt(json!({}))));
    assert!(found == want.0 && cached > 150, "{cached}");
}

#[test]
fn keys_and_salts_have_texts_of_their_own() {
    let folder = tempfile::tempdir().expect("a folder");
    let keys = ["--api-key", "ann", "--api-key", "bob"];
    let header = |key: &str| format!("authorization: Bearer {key}\r\n");
    let first = server(folder.path(), &keys);
    complete(
        &first,
        &header("ann"),
        prompt(json!({"prompt": "Other words. ".repeat(40), "cache_salt": "x"})),
    );
    complete(&first, &header("ann"), prompt(json!({})));
    written(&first, &header("ann"), 0);
    let files = fs::read_dir(folder.path()).unwrap().count();
    drop(first);
    // Another order of the keys is no other owner.
    let keys = ["--api-key", "bob", "--api-key", "ann"];
    let second = server(folder.path(), &keys);
    let cached = |key: &str, more: Value| text(&complete(&second, &header(key), prompt(more))).1;
    assert_eq!(cached("bob", json!({})), 0);
    assert_eq!(cached("ann", json!({"prompt": "Other words. ".repeat(40)})), 0, "{files} files");
    assert!(cached("ann", json!({})) > 150);
}

#[test]
fn stored_responses_survive_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let first = server(folder.path(), &[]);
    let body = |input: &str, before: Option<&Value>| json!({"input": input, "previous_response_id": before, "temperature": 0, "max_output_tokens": 16});
    let answer = |server: &Server, body: Value| server.post("/v1/responses", &body).is(200).json();
    let one = answer(&first, body("Tell me of a fox.", None));
    let gone = answer(&first, body("Tell me of an owl.", None));
    let delete = |id: &Value| format!("/v1/responses/{}", id.as_str().unwrap());
    first.send("DELETE", &delete(&gone["id"]), "", "").is(200);
    let want = answer(&first, body("And then?", Some(&one["id"])));
    first.terminate();
    first.ended().ends(0, &[]);
    let second = server(folder.path(), &[]);
    assert_eq!(second.get(&delete(&one["id"])).is(200).json()["output"], one["output"]);
    second.get(&delete(&gone["id"])).is(404);
    let found = answer(&second, body("And then?", Some(&one["id"])));
    assert_eq!(found["output"][0]["content"], want["output"][0]["content"]);
    assert_eq!(found["usage"]["input_tokens"], want["usage"]["input_tokens"]);
}

#[test]
fn damaged_and_foreign_files_are_misses() {
    let folder = tempfile::tempdir().expect("a folder");
    let first = server(folder.path(), MODELS[1]);
    let want = text(&complete(&first, "", prompt(json!({})))).0;
    written(&first, "", 0);
    drop(first);
    let files: Vec<_> = fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "wfcache"))
        .collect();
    assert!(!files.is_empty());
    let whole: Vec<_> = files.iter().map(|file| fs::read(file).unwrap()).collect();
    for damage in [
        |bytes: &mut Vec<u8>| *bytes.last_mut().unwrap() ^= 1,
        |bytes: &mut Vec<u8>| bytes.truncate(bytes.len() / 2),
        |bytes: &mut Vec<u8>| bytes.truncate(4),
        |bytes: &mut Vec<u8>| bytes[20] ^= 4,
        |bytes: &mut Vec<u8>| bytes.clear(),
    ] {
        for (file, bytes) in files.iter().zip(&whole) {
            let mut bytes = bytes.clone();
            damage(&mut bytes);
            fs::write(file, bytes).unwrap();
        }
        fs::write(folder.path().join(format!("{}.wfcache", "ab".repeat(32))), "hello").unwrap();
        let server = server(folder.path(), MODELS[1]);
        let (found, cached) = text(&complete(&server, "", prompt(json!({}))));
        assert_eq!((found, cached), (want.clone(), 0));
        written(&server, "", 0);
    }
    // Another model, and the same with other settings.
    for args in [&["--synthetic", "tiny-hybrid", "-c", "4096", "--kv-dtype", "f32"][..], MODELS[0]]
    {
        let server = server(folder.path(), args);
        assert_eq!(text(&complete(&server, "", prompt(json!({})))).1, 0, "{args:?}");
    }
}

#[test]
fn the_folder_stays_within_its_size() {
    let home = tempfile::tempdir().expect("a folder");
    let ask = |server: &Server, number: usize| {
        let body = json!({"prompt": format!("{number} {}", TEXT.repeat(12)), "max_tokens": 4});
        complete(server, "", prompt(body));
    };
    let first = server(&home.path().join("first"), &[]);
    ask(&first, 0);
    written(&first, "", 0);
    let limit = metric(&first, "", "wf_disk_cache_bytes") * 5 / 2;
    let folder = home.path().join("second");
    let server = server(&folder, &["--cache-size", &limit.to_string()]);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
    }
    let mut before = 0;
    for number in 0..6 {
        ask(&server, number);
        before = written(&server, "", before);
        let files = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().metadata().unwrap());
        let bytes: u64 = files.filter(|file| file.is_file()).map(|file| file.len()).sum();
        assert!((1..=limit).contains(&bytes), "{bytes} of {limit}");
        assert!(metric(&server, "", "wf_disk_cache_bytes") <= limit);
    }
    assert!(metric(&server, "", "wf_disk_cache_bytes") > limit / 2, "two texts fit");
}

#[test]
fn a_folder_belongs_to_one_server() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().to_str().unwrap();
    let _first = server(folder.path(), &[]);
    run(&["serve", "--port", "0", "--cache-dir", path]).ends(2, &["another server uses", path]);
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let path = file.to_str().unwrap();
    run(&["serve", "--port", "0", "--cache-dir", path]).ends(2, &["cannot use the folder", path]);
    run(&["serve", "--port", "0", "--cache-size", "1G"]).ends(2, &["--cache-dir"]);
    let other = folder.path().join("other");
    let args = ["serve", "--port", "0", "--no-radix-cache", "--cache-dir", other.to_str().unwrap()];
    run(&args).ends(2, &["--cache-dir is for the prompt cache"]);
}

/// The server is killed at any moment: no answer is wrong, and at most one turn is computed again.
#[test]
fn kills_at_any_moment_lose_one_turn() {
    let folder = tempfile::tempdir().expect("a folder");
    let text_after =
        |turns: usize| format!("{}{}", TEXT.repeat(8), "So it went on. ".repeat(12 * turns));
    let reference = Server::start(MODELS[1]);
    let want: Vec<String> = (0..10)
        .map(|turn| text(&complete(&reference, "", prompt(json!({"prompt": text_after(turn)})))).0)
        .collect();
    let (mut random, mut last) = (fastrand::Rng::with_seed(11), 0);
    for (turn, want) in want.iter().enumerate() {
        let server = server(folder.path(), MODELS[1]);
        let body = prompt(json!({"prompt": text_after(turn)}));
        let (found, cached) = text(&complete(&server, "", body));
        assert_eq!(found, *want, "turn {turn}");
        // What was there two turns ago is still there.
        assert!(cached >= last, "turn {turn}: {cached} cached, {last} before");
        last = if turn == 0 { 0 } else { cached };
        sleep(Duration::from_millis(random.u64(0..60)));
    }
    assert!(last > 300, "{last}");
}
