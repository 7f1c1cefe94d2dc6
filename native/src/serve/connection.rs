//! Serves HTTP/1.1 on one connection, with limits on how long a client may keep it waiting.

use super::client::Peer;
use super::tls::Tls;
use axum::Router;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_io_timeout::TimeoutStream;

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

impl ConnectionHandler {
    /// Serves the requests of one connection until it closes. Failed handshakes and broken
    /// connections are the client's business: they end the connection and are no errors here.
    pub async fn serve(self, stream: TcpStream, draining: watch::Sender<bool>) {
        // Tokens are sent one by one.
        let _ = stream.set_nodelay(true);
        let Ok(peer) = stream.peer_addr() else { return };
        let peer = Peer(peer.ip());
        let mut stream = TimeoutStream::new(stream);
        // A client that does not read would hold its permit forever.
        stream.set_write_timeout(Some(self.timeout));
        let stream = Box::pin(stream);
        match &self.tls {
            None => self.serve_http(stream, peer, draining.subscribe()).await,
            Some(tls) => match tls.accept(stream).await {
                Ok(stream) => self.serve_http(stream, peer, draining.subscribe()).await,
                Err(error) => tracing::debug!(%error, "TLS handshake failed"),
            },
        }
    }

    /// Answers requests until the client disconnects. Once `draining` is true, no new request
    /// begins; the receiver is held as long as one is running.
    async fn serve_http<S>(&self, stream: S, peer: Peer, mut draining: watch::Receiver<bool>)
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let had_request = &AtomicBool::new(false);
        let service = &TowerToHyperService::new(self.service.clone());
        let service = service_fn(move |mut request: hyper::Request<_>| {
            had_request.store(true, Ordering::Relaxed);
            request.extensions_mut().insert(peer);
            service.call(request)
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.timeout)
            .serve_connection(TokioIo::new(stream), service);
        let mut connection = pin!(connection);
        tokio::select! {
            _ = connection.as_mut() => return,
            _ = draining.wait_for(|&draining| draining) => {}
        }
        if had_request.load(Ordering::Relaxed) {
            connection.as_mut().graceful_shutdown();
        } else {
            // Its first request may be on the way. hyper would close the connection silently;
            // staying open lets the client receive a 503.
            drop(draining);
        }
        let _ = connection.await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;
    use axum::routing::get;
    use futures_util::stream;
    use std::convert::Infallible;
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
        let served = handler.serve(server, draining);
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
