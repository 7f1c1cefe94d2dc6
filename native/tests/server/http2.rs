//! HTTP/2: prior knowledge, TLS, several requests on a connection, and its limits.

use crate::common::server::Server;
use crate::common::wf_run;
use h2::client::{self, SendRequest};
use hyper::body::Bytes;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use ureq::http::Request;

/// Starts HTTP/2 on a connection.
async fn http2(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> SendRequest<Bytes> {
    let (requests, connection) = client::handshake(stream).await.expect("HTTP/2");
    tokio::spawn(connection);
    requests
}

async fn connect(address: &str) -> SendRequest<Bytes> {
    http2(TcpStream::connect(address).await.expect("connects")).await
}

/// Sends a request; returns the status and the text of the response.
async fn ask(requests: &SendRequest<Bytes>, url: &str, body: Option<Value>) -> (u16, String) {
    let method = if body.is_some() { "POST" } else { "GET" };
    let request = Request::builder().method(method).uri(url);
    let request = request.header("content-type", "application/json").body(()).expect("a request");
    let mut ready = requests.clone().ready().await.expect("a stream");
    let (response, mut sends) = ready.send_request(request, body.is_none()).expect("sent");
    if let Some(body) = body {
        sends.send_data(body.to_string().into(), true).expect("sent");
    }
    let response = response.await.expect("a response");
    let (status, mut body) = (response.status().as_u16(), response.into_body());
    let mut text = Vec::new();
    while let Some(part) = body.data().await {
        let part = part.expect("a part");
        body.flow_control().release_capacity(part.len()).expect("released");
        text.extend_from_slice(&part);
    }
    (status, String::from_utf8(text).expect("text"))
}

#[tokio::test]
async fn many_requests_share_a_connection() {
    let server = Server::start(&[]);
    let requests = connect(&server.address).await;
    let url = |path: &str| format!("http://{}{path}", server.address);
    assert_eq!(ask(&requests, &url("/health"), None).await.0, 200);
    let body = |i: u64| {
        let messages = json!([{"role": "user", "content": "Tell me a story about a fox."}]);
        json!({"messages": messages, "max_tokens": 24, "temperature": 1, "seed": i, "stream": i % 2 == 1})
    };
    let all = (0..8).map(|i| {
        let (requests, url) = (requests.clone(), url("/v1/chat/completions"));
        tokio::spawn(async move { ask(&requests, &url, Some(body(i))).await })
    });
    for (i, answer) in all.collect::<Vec<_>>().into_iter().enumerate() {
        let (status, text) = answer.await.expect("no panic");
        assert_eq!(status, 200, "{text}");
        assert_eq!(text.ends_with("data: [DONE]\n\n"), i % 2 == 1, "{text}");
        if i % 2 == 0 {
            let answer: Value = serde_json::from_str(&text).expect("JSON");
            let alone = server.chat(&body(i as u64)).is(200).json();
            assert_eq!(answer["choices"], alone["choices"], "as over HTTP/1.1");
        }
    }
    // Names of other hosts are refused as in HTTP/1.1, and without a name there is no request.
    let (status, text) = ask(&requests, "http://evil.example.org/health", None).await;
    assert_eq!(status, 403, "{text}");
    let (status, _) = ask(&requests, &url("/nothing"), None).await;
    assert_eq!(status, 404);
}

#[tokio::test]
async fn a_connection_has_limits() {
    let server = Server::start(&[]);
    let requests = connect(&server.address).await;
    let url = format!("http://{}/health", server.address);
    ask(&requests, &url, None).await;
    assert_eq!(requests.current_max_send_streams(), 32);
    let large = Request::builder().uri(&url).header("x-large", "x".repeat(20_000)).body(());
    let mut ready = requests.clone().ready().await.expect("a stream");
    let (response, _) = ready.send_request(large.expect("a request"), true).expect("sent");
    match response.await {
        Ok(response) => assert_eq!(response.status(), 431),
        Err(error) => assert!(error.is_reset() || error.is_go_away(), "{error}"),
    }
    // A client that resets its requests at once is disconnected, or the server goes on.
    for _ in 0..200 {
        let Ok(mut ready) = requests.clone().ready().await else { break };
        let request = Request::builder().uri(&url).body(()).expect("a request");
        let Ok((_, mut sends)) = ready.send_request(request, true) else { break };
        sends.send_reset(h2::Reason::CANCEL);
    }
    let other = connect(&server.address).await;
    assert_eq!(ask(&other, &url, None).await.0, 200);
}

/// A request that its client resets ends in the engine.
#[tokio::test]
async fn a_reset_cancels_the_request() {
    let server = Server::slow(&[]);
    let requests = connect(&server.address).await;
    let url = format!("http://{}/v1/completions", server.address);
    let request = Request::builder().method("POST").uri(&url).body(()).expect("a request");
    let mut ready = requests.clone().ready().await.expect("a stream");
    let (response, mut sends) = ready.send_request(request, false).expect("sent");
    let body = json!({"prompt": "Once", "max_tokens": 1500, "stream": true, "ignore_eos": true});
    sends.send_data(body.to_string().into(), true).expect("sent");
    let mut body = response.await.expect("a response").into_body();
    body.data().await.expect("a part").expect("read");
    assert_eq!(server.get("/v1/loads").json()["num_running_reqs"], 1);
    sends.send_reset(h2::Reason::CANCEL);
    drop(body);
    tokio::task::spawn_blocking(move || server.idle()).await.expect("idle");
}

#[tokio::test]
async fn tls_offers_both_versions() {
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed(["localhost".to_string()]).expect("a certificate");
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("UTF-8").to_string();
    std::fs::write(path("cert"), cert.pem()).expect("written");
    std::fs::write(path("key"), signing_key.serialize_pem()).expect("written");
    let (cert_path, key_path) = (path("cert"), path("key"));
    let args = ["serve", "--port", "0", "--tls-cert", &cert_path, "--tls-key", &key_path];
    let (mut child, address) = crate::common::server::start(wf_run(&args));
    let address = address.strip_prefix("https://").expect("HTTPS").to_string();
    let mut roots = RootCertStore::empty();
    roots.add(cert.der().clone()).expect("a root");
    for (offered, want) in [(&b"h2"[..], 2), (b"http/1.1", 1)] {
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots.clone());
        let mut config = config.with_no_client_auth();
        config.alpn_protocols = vec![offered.to_vec()];
        let stream = TcpStream::connect(&address).await.expect("connects");
        let name = ServerName::try_from("localhost").expect("a name");
        let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await;
        let stream = stream.expect("TLS");
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(offered));
        if want == 2 {
            let requests = http2(stream).await;
            let url = format!("https://localhost:{}/health", address.rsplit(':').next().unwrap());
            for _ in 0..600 {
                if ask(&requests, &url, None).await.0 == 200 {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            assert_eq!(ask(&requests, &url, None).await.0, 200);
        }
    }
    let _ = child.kill();
    let _ = child.wait();
}
