//! Access to a running server: TLS handshakes that stall, keys and certificates that change under load, and
//! proxies that name their clients.

use crate::common::server::{Reply, Server, ask, connect_from, start, wait_until};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use serde_json::{Value, json};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use ureq::Agent;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

const CHAT: &str = "/v1/chat/completions";

/// A server with TLS whose certificate and keys can be changed.
struct Secured {
    child: Child,
    /// Address and port.
    address: String,
    folder: TempDir,
    certificate: String,
}

impl Secured {
    /// Starts a server that may open so many files, with these keys.
    fn start(files: usize, keys: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let pair = Pair::new();
        pair.write(folder.path());
        fs::write(folder.path().join("keys"), keys).expect("written");
        let program = env!("CARGO_BIN_EXE_wf-run");
        let mut command = Command::new("sh");
        let tls = "--tls-cert cert --tls-key key --api-key-file keys";
        let serve = format!("serve --port 0 -t 1 --context 2048 {tls}");
        command.args(["-c", &format!("ulimit -n {files}; exec {program} {serve}")]);
        command.current_dir(folder.path()).env("WF_LOG", "warn").env("WF_ISA", "scalar");
        let log = fs::File::create(folder.path().join("log")).expect("made");
        command.stdout(Stdio::piped()).stderr(log);
        let (child, address) = start(command);
        let address = address.strip_prefix("https://").expect("HTTPS").into();
        let server = Self { child, address, folder, certificate: pair.certificate };
        let begin = Instant::now();
        while server.get("/health", "").ok() != Some(200) {
            assert!(begin.elapsed() < Duration::from_secs(60), "the model is loaded in time");
            thread::sleep(Duration::from_millis(20));
        }
        server
    }

    fn hang_up(&self) {
        hang_up(&self.child);
    }

    /// Returns a client that trusts this certificate alone and opens a connection for each request.
    fn client(certificate: &str) -> Agent {
        let root = Certificate::from_pem(certificate.as_bytes()).expect("PEM");
        let tls = TlsConfig::builder().root_certs(RootCerts::new_with_certs(&[root])).build();
        let config = Agent::config_builder().http_status_as_error(false).proxy(None);
        let config = config.tls_config(tls).timeout_global(Some(Duration::from_secs(200)));
        config.max_idle_connections(0).build().into()
    }

    /// Returns the status of a request of a client that trusts the first certificate.
    fn get(&self, path: &str, key: &str) -> Result<u16, ureq::Error> {
        get(&Self::client(&self.certificate), &self.address, path, key)
    }
}

impl Drop for Secured {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn get(client: &Agent, address: &str, path: &str, key: &str) -> Result<u16, ureq::Error> {
    let request = client.get(format!("https://{address}{path}"));
    Ok(request.header("authorization", format!("Bearer {key}")).call()?.status().as_u16())
}

fn hang_up(child: &Child) {
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-HUP", &pid]).status().expect("runs").success());
}

/// A certificate for 127.0.0.1 and its key.
struct Pair {
    certificate: String,
    key: String,
}

impl Pair {
    fn new() -> Self {
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(["127.0.0.1".into()]).expect("a certificate");
        Self { certificate: cert.pem(), key: signing_key.serialize_pem() }
    }

    fn write(&self, folder: &Path) {
        fs::write(folder.join("cert"), &self.certificate).expect("written");
        fs::write(folder.join("key"), &self.key).expect("written");
    }
}

/// The first message of a handshake.
fn client_hello() -> Vec<u8> {
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    let name = "localhost".try_into().expect("a name");
    let mut hello = Vec::new();
    let mut client = ClientConnection::new(Arc::new(config), name).expect("a client");
    client.write_tls(&mut hello).expect("written");
    hello
}

/// Waits until the server has closed a connection.
fn wait_for_end(stream: &mut TcpStream, limit: Duration) -> bool {
    let begin = Instant::now();
    stream.set_read_timeout(Some(Duration::from_millis(100))).expect("set");
    while begin.elapsed() < limit {
        match stream.read(&mut [0; 4096]) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => return true,
        }
    }
    false
}

