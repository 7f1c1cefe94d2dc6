//! Transport and start-up of `wf-run serve`: configuration, TLS, CORS, warm-up.

use crate::common::{run, server, wf_run};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use ureq::http::{Request, Response};
use ureq::tls::{Certificate, RootCerts, TlsConfig};
use ureq::{Agent, Body};

/// A server that is killed at the end of the test.
struct Server {
    child: Child,
    address: String,
    client: Agent,
}

impl Server {
    fn start(args: &[&str]) -> Self {
        Self::run(wf_run(&[&["serve", "--port", "0", "-t", "1"], args].concat()), None)
    }

    /// Starts the server and a client that trusts only `certificate`.
    fn run(command: Command, certificate: Option<&str>) -> Self {
        let (child, address) = server::start(command);
        let config = Agent::config_builder().http_status_as_error(false).proxy(None);
        let config = config.timeout_global(Some(Duration::from_secs(60)));
        let client = match certificate {
            None => config.build(),
            Some(pem) => {
                let root = [Certificate::from_pem(pem.as_bytes()).expect("PEM")];
                let roots = RootCerts::new_with_certs(&root);
                config.tls_config(TlsConfig::builder().root_certs(roots).build()).build()
            }
        };
        Self { child, address, client: client.into() }
    }

    fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> Response<Body> {
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.address));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.client.run(request.body(()).expect("a request")).expect("an answer")
    }

    fn wait(&self) {
        let begin = Instant::now();
        while self.ask("GET", "/health", &[]).status() != 200 {
            assert!(begin.elapsed() < Duration::from_secs(60), "the model is loaded in time");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Ends the server and returns its standard error.
    #[cfg(unix)]
    fn log(mut self) -> String {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().expect("runs").success());
        let mut text = String::new();
        self.child.stderr.take().expect("piped").read_to_string(&mut text).expect("text");
        text
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn write(directory: &Path, name: &str, text: &str) -> PathBuf {
    let path = directory.join(name);
    std::fs::write(&path, text).expect("written");
    path
}

#[test]
fn the_demo_is_served_with_isolation_headers() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().to_str().expect("UTF-8");
    run(&["serve", "--port", "0", "--demo", path]).ends(2, &["index.html", "web/build"]);
    write(folder.path(), "index.html", "a page");
    write(folder.path(), "core.wasm", "a module");
    let server = Server::start(&["--demo", path]);
    let mut page = server.ask("GET", "/demo", &[]);
    assert_eq!(page.body_mut().read_to_string().expect("text"), "a page", "after a redirection");
    for (name, value) in [
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-embedder-policy", "require-corp"),
    ] {
        assert_eq!(page.headers()[name], value);
    }
    let module = server.ask("GET", "/demo/core.wasm", &[]);
    assert_eq!(module.headers()["content-type"], "application/wasm");
    for outside in ["/demo/nothing", "/demo/../Cargo.toml", "/demo/%2e%2e/Cargo.toml"] {
        assert_eq!(server.ask("GET", outside, &[]).status(), 404, "{outside}");
    }
}

#[test]
fn a_generated_configuration_loads_unchanged() {
    let directory = tempfile::tempdir().expect("a directory");
    let example = run(&["serve", "--generate-config"]).ends(0, &[]).stdout;
    let file = write(directory.path(), "wf.yaml", &example);
    let file = file.to_str().expect("UTF-8");
    let shown = run(&["serve", "--config", file, "--print-config"]).ends(0, &[]).stdout;
    assert!(shown.contains("port: 30000") && shown.contains(&format!("# {file}:")), "{shown}");
    run(&["generate", "Hello!", "-n", "2", "--config", file]).ends(0, &[]);
}

#[test]
#[cfg(unix)]
fn four_configuration_sources_are_merged() {
    let directory = tempfile::tempdir().expect("a directory");
    let yaml = "port: 0\nserver:\n  served_model_name: file\n  insecure: false\nscheduler:\n  \
                context: 99\ndlm:\n  decode_mode: ar\n";
    let file = write(directory.path(), "wf.yaml", yaml);
    let mut command = wf_run(&["serve", "-c", "64", "-t", "1"]);
    let variables = [("WF_CONFIG", file.to_str().expect("UTF-8")), ("WF_API_KEY", "secret")];
    command.envs(variables).env("WF_PORT", "1").env("WF_CONTEXTS", "1");
    let server = Server::run(command, None);
    server.wait();
    assert_eq!(server.ask("GET", "/v1/models", &[]).status(), 401);
    let key = [("authorization", "Bearer secret")];
    let models = server.ask("GET", "/v1/models", &key).body_mut().read_to_string().expect("text");
    assert!(
        models.contains("\"id\":\"file\"") && models.contains("\"max_model_len\":64"),
        "{models}"
    );
    assert!(!server.address.ends_with(":1"), "the file takes precedence: {}", server.address);
    let log = server.log();
    assert!(log.contains("WF_CONTEXTS sets nothing; did you mean `WF_CONTEXT`?"), "{log}");
}

#[test]
fn invalid_configurations_do_not_start() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = write(directory.path(), "wf.yaml", "dlm:\n  block_size: 4\nserver:\n  prot: 1\n");
    let file = file.to_str().expect("UTF-8");
    for command in [&["serve"][..], &["generate", "x"], &["chat"]] {
        let args = [command, &["--config", file]].concat();
        run(&args).ends(2, &["wf.yaml: line 4: unknown key `prot`"]);
    }
    let ran: crate::common::Ran =
        wf_run(&["serve"]).env("WF_MAX_BODY", "big").output().expect("starts").into();
    ran.ends(2, &["WF_MAX_BODY: `max_body` cannot be `big`"]);
    for wrong in ["loud", "wf_run=loud"] {
        let ran = wf_run(&["serve", "--port", "0"]).env("WF_LOG", wrong).output().expect("runs");
        crate::common::Ran::from(ran).ends(2, &["WF_LOG", wrong, "debug"]);
    }
    run(&["serve", "--api-key", " "]).ends(2, &["an API key is empty"]);
    run(&["serve", "--kv-dtype", "f64"]).ends(2, &["f64", "possible values: f32, f16, bf16"]);
    run(&["serve", "--cors-origin", "example.org"]).ends(2, &["https://example.org"]);
}

