//! Clients that attack `wf-run serve`: what they can hold, block and reach.

use crate::common::server::{Reply, Server, ask, connect_from, start};
use crate::common::wf_run;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

const CHAT: &str = "/v1/chat/completions";
const MIB: usize = 1 << 20;

fn head(path: &str, length: usize) -> String {
    format!("POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n\r\n")
}

/// Reads until the server closes the connection.
fn rest(mut stream: TcpStream) -> String {
    let mut text = Vec::new();
    let _ = stream.read_to_end(&mut text);
    String::from_utf8_lossy(&text).into()
}

/// Sends raw text and returns the status and the whole answer.
fn raw(server: &Server, request: &str) -> (u16, String) {
    let mut stream = server.connect();
    stream.write_all(request.as_bytes()).expect("sent");
    let text = rest(stream);
    (Reply::all(&text).first().map_or(0, |reply| reply.status), text)
}

/// Peak of the server's memory in MiB since it was last reset.
#[cfg(target_os = "linux")]
fn peak(server: &Server) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.child.id()));
    let status = status.expect("a process");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
    line.trim().trim_end_matches(" kB").parse::<usize>().expect("a number") / 1024
}

/// Issue: a body of 4 MB held 240 to 330 MB.
#[test]
#[cfg(target_os = "linux")]
fn a_request_takes_at_most_eight_times_its_body() {
    let server = Server::start(&[]);
    let reset = || std::fs::write(format!("/proc/{}/clear_refs", server.child.id()), "5");
    let mut worst = 0;
    for (path, body) in crate::common::bodies::large() {
        reset().expect("the peak is reset");
        let before = peak(&server);
        let reply = server.send("POST", path, "content-type: application/json\r\n", &body);
        let grown = peak(&server) - before;
        let begin = &body[..body.len().min(80)];
        assert!(matches!(reply.status, 200 | 400), "{}: {path} {begin}", reply.status);
        assert!(grown <= 8 * 4, "{grown} MiB for {path} {begin}");
        worst = worst.max(grown);
    }
    println!("largest peak next to 4 MiB: {worst} MiB");
}

/// Issue: texts were tokenized before anything looked at their length.
#[test]
fn texts_that_cannot_fit_are_refused_by_their_length() {
    let server = Server::start(&[]);
    let text = "word ".repeat(800_000);
    for (path, body) in [
        (CHAT, ask(&text, json!({}))),
        ("/v1/completions", json!({"prompt": ["x", text]})),
        ("/v1/embeddings", json!({"input": text})),
        ("/v1/responses", json!({"input": text})),
        ("/tokenize", json!({"content": text})),
    ] {
        let error = server.post(path, &body).is(400).json()["error"].clone();
        assert_eq!(error["code"], "context_length_exceeded", "{path}: {error}");
        assert!(error["message"].as_str().unwrap().contains("at least"), "{path}: {error}");
    }
}

/// Issue: nothing bounded the bytes of all bodies together.
#[test]
fn bodies_in_flight_have_a_budget_for_each_client() {
    let server = Server::start(&[]);
    let begin = " ".repeat(4 * MIB - 1);
    let send = |from: &str| {
        let mut stream = connect_from(from, &server.address);
        stream.write_all(head(CHAT, 4 * MIB).as_bytes()).expect("sent");
        let _ = stream.write_all(begin.as_bytes());
        stream
    };
    // The last byte is missing, so the server holds them.
    let held: Vec<TcpStream> = (0..4).map(|_| send("127.0.0.2")).collect();
    sleep(Duration::from_millis(500));
    let refused = rest(send("127.0.0.2"));
    assert!(refused.starts_with("HTTP/1.1 429") && refused.contains("too_many_bytes"), "{refused}");
    let mut other = send("127.0.0.1");
    other.write_all(b"{").expect("another client has its own share");
    assert!(read_some(&mut other).starts_with("HTTP/1.1 400"), "the body is no JSON");
    drop(held);
    let begin = Instant::now();
    while server.post(CHAT, &ask("Hi!", json!({"max_tokens": 1}))).status != 200 {
        assert!(begin.elapsed() < Duration::from_secs(10), "the budget is given back");
    }
}

