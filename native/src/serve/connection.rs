//! Connections, and how long a client may keep one waiting.

use super::tls::Tls;
use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::Watcher;
use hyper_util::service::TowerToHyperService;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_io_timeout::TimeoutStream;

/// What a connection needs.
#[derive(Clone)]
pub struct Wire {
    /// Answers requests.
    pub service: Router,
    /// Encrypts.
    pub tls: Option<Tls>,
    /// Time for a request's headers, and for the client to take what is sent.
    pub slow: Duration,
}

impl Wire {
    /// One connection's requests. A client that breaks off is nobody's error, nor is one that cannot
    /// shake hands.
    pub async fn converse(self, stream: TcpStream, watcher: Watcher) {
        // Tokens go out one by one.
        let _ = stream.set_nodelay(true);
        let mut stream = TimeoutStream::new(stream);
        // Who does not read what is sent would hold a place for ever.
        stream.set_write_timeout(Some(self.slow));
        let stream = Box::pin(stream);
        let _ = match &self.tls {
            None => watcher.watch(self.connection(stream)).await,
            Some(tls) => match tls.accept(stream).await {
                Ok(stream) => watcher.watch(self.connection(stream)).await,
                Err(error) => return tracing::debug!(%error, "no TLS handshake"),
            },
        };
    }

    fn connection<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: S,
    ) -> http1::Connection<TokioIo<S>, TowerToHyperService<Router>> {
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.slow)
            .serve_connection(TokioIo::new(stream), TowerToHyperService::new(self.service.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;
    use axum::routing::get;
    use futures_util::stream;
    use hyper_util::server::graceful::GracefulShutdown;
    use std::convert::Infallible;
    use std::io::Write;
    use std::net;
    use std::time::Instant;
    use tokio::net::TcpListener;

    /// How long the server talks with a client that sends this and reads nothing.
    async fn lasts(request: &str) -> Duration {
        let endless = || async {
            let pieces = stream::repeat_with(|| Ok::<_, Infallible>(vec![b'x'; 1 << 16]));
            Body::from_stream(pieces)
        };
        let service = Router::new().route("/", get(endless));
        let wire = Wire { service, tls: None, slow: Duration::from_millis(300) };
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let mut client = net::TcpStream::connect(address).expect("connects");
        client.write_all(request.as_bytes()).expect("sent");
        let (server, _) = listener.accept().await.expect("accepted");
        let (begin, graceful) = (Instant::now(), GracefulShutdown::new());
        let talk = wire.converse(server, graceful.watcher());
        tokio::time::timeout(Duration::from_secs(20), talk).await.expect("it ends");
        drop(client);
        begin.elapsed()
    }

    #[tokio::test]
    async fn who_does_not_read_or_write_is_left() {
        for request in ["GET / HTTP/1.1\r\nhost: x\r\n\r\n", "GET / HTTP/1.1\r\nhos"] {
            let time = lasts(request).await;
            assert!(time >= Duration::from_millis(250), "{time:?} for {request:?}");
        }
    }
}
