//! Serves HTTP/1.1 and HTTP/2 on one connection, with limits on how long a client may keep it waiting.

use super::connections::{Busy, Slot};
use super::half_close::{Phase, SharedStream, gone};
use super::http2::{self, AnswerProgress, Answers};
use super::tls::Tls;
use crate::access::client::Peer;
use crate::error::ApiError;
use axum::Router;
use axum::body::Body;
use axum::http::{HeaderValue, Version, header};
use axum::response::{IntoResponse, Response};
use hyper::body::{Body as HttpBody, Bytes, Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_io_timeout::TimeoutStream;
use tower::ServiceExt;

/// Requests that connections of the reserve may send: about the state of the server.
const RESERVED_PATHS: [&str; 2] = ["/health", "/metrics"];
/// Time limit for the headers of such a request.
const RESERVED_TIMEOUT: Duration = Duration::from_secs(5);

/// Serves connections; cloned for each of them.
#[derive(Clone)]
pub struct ConnectionHandler {
    /// Answers requests.
    pub service: Router,
    /// Encrypts connections; `None` for plain HTTP.
    pub tls: Option<Tls>,
    /// Time limit for a request's headers, and for the client to read what was sent.
    pub timeout: Duration,
}

/// A connection and its state.
struct Connection {
    peer: Peer,
    slot: Arc<Slot>,
    phase: Arc<Phase>,
    had_request: AtomicBool,
    /// Answers that are being sent.
    answers: Answers,
    /// True if interim responses can be sent next to HTTP's own bytes.
    plain: bool,
}

impl ConnectionHandler {
    /// Serves the requests of one connection until it closes. Failed handshakes and broken
    /// connections are the client's business: they end the connection and are no errors here.
    pub async fn serve(
        self,
        stream: TcpStream,
        peer: IpAddr,
        slot: Slot,
        draining: watch::Sender<bool>,
    ) {
        // Tokens are sent one by one.
        let _ = stream.set_nodelay(true);
        let (stream, watched) = SharedStream::new(stream);
        let mut stream = TimeoutStream::new(stream);
        // A client that does not read would hold its place forever.
        stream.set_write_timeout(Some(self.timeout));
        let stream = Box::pin(stream);
        let connection = Arc::new(Connection {
            peer: Peer(peer),
            slot: Arc::new(slot),
            phase: Arc::default(),
            had_request: AtomicBool::new(false),
            answers: Answers::default(),
            plain: self.tls.is_none(),
        });
        let limit = self.limit(&connection);
        let served = async {
            match &self.tls {
                None if http2::begins(&watched, limit).await => {
                    self.serve_http2(stream, &connection, draining.subscribe()).await;
                }
                None => self.serve_http1(stream, &connection, draining.subscribe()).await,
                Some(tls) => match tls.accept(stream, limit).await {
                    Ok(stream) if stream.get_ref().1.alpn_protocol() == Some(http2::ALPN) => {
                        self.serve_http2(stream, &connection, draining.subscribe()).await;
                    }
                    Ok(stream) => self.serve_http1(stream, &connection, draining.subscribe()).await,
                    Err(error) => tracing::debug!(%error, "TLS handshake failed"),
                },
            }
        };
        tokio::select! {
            () = served => {}
            () = gone(&watched, &connection.phase) => {}
            () = connection.slot.close.notified() => {}
        }
    }

    /// Time limit for the headers of a request.
    fn limit(&self, connection: &Connection) -> Duration {
        if connection.slot.reserved { RESERVED_TIMEOUT } else { self.timeout }
    }

    /// Answers requests of HTTP/2, several at a time, as [`serve_http1`](Self::serve_http1) does. A
    /// connection without requests ends after the time limit.
    async fn serve_http2<S>(
        &self,
        stream: S,
        connection: &Arc<Connection>,
        mut draining: watch::Receiver<bool>,
    ) where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let (own, service) = (connection.clone(), self.service.clone());
        let answer = service_fn(move |request| {
            let (own, service) = (own.clone(), service.clone());
            async move { own.answer(&service, request).await }
        });
        let http = http2::builder().serve_connection(TokioIo::new(stream), answer);
        let mut http = pin!(http);
        let over = connection.answers.idle_or_stalled(self.limit(connection));
        let mut over = pin!(over);
        tokio::select! {
            _ = http.as_mut() => return,
            () = over.as_mut() => return,
            _ = draining.wait_for(|&draining| draining) => http.as_mut().graceful_shutdown(),
        }
        tokio::select! {
            _ = http => {}
            () = over => {}
        }
    }

    /// Answers requests until the client disconnects. Once `draining` is true, no new request
    /// begins; the receiver is held as long as one is running.
    async fn serve_http1<S>(
        &self,
        stream: S,
        connection: &Connection,
        mut draining: watch::Receiver<bool>,
    ) where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let http = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.limit(connection))
            // `gone` watches for clients that disconnect.
            .half_close(true)
            .serve_connection(
                TokioIo::new(stream),
                service_fn(|request| connection.answer(&self.service, request)),
            );
        let mut http = pin!(http);
        tokio::select! {
            _ = http.as_mut() => return,
            _ = draining.wait_for(|&draining| draining) => {}
        }
        if connection.had_request.load(Ordering::Relaxed) {
            http.as_mut().graceful_shutdown();
        } else {
            // Its first request may be on the way. hyper would close the connection silently;
            // staying open lets the client receive a 503.
            drop(draining);
        }
        let _ = http.await;
    }
}