/// Three times as many handshakes as there are places stall at each of their steps: others are served at
/// once, and none of those handshakes takes longer than 10 s.
#[test]
#[cfg(target_os = "linux")]
fn handshakes_that_stall_stop_nobody() {
    // 128 files are 64 connections, 48 of one address.
    let server = Secured::start(128, "key\n");
    let hello = client_hello();
    let steps: [&[u8]; 5] =
        [b"", &hello[..3], &hello[..hello.len() / 2], &hello, b"\x16\x03\x01\xff\xff"];
    let begin = Instant::now();
    let mut stalled: Vec<TcpStream> = (0..200)
        .map(|number| {
            let from = ["127.0.0.2", "127.0.0.3", "127.0.0.4"][number % 3];
            let mut stream = connect_from(from, &server.address);
            let _ = stream.write_all(steps[number % steps.len()]);
            stream
        })
        .collect();
    for _ in 0..5 {
        let asked = Instant::now();
        assert_eq!(server.get("/v1/models", "key").expect("an answer"), 200);
        assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
    }
    let log = fs::read_to_string(server.folder.path().join("log")).expect("text");
    assert!(!log.contains("cannot accept a connection"), "{log}");
    // A client that sends its message byte by byte wins no time.
    let mut slow = connect_from("127.0.0.5", &server.address);
    for byte in &hello[..90] {
        if slow.write_all(&[*byte]).is_err() {
            break;
        }
        thread::sleep(Duration::from_millis(120));
    }
    assert!(wait_for_end(&mut slow, Duration::from_secs(2)), "10 s have passed");
    let open = stalled
        .iter_mut()
        .filter_map(|stream| (!wait_for_end(stream, Duration::from_millis(200))).then_some(()));
    assert_eq!(open.count(), 0, "after {:?}", begin.elapsed());
}

#[test]
fn both_versions_of_tls_are_served() {
    let server = Secured::start(1024, "key\n");
    let mut roots = RootCertStore::empty();
    let pem = server.certificate.as_bytes();
    roots.add(CertificateDer::from_pem_slice(pem).expect("PEM")).expect("a root");
    for version in [&TLS12, &TLS13] {
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[version])
            .expect("a version")
            .with_root_certificates(roots.clone())
            .with_no_client_auth();
        let name = "127.0.0.1".try_into().expect("a name");
        let client = ClientConnection::new(Arc::new(config), name).expect("a client");
        let stream = TcpStream::connect(&server.address).expect("connects");
        let mut stream = StreamOwned::new(client, stream);
        let request = "GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).expect("sent");
        let mut text = String::new();
        let _ = stream.read_to_string(&mut text);
        assert!(text.starts_with("HTTP/1.1 200"), "{text}");
        assert_eq!(stream.conn.protocol_version(), Some(version.version));
    }
}

/// Handshakes one after the other, from ten threads: their computation delays nobody for long.
#[test]
fn many_handshakes_delay_nobody() {
    let server = Secured::start(1024, "key\n");
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        let attack = || {
            let client = Secured::client(&server.certificate);
            let mut count = 0;
            while !ended.load(Ordering::Relaxed) {
                count += usize::from(get(&client, &server.address, "/version", "").is_ok());
            }
            count
        };
        let attackers: Vec<_> = (0..10).map(|_| scope.spawn(attack)).collect();
        let times: Vec<Duration> = (0..20)
            .map(|_| {
                let begin = Instant::now();
                assert_eq!(server.get("/health", "").expect("an answer"), 200);
                begin.elapsed()
            })
            .collect();
        ended.store(true, Ordering::Relaxed);
        let count: usize = attackers.into_iter().map(|a| a.join().expect("it ends")).sum();
        let worst = times.iter().max().expect("some");
        println!("{count} handshakes, the slowest answer took {worst:?}");
        assert!(count > 20 && *worst < Duration::from_secs(2), "{worst:?}");
    });
}

/// Returns the text of a streamed answer to a client with this key.
fn story(client: &Agent, address: &str, key: &str, seed: usize) -> Result<String, ureq::Error> {
    let more = json!({"stream": true, "seed": seed, "temperature": 1, "max_tokens": 250,
        "ignore_eos": true});
    let request = client.post(format!("https://{address}{CHAT}"));
    let request = request.header("authorization", format!("Bearer {key}"));
    let request = request.content_type("application/json");
    let mut answer = request.send(ask("Tell me a story.", more).to_string())?;
    let body = answer.body_mut().read_to_string()?;
    Ok(Reply { status: answer.status().as_u16(), head: String::new(), body }.is(200).streamed())
}