/// Reads the beginning of an answer.
fn read_some(stream: &mut TcpStream) -> String {
    let mut buffer = [0; 4096];
    let count = stream.read(&mut buffer).unwrap_or(0);
    String::from_utf8_lossy(&buffer[..count]).into()
}

/// A server that ends with its test.
#[cfg(unix)]
struct Crowded(std::process::Child);

#[cfg(unix)]
impl Drop for Crowded {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a server that may open 128 files, so at most 64 connections.
#[cfg(unix)]
fn crowded() -> (Crowded, String) {
    let program = env!("CARGO_BIN_EXE_wf-run");
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit -n 128; exec {program} serve --port 0 -t 1")]);
    command.env("WF_LOG", "warn").stdout(std::process::Stdio::piped());
    let (child, address) = start(command);
    let child = Crowded(child);
    let address: String = address.strip_prefix("http://").expect("an address").into();
    while get(&address, "/health").0 != 200 {
        sleep(Duration::from_millis(10));
    }
    (child, address)
}

/// Sends a request from 127.0.0.1 and returns its status and body.
fn get(address: &str, path: &str) -> (u16, String) {
    let mut stream = connect_from("127.0.0.1", address);
    let sent =
        write!(stream, "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    let text = sent.map_or(String::new(), |()| rest(stream));
    Reply::all(&text).pop().map_or((0, text), |reply| (reply.status, reply.body))
}

/// Issue: idle keep-alive connections locked everybody out, for as long as they liked.
#[test]
#[cfg(unix)]
fn idle_connections_do_not_lock_others_out() {
    let (_server, address) = crowded();
    let mut crowd: Vec<TcpStream> = Vec::new();
    for number in 0..200 {
        let mut stream =
            connect_from(if number % 2 == 0 { "127.0.0.2" } else { "127.0.0.3" }, &address);
        if number % 3 == 0 {
            // Has had a request.
            let _ = write!(stream, "GET /version HTTP/1.1\r\nhost: localhost\r\n\r\n");
        }
        if number == 0 {
            assert!(!read_some(&mut stream).is_empty(), "it is answered before the others come");
        }
        crowd.push(stream);
    }
    for _ in 0..3 {
        assert_eq!(get(&address, "/version").0, 200);
    }
    let closed = crowd.iter_mut().map(|stream| {
        stream.set_read_timeout(Some(Duration::from_millis(10))).expect("set");
        let mut buffer = [0; 4096];
        loop {
            match stream.read(&mut buffer) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) => return !matches!(error.kind(), std::io::ErrorKind::WouldBlock),
            }
        }
    });
    let closed = closed.filter(|closed| *closed).count();
    assert!((130..=199).contains(&closed), "the longest idle ones are closed: {closed}");
}

/// Issue: busy connections left no room for operators.
#[test]
#[cfg(unix)]
fn a_reserve_answers_operators() {
    let (_server, address) = crowded();
    let busy = |from: &str| {
        let mut stream = connect_from(from, &address);
        let _ = stream.write_all(head(CHAT, 100).as_bytes());
        stream
    };
    // 64 connections at most, 48 of one address.
    let crowd: Vec<TcpStream> =
        (0..80).map(|number| busy(if number < 60 { "127.0.0.2" } else { "127.0.0.3" })).collect();
    sleep(Duration::from_millis(300));
    for path in ["/health", "/metrics"] {
        assert_eq!(get(&address, path).0, 200, "{path}");
    }
    let (status, body) = get(&address, "/v1/models");
    assert!(status == 503 && body.contains("too many connections"), "{status} {body}");
    drop(crowd);
    let begin = Instant::now();
    while get(&address, "/v1/models").0 != 200 {
        assert!(begin.elapsed() < Duration::from_secs(10), "places are given back");
        sleep(Duration::from_millis(20));
    }
}

/// Issue: a salt had no limit and was kept with its pages.
#[test]
fn a_long_cache_salt_is_refused() {
    let server = Server::start(&[]);
    let salted =
        |bytes: usize| ask("Hi!", json!({"cache_salt": "s".repeat(bytes), "max_tokens": 1}));
    server.chat(&salted(1024)).is(200);
    let error = server.chat(&salted(1025)).is(400).json();
    assert_eq!(error["error"]["param"], "cache_salt", "{error}");
    let body = json!({"input": "Hi!", "cache_salt": "s".repeat(1025)});
    let error = server.post("/v1/embeddings", &body).is(400).json();
    assert_eq!(error["error"]["param"], "cache_salt", "{error}");
}

