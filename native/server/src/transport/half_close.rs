//! Tells clients that have only ended their request (`nc -N`) from clients that have gone.
//!
//! Both look the same until something is sent: a client that has gone answers with a reset. Parts of
//! a streamed answer show it. Before an answer has begun, an interim response is sent.

use socket2::SockRef;
use std::io::{self, IoSlice};
use std::net::Shutdown;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::sleep;

/// Time for an answer to begin before the interim response is sent.
const GRACE: Duration = Duration::from_secs(2);
/// Pause before a connection with unread bytes is looked at again. While they stay unread, each is twice as
/// long as the one before, up to the longest.
const PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(320);
/// An interim response, which clients skip. It says that the request is being processed (RFC 2518).
const INTERIM: &[u8] = b"HTTP/1.1 102 Processing\r\n\r\n";

/// A connection that is read and written by HTTP, and watched for its end.
pub struct SharedStream(Arc<TcpStream>);

/// Phase of the request on a connection.
#[derive(Debug, Default)]
pub struct Phase(AtomicU8);

const IDLE: u8 = 0;
/// A request is being handled whose client understands interim responses.
const WAITING: u8 = 1;
/// A request of another client is being handled.
const WAITING_SILENTLY: u8 = 2;
const ANSWERING: u8 = 3;

impl Phase {
    /// A request has arrived. `interim` is true if its client understands interim responses.
    pub fn begin(&self, interim: bool) {
        self.0.store(if interim { WAITING } else { WAITING_SILENTLY }, Ordering::Relaxed);
    }

    /// The answer begins.
    pub fn answer(&self) {
        self.0.store(ANSWERING, Ordering::Relaxed);
    }

    /// The answer has ended.
    pub fn end(&self) {
        self.0.store(IDLE, Ordering::Relaxed);
    }
}

impl SharedStream {
    /// Splits a stream into the part for HTTP and the part to watch.
    pub fn new(stream: TcpStream) -> (Self, Arc<TcpStream>) {
        let stream = Arc::new(stream);
        (Self(stream.clone()), stream)
    }
}

/// Returns when the client has gone while a request of it is in progress. Without requests, HTTP sees
/// the end itself.
pub async fn gone(stream: &TcpStream, phase: &Phase) {
    let mut pause = PAUSE;
    loop {
        let waited = Instant::now();
        match stream.ready(Interest::READABLE).await {
            Ok(ready) if ready.is_read_closed() => break,
            Ok(_) => {
                let unread = waited.elapsed() < PAUSE;
                pause = if unread { (pause * 2).min(LONGEST_PAUSE) } else { PAUSE };
                sleep(pause).await;
            }
            Err(_) => return,
        }
    }
    tokio::select! {
        _ = stream.ready(Interest::ERROR) => {}
        () = probe(stream, phase) => {}
    }
}

/// Sends the interim response. Returns if it cannot be sent: the client is taken for gone.
async fn probe(stream: &TcpStream, phase: &Phase) {
    sleep(GRACE).await;
    match phase.0.load(Ordering::Relaxed) {
        WAITING if matches!(stream.try_write(INTERIM), Ok(n) if n == INTERIM.len()) => {}
        WAITING | WAITING_SILENTLY => return,
        _ => {}
    }
    std::future::pending().await
}

impl AsyncRead for SharedStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(self.0.poll_read_ready(context))?;
            match self.0.try_read(buffer.initialize_unfilled()) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return Poll::Ready(read.map(|count| buffer.advance(count))),
            }
        }
    }
}

impl AsyncWrite for SharedStream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.0.poll_write_ready(context))?;
            match self.0.try_write_vectored(parts) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(SockRef::from(&*self.0).shutdown(Shutdown::Write))
    }
}