#[test]
fn decode_settings_come_from_the_environment() {
    let passes = |variables: &[(&str, &str)], more: &[&str]| {
        let args = ["generate", "Tell me a story.", "-n", "31", "--json"];
        let mut command = wf_run(&[&args[..], more].concat());
        command.envs(variables.iter().copied());
        let ran: crate::common::Ran = command.output().expect("starts").into();
        let ran = ran.ends(0, &[]);
        let answer: serde_json::Value = serde_json::from_str(&ran.stdout).expect("JSON");
        answer["timings"]["forward_passes"].as_u64().expect("a number")
    };
    let greedy = [("WF_DECODE_MODE", "greedy")];
    assert!(passes(&greedy, &[]) <= 3);
    assert_eq!(passes(&greedy, &["--decode-mode", "ar"]), 31);
}

#[test]
fn listed_origins_may_send_requests() {
    let page = ("origin", "https://app.example.org");
    let preflight_headers = [
        page,
        ("access-control-request-method", "POST"),
        ("access-control-request-headers", "authorization,x-stainless-os"),
    ];
    let allowed = |answer: &Response<Body>, name: &str| {
        let value = answer.headers().get(format!("access-control-allow-{name}"));
        value.map(|value| value.to_str().expect("text").to_string())
    };
    let open = ["--cors-origin", page.1, "--cors-origin", "http://localhost:3000"];
    let server = Server::start(&[&open[..], &["--api-key", "secret"]].concat());
    let preflight = server.ask("OPTIONS", "/v1/chat/completions", &preflight_headers);
    assert_eq!(preflight.status(), 200, "a preflight has no key");
    assert_eq!(allowed(&preflight, "origin").as_deref(), Some(page.1));
    assert!(allowed(&preflight, "methods").expect("there").contains("POST"));
    assert!(allowed(&preflight, "headers").expect("there").contains("x-stainless-os"));
    let refused = server.ask("GET", "/v1/models", &[page]);
    assert_eq!((refused.status().as_u16(), allowed(&refused, "origin").is_some()), (401, true));
    let other = server.ask("GET", "/version", &[("origin", "https://evil.example.org")]);
    assert_eq!(allowed(&other, "origin"), None);

    let closed = Server::start(&[]);
    assert_eq!(allowed(&closed.ask("GET", "/version", &[page]), "origin"), None);
    assert_eq!(
        allowed(&closed.ask("OPTIONS", "/v1/chat/completions", &preflight_headers), "origin"),
        None
    );
    let any = Server::start(&["--cors-origin", "*"]);
    assert_eq!(allowed(&any.ask("GET", "/version", &[page]), "origin").as_deref(), Some("*"));
}