/// Issue: any web page that a user visited could use a local server.
#[test]
fn foreign_web_pages_are_refused() {
    let server = Server::start(&["--cors-origin", "https://app.example.org"]);
    let own = format!("origin: http://{}\r\n", server.address);
    let body = ask("Hi!", json!({"max_tokens": 1})).to_string();
    let post = |headers: &str| {
        let host = format!("host: {}\r\n", server.address);
        let length = body.len();
        let head = format!("POST {CHAT} HTTP/1.1\r\n{host}connection: close\r\n{headers}");
        raw(&server, &format!("{head}content-length: {length}\r\n\r\n{body}")).0
    };
    let (json, text) = ("content-type: application/json\r\n", "content-type: text/plain\r\n");
    let form = "content-type: application/x-www-form-urlencoded\r\n";
    let evil = "origin: https://evil.example\r\n";
    assert_eq!(post(&format!("{evil}{text}")), 403);
    assert_eq!(post(&format!("{evil}{json}")), 403);
    assert_eq!(post(&format!("origin: null\r\n{json}")), 403);
    assert_eq!(post(&format!("sec-fetch-site: cross-site\r\n{json}")), 403);
    let listed = "origin: https://app.example.org\r\nsec-fetch-site: cross-site\r\n";
    assert_eq!(post(&format!("{listed}{json}")), 200);
    assert_eq!(post(&format!("{listed}{text}")), 415);
    assert_eq!(post(&format!("{own}sec-fetch-site: same-origin\r\n{json}")), 200, "the chat page");
    assert_eq!(post(&format!("{own}{form}")), 415);
    assert_eq!(post(form), 200, "curl -d");
    assert_eq!(post(""), 200, "a program without a content type");
    let metrics = server.get("/metrics").body;
    assert!(metrics.contains("wf_requests_refused_total{status=\"403\"} 4"), "{metrics}");
    let anthropic = server.send("POST", "/v1/messages", evil, "{}").is(403).json();
    assert_eq!(anthropic["type"], "error", "{anthropic}");
}

/// Issue: HTTP/1.1 without `Host` was accepted.
#[test]
fn http_1_1_needs_one_host() {
    let server = Server::start(&["--api-key", "k"]);
    let close = "connection: close\r\n\r\n";
    assert_eq!(raw(&server, &format!("GET /version HTTP/1.1\r\n{close}")).0, 400);
    let two = format!("GET /version HTTP/1.1\r\nhost: a\r\nhost: b\r\n{close}");
    assert_eq!(raw(&server, &two).0, 400);
    assert_eq!(raw(&server, &format!("GET /version HTTP/1.1\r\nhost: a\r\n{close}")).0, 200);
    assert_eq!(raw(&server, "GET /version HTTP/1.0\r\n\r\n").0, 200);
}

/// Issue: half-closed clients (`nc -N`) got no answer.
#[test]
fn half_closed_clients_get_their_answer_and_gone_ones_are_cancelled() {
    let server = Server::slow(&[]);
    let half_closed = |body: &Value| {
        let body = body.to_string();
        let stream = server.open("POST", CHAT, "content-type: application/json\r\n", &body);
        stream.shutdown(Shutdown::Write).expect("half-closed");
        rest(stream)
    };
    let short = half_closed(&ask("Hi!", json!({"max_tokens": 3})));
    assert!(short.starts_with("HTTP/1.1 200") && short.contains("finish_reason"), "{short}");
    let streamed = half_closed(&ask("Hi!", json!({"max_tokens": 3, "stream": true})));
    assert!(streamed.starts_with("HTTP/1.1 200") && streamed.contains("[DONE]"), "{streamed}");
    // An answer that takes longer than it takes to find out that a client has gone.
    let long = json!({"max_tokens": 700, "ignore_eos": true});
    let begin = Instant::now();
    let text = half_closed(&ask("Tell me a story.", long.clone()));
    let time = begin.elapsed();
    let answer = text.split("HTTP/1.1 ").last().expect("an answer");
    assert!(answer.starts_with("200") && answer.contains("finish_reason"), "{time:?}: {text}");
    println!("half-closed for {time:?}");
    // A client that has gone looks the same at first.
    let endless = json!({"max_tokens": 4000, "ignore_eos": true, "n": 8});
    drop(server.open("POST", CHAT, "", &ask("Tell me a story.", endless).to_string()));
    let begin = Instant::now();
    while !server.get("/metrics").body.contains("{reason=\"cancelled\"} 8") {
        assert!(begin.elapsed() < Duration::from_secs(20), "it is cancelled");
        sleep(Duration::from_millis(50));
    }
    println!("cancelled after {:?}", begin.elapsed());
    server.idle();
}

