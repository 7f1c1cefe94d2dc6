//! Serves HTTP/1.1 on one connection, with limits on how long a client may keep it waiting.

use super::client::Peer;
use super::connections::{Busy, Slot};
use super::error::ApiError;
use super::half_close::{Phase, SharedStream, gone};
use super::tls::Tls;
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
    /// True if interim responses can be sent beside HTTP's own bytes.
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
        let connection = Connection {
            peer: Peer(peer),
            slot: Arc::new(slot),
            phase: Arc::default(),
            had_request: AtomicBool::new(false),
            plain: self.tls.is_none(),
        };
        let served = async {
            match &self.tls {
                None => self.serve_http(stream, &connection, draining.subscribe()).await,
                Some(tls) => match tls.accept(stream).await {
                    Ok(stream) => self.serve_http(stream, &connection, draining.subscribe()).await,
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

    /// Answers requests until the client disconnects. Once `draining` is true, no new request
    /// begins; the receiver is held as long as one is running.
    async fn serve_http<S>(
        &self,
        stream: S,
        connection: &Connection,
        mut draining: watch::Receiver<bool>,
    ) where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let reserved = connection.slot.reserved;
        let http = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(if reserved { RESERVED_TIMEOUT } else { self.timeout })
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
        self.phase.begin(self.plain && request.version() == Version::HTTP_11);
        let guard = Answering { _busy: Busy::new(&self.slot), phase: self.phase.clone() };
        let known = RESERVED_PATHS.contains(&request.uri().path());
        let mut response = if self.slot.reserved && !known {
            let message = "this server has too many connections: try again later";
            ApiError::unavailable(message).into_response()
        } else {
            request.extensions_mut().insert(self.peer);
            service.clone().oneshot(request.map(Body::new)).await?
        };
        if self.slot.reserved {
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        self.phase.answer();
        Ok(response.map(|body| Body::new(GuardedBody { body, _guard: guard })))
    }
}

/// A request in progress; dropped after the last byte of its answer.
struct Answering {
    _busy: Busy,
    phase: Arc<Phase>,
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.phase.end();
    }
}

/// The body of an answer, which keeps its request in progress.
struct GuardedBody {
    body: Body,
    _guard: Answering,
}

impl HttpBody for GuardedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
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
    use crate::serve::connections::{ConnectionLimits, Connections};
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
        for request in ["GET / HTTP/1.1\r\nhost: x\r\n\r\n", "GET / HTTP/1.1\r\nhos"] {
            let time = connection_time(request).await;
            assert!(time >= Duration::from_millis(250), "{time:?} for {request:?}");
        }
    }
}