/// Returns a certificate for 127.0.0.1 and its key.
fn certificate() -> (String, String) {
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed(["127.0.0.1".into()]).expect("a certificate");
    (cert.pem(), signing_key.serialize_pem())
}

#[test]
fn https_requests_are_served() {
    let directory = tempfile::tempdir().expect("a directory");
    let (pem, key) = certificate();
    let cert = write(directory.path(), "cert.pem", &pem);
    let key = write(directory.path(), "key.pem", &key);
    let files = [cert.to_str().expect("UTF-8"), key.to_str().expect("UTF-8")];
    let args = ["--tls-cert", files[0], "--tls-key", files[1], "--port", "0", "-t", "1"];
    let server = Server::run(wf_run(&[&["serve"], &args[..]].concat()), Some(&pem));
    let address = server.address.strip_prefix("https://").expect("https").to_string();
    server.wait();
    // Silent clients and clients without TLS do not block others.
    let mut silent = TcpStream::connect(&address).expect("connects");
    let mut plain = TcpStream::connect(&address).expect("connects");
    plain.write_all(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n").expect("sent");
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"HTTP"), "no answer without TLS");
    assert_eq!(server.ask("GET", "/version", &[]).status(), 200);
    let (other, _) = certificate();
    let roots = RootCerts::new_with_certs(&[Certificate::from_pem(other.as_bytes()).expect("PEM")]);
    let tls = TlsConfig::builder().root_certs(roots).build();
    let other_client: Agent = Agent::config_builder().tls_config(tls).build().into();
    let error =
        other_client.get(format!("{}/version", server.address)).call().expect_err("unknown");
    assert!(error.to_string().to_lowercase().contains("certificate"), "{error}");
    silent.set_read_timeout(Some(Duration::from_secs(30))).expect("set");
    assert_eq!(silent.read(&mut [0; 9]).unwrap_or(0), 0, "the handshake timed out");
}

#[test]
fn errors_name_the_invalid_certificate() {
    let directory = tempfile::tempdir().expect("a directory");
    let ((cert, key), (_, other)) = (certificate(), certificate());
    for (name, text) in [("cert", &*cert), ("key", &*key), ("other", &*other), ("text", "hello\n")]
    {
        write(directory.path(), name, text);
    }
    let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    write(directory.path(), "broken", broken);
    let path = |name: &str| directory.path().join(name).to_str().expect("UTF-8").to_string();
    for (cert, key, part) in [
        ("cert", "other", "does not match the certificate"),
        ("cert", "none", "cannot read the private key"),
        ("none", "key", "cannot read the certificate"),
        ("text", "key", "has no certificate"),
        ("cert", "text", "has no private key"),
        ("cert", "cert", "has no private key"),
        ("broken", "key", "cannot use the certificate"),
    ] {
        let (cert, key) = (path(cert), path(key));
        run(&["serve", "--tls-cert", &cert, "--tls-key", &key]).ends(2, &[part, &cert[..4]]);
    }
    run(&["serve", "--tls-cert", &path("cert")]).ends(2, &["--tls-key"]);
    run(&["serve", "--tls-key", &path("key")]).ends(2, &["--tls-cert"]);
}