/// Issue: the requests of one client delayed all others, for minutes, and filled the queue.
#[test]
fn a_client_with_many_requests_does_not_delay_others() {
    let server = Server::slow(&["--max-sequences", "2", "--max-waiting", "14"]);
    let short = ask("Hi!", json!({"max_tokens": 8, "ignore_eos": true}));
    let want = server.chat(&short).is(200).json()["choices"].clone();
    let endless = ask("Tell me a story.", json!({"ignore_eos": true, "stream": true})).to_string();
    let open = || {
        let mut stream = connect_from("127.0.0.2", &server.address);
        let request = format!("{}{endless}", head(CHAT, endless.len()));
        stream.write_all(request.as_bytes()).expect("sent");
        stream
    };
    let mut streams: Vec<TcpStream> = (0..14).map(|_| open()).collect();
    for stream in &mut streams {
        assert!(read_some(stream).starts_with("HTTP/1.1 200"), "it waits or runs");
    }
    assert!(read_some(&mut open()).starts_with("HTTP/1.1 429"), "the rest is for others");
    let begin = Instant::now();
    assert_eq!(server.chat(&short).is(200).json()["choices"], want);
    assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
    drop(streams);
    server.idle();
}

/// Issue: 18,000 spellings of one id.
#[test]
fn a_token_of_logit_bias_has_one_spelling() {
    let server = Server::start(&[]);
    let biased = |id: &str| ask("Hi!", json!({"max_tokens": 1, "logit_bias": {id: 1}}));
    server.chat(&biased("17")).is(200);
    for spelling in ["017", "+17", "00", " 17", "17.0", "1e1"] {
        let error = server.chat(&biased(spelling)).is(400).json();
        assert_eq!(error["error"]["param"], "logit_bias", "{spelling}: {error}");
    }
}

/// Issue: the demo followed links out of its folder and served hidden files.
#[test]
#[cfg(unix)]
fn the_demo_stays_in_its_folder() {
    use std::os::unix::fs::symlink;
    let outside = tempfile::tempdir().expect("a folder");
    let folder = tempfile::tempdir().expect("a folder");
    let write = |path: &Path, text: &str| std::fs::write(path, text).expect("written");
    write(&outside.path().join("secret.txt"), "secret");
    write(&outside.path().join("index.html"), "secret");
    write(&folder.path().join("index.html"), "a page");
    write(&folder.path().join("a b.js"), "code");
    write(&folder.path().join(".env"), "secret");
    std::fs::create_dir(folder.path().join(".git")).expect("made");
    write(&folder.path().join(".git/config"), "secret");
    symlink(outside.path().join("secret.txt"), folder.path().join("link.txt")).expect("linked");
    symlink(outside.path(), folder.path().join("folder")).expect("linked");
    symlink(folder.path().join(".env"), folder.path().join("env.txt")).expect("linked");
    symlink(folder.path().join("a b.js"), folder.path().join("own.js")).expect("linked");
    let server = Server::start(&["--demo", folder.path().to_str().expect("UTF-8")]);
    for hidden in [
        "link.txt",
        "folder/secret.txt",
        "folder/",
        "folder",
        ".env",
        "%2eenv",
        ".git/config",
        "env.txt",
        "../secret.txt",
        "a/../.env",
        "%00",
    ] {
        let reply = server.get(&format!("/demo/{hidden}"));
        assert!(
            !reply.body.contains("secret") && reply.status >= 300,
            "{hidden}: {}",
            reply.status
        );
    }
    for (path, text) in [("", "a page"), ("a%20b.js", "code"), ("own.js", "code")] {
        assert_eq!(server.get(&format!("/demo/{path}")).is(200).body, text, "{path}");
    }
}