impl Connection {
    /// Answers one request.
    async fn answer(
        &self,
        service: &Router,
        mut request: hyper::Request<Incoming>,
    ) -> Result<Response, Infallible> {
        self.had_request.store(true, Ordering::Relaxed);
        let multiplexed = request.version() == Version::HTTP_2;
        if multiplexed {
            name_host(&mut request);
        } else {
            self.phase.begin(self.plain && request.version() == Version::HTTP_11);
        }
        let busy = Busy::new(&self.slot);
        let guard =
            Answering { _busy: busy, phase: self.phase.clone(), progress: self.answers.begin() };
        let known = RESERVED_PATHS.contains(&request.uri().path());
        let mut response = if self.slot.reserved && !known {
            let message = "this server has too many connections: try again later";
            ApiError::unavailable(message).into_response()
        } else {
            request.extensions_mut().insert(self.peer);
            service.clone().oneshot(request.map(Body::new)).await?
        };
        if self.slot.reserved && !multiplexed {
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        if !multiplexed {
            self.phase.answer();
        }
        Ok(response.map(|body| Body::new(GuardedBody { body, guard })))
    }
}

/// Adds the `Host` header, which HTTP/2 sends as a part of the target. The target counts if a client sends
/// both.
fn name_host(request: &mut hyper::Request<Incoming>) {
    let host = request.uri().authority().map(|host| HeaderValue::from_str(host.as_str()));
    if let Some(Ok(host)) = host {
        request.headers_mut().insert(header::HOST, host);
    }
}

/// A request in progress; dropped after the last byte of its answer.
struct Answering {
    _busy: Busy,
    phase: Arc<Phase>,
    progress: Arc<AnswerProgress>,
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.phase.end();
    }
}

/// The body of an answer, which keeps its request in progress.
struct GuardedBody {
    body: Body,
    guard: Answering,
}

