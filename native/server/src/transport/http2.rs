//! HTTP/2: over TLS if the client chooses it (ALPN), else by prior knowledge. Each limit that HTTP/1.1 has
//! for a connection holds here too.

use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

/// Name of the protocol in TLS.
pub const ALPN: &[u8] = b"h2";
/// First bytes of a connection. No method of HTTP/1.1 begins so.
const PREFACE: &[u8] = b"PRI * HTTP/2.0";
/// Pause before a connection is looked at again whose first bytes are not all there. Each pause is twice as
/// long as the one before, up to the longest: a crowd that stalls there must cost nothing.
const PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Requests of a connection that run at the same time.
const STREAMS: u32 = 32;
/// Bytes of a request's headers.
const HEADERS: u32 = 16 << 10;
/// Bytes of a body that may arrive before it is read.
const STREAM_WINDOW: u32 = 256 << 10;
/// Bytes of all bodies of a connection that may arrive before they are read.
const CONNECTION_WINDOW: u32 = 1 << 20;
/// Bytes of a response that wait for the client.
const SEND_BUFFER: usize = 64 << 10;
/// Resets that are not handled yet. A client that sends more is disconnected (CVE-2023-44487).
const RESETS: usize = 20;
/// Interval at which a client is asked whether it is there, and the time for its answer.
const PING: Duration = Duration::from_secs(20);

/// Returns the protocol with its limits.
pub fn builder() -> http2::Builder<TokioExecutor> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(HEADERS)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(SEND_BUFFER)
        .max_pending_accept_reset_streams(RESETS)
        .keep_alive_interval(PING)
        .keep_alive_timeout(PING);
    builder
}

/// Waits for the first bytes of a connection without TLS. Returns true if they are those of HTTP/2, and
/// false after `limit`.
pub async fn begins(stream: &TcpStream, limit: Duration) -> bool {
    let looked = async {
        let (mut bytes, mut pause) = ([0; PREFACE.len()], PAUSE);
        loop {
            match stream.peek(&mut bytes).await {
                Ok(count) if count > 0 && PREFACE.starts_with(&bytes[..count]) => {
                    if count == PREFACE.len() {
                        return true;
                    }
                }
                _ => return false,
            }
            // The client has gone, or ended its half: there is no more to come.
            let ready = stream.ready(Interest::READABLE).await;
            if ready.is_ok_and(|ready| ready.is_read_closed()) {
                return false;
            }
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    };
    timeout(limit, looked).await.unwrap_or(false)
}

/// The answers of a connection that are being sent.
#[derive(Debug, Default)]
pub struct Answers(Mutex<Vec<Weak<AnswerProgress>>>);

/// Time since which a part of an answer waits for the client; `None` while the server works on the next.
#[derive(Debug, Default)]
pub struct AnswerProgress(Mutex<Option<Instant>>);

impl AnswerProgress {
    /// The client has taken what was sent.
    pub fn asked(&self) {
        *lock(&self.0) = None;
    }

    /// A part is being sent.
    pub fn sent(&self) {
        *lock(&self.0) = Some(Instant::now());
    }
}

impl Answers {
    /// Adds an answer.
    pub fn begin(&self) -> Arc<AnswerProgress> {
        let progress = Arc::new(AnswerProgress::default());
        let mut all = lock(&self.0);
        all.retain(|answer| answer.strong_count() > 0);
        all.push(Arc::downgrade(&progress));
        progress
    }

    /// Returns true if a client has not read an answer for so long. It may leave the window of one answer
    /// closed while it reads others, which a limit on writing does not see.
    fn stalled(&self, limit: Duration) -> bool {
        let waits = |answer: Arc<AnswerProgress>| {
            lock(&answer.0).is_some_and(|since| since.elapsed() >= limit)
        };
        lock(&self.0).iter().filter_map(Weak::upgrade).any(waits)
    }

    /// Returns true if no answer is being made or sent.
    fn is_empty(&self) -> bool {
        lock(&self.0).iter().all(|answer| answer.strong_count() == 0)
    }

    /// Returns when the connection has had no request for `limit`, or an answer was not read for so long.
    pub async fn idle_or_stalled(&self, limit: Duration) {
        let mut last = Instant::now();
        loop {
            sleep(limit / 8).await;
            if !self.is_empty() {
                last = Instant::now();
            }
            if last.elapsed() >= limit || self.stalled(limit) {
                return;
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