/// Issue: SIGHUP ended the server.
#[test]
#[cfg(unix)]
fn sighup_reloads_keys() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("keys");
    let write = |text: &str| std::fs::write(&file, text).expect("written");
    write("# team A\nfirst # Ann\nsecond\n");
    let server = Server::start(&["--api-key-file", file.to_str().expect("UTF-8")]);
    let status = |key: &str| {
        server.send("GET", "/v1/models", &format!("authorization: Bearer {key}\r\n"), "").status
    };
    let hang_up = || {
        let pid = server.child.id().to_string();
        assert!(Command::new("kill").args(["-HUP", &pid]).status().expect("runs").success());
    };
    assert_eq!(["first", "second", "# team A", "first # Ann"].map(status), [200, 200, 401, 401]);
    write("second\nthird\n");
    hang_up();
    let begin = Instant::now();
    while status("third") != 200 {
        assert!(begin.elapsed() < Duration::from_secs(10), "the keys are read again");
        sleep(Duration::from_millis(10));
    }
    assert_eq!(["first", "second"].map(status), [401, 200]);
    // A file that cannot be used changes nothing.
    write("# nobody\n");
    hang_up();
    sleep(Duration::from_millis(300));
    assert_eq!(["second", "third", ""].map(status), [200, 200, 401]);
    server.terminate();
    server.ended().ends(0, &["kept the old API keys", "has no key"]);
}

/// Limits count by address, and a trusted proxy names the address.
#[test]
fn a_trusted_proxy_names_its_clients() {
    let ran: crate::common::Ran =
        wf_run(&["serve", "--trusted-proxy", "nginx"]).output().expect("starts").into();
    ran.ends(2, &["10.0.0.0/8"]);
    let server = Server::start(&["--trusted-proxy", "127.0.0.2"]);
    let send = |from: &str, client: &str| {
        let mut stream = connect_from(from, &server.address);
        let length = 4 * MIB;
        let forwarded = format!("x-forwarded-for: {client}\r\ncontent-length: {length}\r\n\r\n");
        let request = format!("POST {CHAT} HTTP/1.1\r\nhost: localhost\r\n{forwarded}");
        stream.write_all(request.as_bytes()).expect("sent");
        let _ = stream.write_all(" ".repeat(length - 1).as_bytes());
        stream
    };
    let mut held: Vec<TcpStream> = (0..4).map(|_| send("127.0.0.2", "9.9.9.9")).collect();
    sleep(Duration::from_millis(500));
    assert!(rest(send("127.0.0.2", "9.9.9.9")).starts_with("HTTP/1.1 429"));
    let mut other = send("127.0.0.2", "9.9.9.8");
    other.write_all(b"{").expect("sent");
    assert!(read_some(&mut other).starts_with("HTTP/1.1 400"), "another client of the proxy");
    held.clear();
    // Others cannot name a client.
    held.extend((0..4).map(|number| send("127.0.0.3", &format!("9.9.9.{number}"))));
    sleep(Duration::from_millis(500));
    assert!(rest(send("127.0.0.3", "9.9.8.8")).starts_with("HTTP/1.1 429"));
}

/// A log that nobody reads fills its pipe after 64 KiB: requests go on.
#[test]
fn a_log_that_nobody_reads_blocks_no_request() {
    let mut command = wf_run(&["serve", "--port", "0", "-t", "1"]);
    command.env("WF_LOG", "info");
    let (mut child, address) = start(command);
    let address = address.strip_prefix("http://").expect("an address").to_string();
    let id = "x".repeat(120);
    for _ in 0..1200 {
        let mut stream = TcpStream::connect(&address).expect("connects");
        stream.set_read_timeout(Some(Duration::from_secs(10))).expect("set");
        let head = format!("GET /version HTTP/1.1\r\nhost: localhost\r\nx-request-id: {id}\r\n");
        stream.write_all(format!("{head}connection: close\r\n\r\n").as_bytes()).expect("sent");
        assert!(rest(stream).starts_with("HTTP/1.1 200"), "an answer");
    }
    child.kill().expect("killed");
    child.wait().expect("ended");
}