impl HttpBody for GuardedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        self.guard.progress.asked();
        let frame = Pin::new(&mut self.body).poll_frame(context);
        if frame.is_ready() {
            self.guard.progress.sent();
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::connections::{ConnectionLimits, Connections};
    use axum::routing::get;
    use futures_util::stream;
    use std::io::Write;
    use std::net;
    use std::time::Instant;
    use tokio::net::TcpListener;

    /// Time until the server closes a connection whose client sends `request` and reads nothing.
    async fn connection_time(request: &str) -> Duration {
        let endless = || async {
            let chunks = stream::repeat_with(|| Ok::<_, Infallible>(vec![b'x'; 1 << 16]));
            Body::from_stream(chunks)
        };
        let service = Router::new().route("/", get(endless));
        let timeout = Duration::from_millis(300);
        let handler = ConnectionHandler { service, tls: None, timeout };
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let mut client = net::TcpStream::connect(address).expect("connects");
        client.write_all(request.as_bytes()).expect("sent");
        let (server, _) = listener.accept().await.expect("accepted");
        let (begin, draining) = (Instant::now(), watch::Sender::new(false));
        let slot = Connections::new(ConnectionLimits::new(1)).enter(address.ip(), true);
        let served = handler.serve(server, address.ip(), slot.expect("a place"), draining);
        tokio::time::timeout(Duration::from_secs(20), served).await.expect("it ends");
        drop(client);
        begin.elapsed()
    }

    #[tokio::test]
    async fn stalled_clients_are_disconnected() {
        let preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
        let requests =
            ["GET / HTTP/1.1\r\nhost: x\r\n\r\n", "GET / HTTP/1.1\r\nhos", "PRI * ", preface];
        for request in requests {
            let time = connection_time(request).await;
            assert!(time >= Duration::from_millis(250), "{time:?} for {request:?}");
        }
    }

    /// A connection of the reserve has less time for its handshake than others.
    #[tokio::test]
    async fn stalled_handshakes_end() {
        let rcgen::CertifiedKey { cert, signing_key } =
            rcgen::generate_simple_self_signed(["x".into()]).expect("a certificate");
        let folder = tempfile::tempdir().expect("a folder");
        let [certificate, key] = ["cert", "key"].map(|name| folder.path().join(name));
        std::fs::write(&certificate, cert.pem()).expect("written");
        std::fs::write(&key, signing_key.serialize_pem()).expect("written");
        let tls = Some(Tls::read(&certificate, &key).expect("a pair"));
        let timeout = Duration::from_millis(300);
        let handler = ConnectionHandler { service: Router::new(), tls, timeout };
        for sent in [&b""[..], b"\x16\x03\x01\x02\x00\x01"] {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let address = listener.local_addr().expect("bound");
            let mut client = net::TcpStream::connect(address).expect("connects");
            client.write_all(sent).expect("sent");
            let (server, _) = listener.accept().await.expect("accepted");
            let slot = Connections::new(ConnectionLimits::new(1)).enter(address.ip(), true);
            let (slot, draining) = (slot.expect("a place"), watch::Sender::new(false));
            let served = handler.clone().serve(server, address.ip(), slot, draining);
            tokio::time::timeout(Duration::from_secs(5), served).await.expect("it ends");
        }
    }

    /// The client answers pings and reads nothing of its answer.
    #[tokio::test]
    async fn a_closed_window_ends_a_connection() {
        let endless = || async {
            let chunks = stream::repeat_with(|| Ok::<_, Infallible>(vec![b'x'; 1 << 16]));
            Body::from_stream(chunks)
        };
        let service = Router::new().route("/", get(endless));
        let timeout = Duration::from_millis(300);
        let handler = ConnectionHandler { service, tls: None, timeout };
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let client = TcpStream::connect(address).await.expect("connects");
        let (server, _) = listener.accept().await.expect("accepted");
        let slot = Connections::new(ConnectionLimits::new(1)).enter(address.ip(), true);
        let served =
            handler.serve(server, address.ip(), slot.expect("a place"), watch::Sender::new(false));
        let reading = tokio::spawn(async {
            let (mut requests, connection) = h2::client::handshake(client).await.expect("HTTP/2");
            let driven = tokio::spawn(connection);
            let request = hyper::Request::builder().uri("http://x/").body(()).expect("a request");
            let (response, _) = requests.send_request(request, true).expect("sent");
            let answer = response.await.expect("an answer");
            let _ = driven.await;
            drop(answer);
        });
        tokio::time::timeout(Duration::from_secs(20), served).await.expect("it ends");
        reading.abort();
    }
}