/// SIGHUP again and again while streams run and connections come: texts stay, no connection fails, each new
/// certificate and key is used, and a key that is removed loses its next request but not its stream.
#[test]
fn reloads_under_load_change_keys_and_certificates_alone() {
    let server = Secured::start(1024, "stays\nremoved\n");
    let (address, folder) = (&server.address, server.folder.path());
    let first = &Secured::client(&server.certificate);
    let alone: Vec<String> =
        (0..4).map(|seed| story(first, address, "stays", seed).expect("a story")).collect();
    let keys = |text: &str| fs::write(folder.join("keys"), text).expect("written");
    thread::scope(|scope| {
        let streams: Vec<_> = (0..4)
            .map(|seed| {
                let key = if seed == 0 { "removed" } else { "stays" };
                scope.spawn(move || story(first, address, key, seed).expect("a whole stream"))
            })
            .collect();
        while running(first, address) < 4 {
            thread::sleep(Duration::from_millis(5));
        }
        let mut old: Option<(Pair, String)> = None;
        for round in 0..6 {
            let (pair, key) = (Pair::new(), format!("new{round}"));
            pair.write(folder);
            keys(&format!("stays\n{key}\n"));
            server.hang_up();
            let client = Secured::client(&pair.certificate);
            wait_until("the new pair is used", || {
                get(&client, address, "/v1/models", &key).ok() == Some(200)
            });
            let status = |key: &str| get(&client, address, "/v1/models", key).expect("an answer");
            assert_eq!(["removed", "stays"].map(status), [401, 200], "round {round}");
            if let Some((pair, key)) = old.replace((pair, key)) {
                assert_eq!(status(&key), 401, "the key before");
                let before = Secured::client(&pair.certificate);
                assert!(get(&before, address, "/health", "").is_err(), "the certificate before");
            }
        }
        let (last, _) = old.expect("there were some");
        let client = Secured::client(&last.certificate);
        assert!(streams.iter().any(|stream| !stream.is_finished()), "streams run meanwhile");
        // A certificate without its key: the keys in the file are not used either.
        fs::write(folder.join("cert"), Pair::new().certificate).expect("written");
        keys("stays\nother\n");
        server.hang_up();
        for _ in 0..10 {
            assert_eq!(get(&client, address, "/v1/models", "other").expect("an answer"), 401);
            assert_eq!(get(&client, address, "/v1/models", "stays").expect("an answer"), 200);
            thread::sleep(Duration::from_millis(50));
        }
        for (stream, alone) in streams.into_iter().zip(&alone) {
            assert_eq!(&stream.join().expect("it ends"), alone);
        }
    });
}

/// Returns the number of requests that run.
fn running(client: &Agent, address: &str) -> u64 {
    let request = client.get(format!("https://{address}/v1/loads"));
    let mut answer = request.header("authorization", "Bearer stays").call().expect("an answer");
    let text = answer.body_mut().read_to_string().expect("text");
    let loads: Value = serde_json::from_str(&text).expect("JSON");
    loads["num_running_reqs"].as_u64().expect("a number")
}

/// A key file that became a pipe: the server waits for its text, and answers meanwhile with the old keys.
#[test]
fn a_reload_that_waits_stops_nobody() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("keys");
    fs::write(&file, "old\n").expect("written");
    let server = Server::start(&["--api-key-file", file.to_str().expect("UTF-8")]);
    let status = |key: &str| {
        server.send("GET", "/v1/models", &format!("authorization: Bearer {key}\r\n"), "").status
    };
    fs::remove_file(&file).expect("removed");
    assert!(Command::new("mkfifo").arg(&file).status().expect("runs").success());
    hang_up(&server.child);
    for _ in 0..10 {
        let begin = Instant::now();
        assert_eq!(["old", "new"].map(status), [200, 401]);
        assert!(begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
        thread::sleep(Duration::from_millis(50));
    }
    fs::write(&file, "new\n").expect("written to the waiting server");
    wait_until("the new key is used", || status("new") == 200);
    assert_eq!(status("old"), 401);
}

/// A request with a body of 12 bytes from a proxy.
fn forwarded(server: &Server, from: &str, headers: &[u8]) -> u16 {
    let mut stream = connect_from(from, &server.address);
    let body = r#"{"a": "bcd"}"#;
    let head = format!("POST {CHAT} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n");
    let length = format!("content-length: {}\r\n\r\n{body}", body.len());
    stream.write_all(&[head.as_bytes(), headers, length.as_bytes()].concat()).expect("sent");
    let mut text = Vec::new();
    let _ = stream.read_to_end(&mut text);
    Reply::all(&String::from_utf8_lossy(&text)).first().map_or(0, |reply| reply.status)
}

/// Bodies of 4 MB that are sent but for their ends: all that one client may have.
fn fill_budget(server: &Server, from: &str, headers: &str) -> Vec<TcpStream> {
    let open = || {
        let (mut stream, length) = (connect_from(from, &server.address), 4 << 20);
        let head = format!("POST {CHAT} HTTP/1.1\r\nhost: localhost\r\n{headers}\r\n");
        let head = format!("{head}content-length: {length}\r\n\r\n");
        stream.write_all(head.as_bytes()).expect("sent");
        let _ = stream.write_all(&vec![b' '; length - 1]);
        stream
    };
    // A body that comes while the budget is asked for may be refused, so there may be more than four.
    let mut held = Vec::new();
    wait_until("the budget is used", || {
        held.push(open());
        forwarded(server, from, format!("{headers}\r\n").as_bytes()) == 429
    });
    held
}