#[test]
#[cfg(unix)]
fn warm_up_and_benchmark_run_before_ready() {
    let args = ["--warmup", "--benchmark", "--benchmark-iterations=2", "--benchmark-max-tokens=20"];
    let server = Server::start(&[&args[..], &["--decode-mode", "iterative"]].concat());
    server.wait();
    let metrics = server.ask("GET", "/metrics", &[]).body_mut().read_to_string().expect("text");
    assert!(metrics.contains("wf_requests_total 0"), "warm-up is not counted: {metrics}");
    let log = server.log();
    let at = |part: &str| log.find(part).unwrap_or_else(|| panic!("no {part} in {log}"));
    assert!(at("warm") < at("iteration=1") && at("iteration=2") < at("ready"), "{log}");
    assert_eq!(log.matches("tokens=20 tokens_per_second=").count(), 2, "{log}");
    assert!(log.contains("iterative 0.9"), "{log}");
}

/// Without free file descriptors the server waits for one: it neither spins nor ends.
#[test]
#[cfg(unix)]
fn the_server_survives_a_lack_of_file_descriptors() {
    let program = env!("CARGO_BIN_EXE_wf-run");
    // Other files take so many that the connections which the server allows cannot all be open.
    let others: String = (3..=9).map(|file| format!(" {file}</dev/null")).collect();
    let limited = format!("ulimit -n 28; exec {program} serve --port 0 -t 1{others}");
    let mut command = Command::new("sh");
    command.args(["-c", &limited]).env("WF_LOG", "warn");
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let server = Server::run(command, None);
    server.wait();
    let address = server.address.strip_prefix("http://").expect("an address");
    let crowd: Vec<_> =
        (0..40).map(|_| TcpStream::connect(address).expect("the system accepts")).collect();
    std::thread::sleep(Duration::from_secs(2));
    drop(crowd);
    server.wait();
    let log = server.log();
    let tries = log.matches("cannot accept a connection").count();
    assert!((1..=10).contains(&tries), "{tries}: {log}");
}

#[test]
#[cfg(unix)]
fn a_certificate_is_replaced_and_checked() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = |name: &str| directory.path().join(name).to_str().expect("UTF-8").to_string();
    let renew = || {
        let (certificate, key) = certificate();
        write(directory.path(), "cert.pem", &certificate);
        write(directory.path(), "key.pem", &key);
        certificate
    };
    let old = renew();
    write(directory.path(), "old.pem", &old);
    let args = ["serve", "--port", "0", "-t", "1", "--tls-cert", &at("cert.pem")];
    let server =
        Server::run(wf_run(&[&args[..], &["--tls-key", &at("key.pem")]].concat()), Some(&old));
    server.wait();
    let health = |more: &[&str]| run(&[&["health", &server.address], more].concat()).code;
    assert_eq!(health(&[]), Some(1), "nobody has signed it");
    assert_eq!(health(&["--insecure"]), Some(0));
    assert_eq!(health(&["--cacert", &at("old.pem")]), Some(0));
    run(&["health", "--cacert", &at("key.pem")]).ends(2, &["has no certificate"]);
    renew();
    let pid = server.child.id().to_string();
    assert!(Command::new("kill").args(["-HUP", &pid]).status().expect("runs").success());
    let begin = Instant::now();
    while health(&["--cacert", &at("cert.pem")]) != Some(0) {
        assert!(
            begin.elapsed() < Duration::from_secs(20),
            "new connections get the new certificate"
        );
    }
    assert_eq!(health(&["--cacert", &at("old.pem")]), Some(1));
}
