//! Connections, and how long a client may keep one waiting.

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
    pub async fn converse(self, stream: TcpStream, ending: watch::Sender<bool>) {
        // Tokens go out one by one.
        let _ = stream.set_nodelay(true);
        let mut stream = TimeoutStream::new(stream);
        // Who does not read what is sent would hold a place for ever.
        stream.set_write_timeout(Some(self.slow));
        let stream = Box::pin(stream);
        match &self.tls {
            None => self.answer(stream, ending.subscribe()).await,
            Some(tls) => match tls.accept(stream).await {
                Ok(stream) => self.answer(stream, ending.subscribe()).await,
                Err(error) => tracing::debug!(%error, "no TLS handshake"),
            },
        }
    }

    /// Answers until the client goes. `ending` becomes true when no more is to be begun, and is held
    /// while there is something to finish.
    async fn answer<S>(&self, stream: S, mut ending: watch::Receiver<bool>)
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let heard = &AtomicBool::new(false);
        let service = &TowerToHyperService::new(self.service.clone());
        let service = service_fn(move |request| {
            heard.store(true, Ordering::Relaxed);
            service.call(request)
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.slow)
            .serve_connection(TokioIo::new(stream), service);
        let mut connection = pin!(connection);
        tokio::select! {
            _ = connection.as_mut() => return,
            _ = ending.wait_for(|&ending| ending) => {}
        }
        if heard.load(Ordering::Relaxed) {
            connection.as_mut().graceful_shutdown();
        } else {
            // Its first request may be on its way. hyper would close the connection without a word,
            // where there is time to say that it comes too late.
            drop(ending);
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
        let (begin, ending) = (Instant::now(), watch::Sender::new(false));
        let talk = wire.converse(server, ending);
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