/// A client that writes all of a large body before it reads still gets the answer.
#[test]
fn large_bodies_get_their_status_from_clients_that_write_first() {
    let server = Server::start(&[]);
    for length in [5 * MIB, 24 * MIB] {
        let mut stream = server.connect();
        stream.write_all(head(CHAT, length).as_bytes()).expect("sent");
        for _ in 0..length / MIB {
            stream.write_all(&vec![b' '; MIB]).expect("the server reads on");
        }
        let text = rest(stream);
        assert!(text.starts_with("HTTP/1.1 413"), "{length}: {text}");
    }
}

/// Bodies whose parts are parsed again, or that fields nobody supports hold, take few times their size.
#[test]
#[cfg(target_os = "linux")]
fn texts_and_lists_in_unlikely_fields_take_little_memory() {
    let server = Server::start(&[]);
    server.chat(&ask("Hi", json!({"max_tokens": 2}))).is(200);
    let list = format!("[{}0]", "0,".repeat(1_900_000));
    let schema = format!("{{\"enum\": {}}}", list.replace("0,", "{},").replace('0', "{}"));
    let schema = json!(&schema[..3_900_000]).to_string();
    let samplers = "k".repeat(3_900_000);
    let idle = peak(&server);
    for (path, body) in [
        (CHAT, format!("{{\"messages\": [], \"guided_json\": {schema}}}")),
        (CHAT, format!("{{\"messages\": [], \"json_schema\": {schema}}}")),
        ("/completion", format!("{{\"prompt\": \"a\", \"samplers\": \"{samplers}\"}}")),
        ("/v1/responses", format!("{{\"input\": \"a\", \"prompt\": {list}}}")),
        ("/v1/responses", format!("{{\"input\": \"a\", \"conversation\": \"{samplers}\"}}")),
    ] {
        let json = "content-type: application/json\r\n";
        let reply = server.send("POST", path, json, &body);
        assert!((400..500).contains(&reply.status), "{path}: {} {}", reply.status, reply.body);
        assert!(reply.body.len() < 100_000, "{path}: {} bytes", reply.body.len());
        let more = peak(&server) - idle;
        assert!(more < 70, "{path}: {} MB body, {more} MiB", body.len() / 1_000_000);
    }
}

/// `response_fields` of any number, over many outputs, once took 30 s of the connections' threads.
#[test]
fn formatting_has_limits() {
    let server = Server::start(&[]);
    let body = |fields: Vec<String>| json!({"prompt": vec!["a"; 15], "n_cmpl": 8, "n_predict": 1, "response_fields": fields});
    let refused = server.post("/completion", &body(vec!["a/b/c".into(); 10_000])).is(400);
    assert!(refused.body.contains("response_fields"), "{}", refused.body);
    server.post("/completion", &body(vec!["a/".repeat(1000)])).is(400);
    let answer = server.post("/completion", &body(vec!["content".into(); 64])).is(200).json();
    assert_eq!(answer.as_array().map(Vec::len), Some(120));
}

/// A slot with another salt is neither saved nor erased, and shows others no length.
#[test]
fn slots_keep_to_their_salt() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Server::start(&["--slot-save-path", folder.path().to_str().expect("UTF-8")]);
    let text = "Once upon a time there was a fox. ".repeat(8);
    let completion = |more: Value| {
        let mut body = json!({"prompt": text, "max_tokens": 2});
        body.as_object_mut().expect("one").extend(more.as_object().expect("one").clone());
        server.post("/v1/completions", &body).is(200).json()
    };
    completion(json!({"cache_salt": "secret"}));
    let lengths = |server: &Server| {
        let slots = server.get("/slots").is(200).json();
        slots
            .as_array()
            .expect("slots")
            .iter()
            .map(|s| s["n_past"].as_u64().unwrap_or(0))
            .sum::<u64>()
    };
    assert_eq!(lengths(&server), 0, "the salt's text");
    let save = |name: &str| server.post("/slots/0?action=save", &json!({"filename": name}));
    assert_eq!(save("a.slot").is(200).json()["n_saved"], 0);
    assert_eq!(server.post("/slots/0?action=erase", &json!({})).is(200).json()["n_erased"], 0);
    let again = completion(json!({"cache_salt": "secret"}));
    assert!(again["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64() > Some(0), "{again}");
    for name in ["nul", "NUL.slot", "com1", "LPT9.x", "a."] {
        save(name).is(400);
    }
}