/// A client of a proxy stays the same one whatever it writes in front of what the proxy adds; other clients
/// of the proxy are others, and a stranger cannot speak for anybody.
#[test]
#[cfg(target_os = "linux")]
fn proxies_name_their_clients_and_nobody_else_does() {
    let proxies = ["--trusted-proxy", "127.0.0.2", "--trusted-proxy", "127.0.1.0/24"];
    let server = Server::start(&proxies);
    let held = fill_budget(&server, "127.0.0.2", "x-forwarded-for: 9.9.9.9");
    let same: [&[u8]; 12] = [
        b"x-forwarded-for: 9.9.9.9\r\n",
        b"X-Forwarded-For: 9.9.9.9:51234\r\n",
        b"x-forwarded-for: 1.1.1.1, 9.9.9.9\r\n",
        b"x-forwarded-for: 1.1.1.1\r\nx-forwarded-for: 9.9.9.9\r\n",
        b"x-forwarded-for: ::ffff:9.9.9.9\r\n",
        b"x-forwarded-for: 9.9.9.9, 127.0.1.7, 127.0.0.2\r\n",
        b"x-forwarded-for: \xff, 9.9.9.9\r\n",
        b"x-forwarded-for: \xff, 9.9.9.9\r\nforwarded: for=1.1.1.1\r\n",
        b"forwarded: for=1.1.1.1\r\nx-forwarded-for: 9.9.9.9\r\n",
        b"forwarded: for=9.9.9.9\r\n",
        b"forwarded: for=\"1.1.1.1, for=\"9.9.9.9:80\";proto=https\r\n",
        b"forwarded: for=1.1.1.1;by=127.0.0.2, By=x;FOR=9.9.9.9\r\n",
    ];
    for headers in same {
        let text = String::from_utf8_lossy(headers);
        assert_eq!(forwarded(&server, "127.0.0.2", headers), 429, "{text}");
        assert_eq!(forwarded(&server, "127.0.1.9", headers), 429, "{text} by the network's proxy");
        assert_eq!(forwarded(&server, "127.0.0.3", headers), 400, "{text} by a stranger");
    }
    let others: [&[u8]; 8] = [
        b"x-forwarded-for: 9.9.9.8\r\n",
        b"x-forwarded-for: 9.9.9.9, 9.9.9.8\r\n",
        b"x-forwarded-for: [2001:db8::1]:443\r\n",
        b"forwarded: for=\"[2001:db8::1]:443\"\r\n",
        b"x-forwarded-for: 9.9.9.9, unknown\r\n",
        b"x-forwarded-for: 9.9.9.9, \xff\r\n",
        b"x-forwarded-for:\r\nforwarded: for=9.9.9.9\r\n",
        b"",
    ];
    for headers in others {
        let text = String::from_utf8_lossy(headers);
        assert_eq!(forwarded(&server, "127.0.0.2", headers), 400, "{text}");
    }
    drop(held);
    wait_until("the budget is free", || {
        forwarded(&server, "127.0.0.2", b"x-forwarded-for: 9.9.9.9\r\n") == 400
    });
    // A network of 64 bits is one client.
    let _held = fill_budget(&server, "127.0.0.2", "x-forwarded-for: 2001:db8::1");
    let status = |text: &str| {
        forwarded(&server, "127.0.0.2", format!("x-forwarded-for: {text}\r\n").as_bytes())
    };
    assert_eq!(status("[2001:db8::ffff:1]:80"), 429);
    assert_eq!(status("2001:db8:0:1::1"), 400);
}

/// Issue: each connection whose first bytes might begin HTTP/2 was looked at 200 times a second.
#[test]
#[cfg(target_os = "linux")]
fn connections_that_might_begin_http2_cost_little() {
    let server = Server::start(&[]);
    let crowd: Vec<TcpStream> = (0..500)
        .map(|_| {
            let mut stream = connect_from("127.0.0.2", &server.address);
            stream.write_all(b"P").expect("sent");
            stream
        })
        .collect();
    thread::sleep(Duration::from_millis(2500));
    let (before, begin) = (server.cpu_seconds(), Instant::now());
    thread::sleep(Duration::from_secs(3));
    let share = (server.cpu_seconds() - before) / begin.elapsed().as_secs_f64();
    println!("{:.1} % of a core", 100.0 * share);
    assert!(share < 0.08, "{:.1} % of a core", 100.0 * share);
    drop(crowd);
    let open = || {
        let files = fs::read_dir(format!("/proc/{}/fd", server.child.id())).expect("it runs");
        files.count()
    };
    wait_until("they are closed when their clients have gone", || open() < 100);
}
