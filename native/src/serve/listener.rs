//! Accepts connections and serves each one in a task of its own.

use super::connection::ConnectionHandler;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};

/// Maximum number of concurrent connections.
const MAX_CONNECTIONS: usize = 1024;
/// Pause after a failed accept. Meanwhile connections may close and return their file descriptors.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// A listening socket with a limit on concurrent connections.
pub struct Listener {
    socket: TcpListener,
    permits: Arc<Semaphore>,
    handler: ConnectionHandler,
    /// Becomes true when the server drains. Connections hold a receiver while they have requests.
    draining: watch::Sender<bool>,
}

impl Listener {
    /// Serves connections of `socket` with `handler`.
    pub fn new(socket: TcpListener, handler: ConnectionHandler) -> Self {
        let (permits, draining) = (Semaphore::new(MAX_CONNECTIONS), watch::Sender::new(false));
        Self { socket, permits: Arc::new(permits), handler, draining }
    }

    /// Waits for one connection and spawns the task that serves it.
    pub async fn accept(&self) {
        let permit = self.permits.clone().acquire_owned().await;
        let stream = self.next_stream().await;
        let (draining, handler) = (self.draining.clone(), self.handler.clone());
        tokio::spawn(async move {
            handler.serve(stream, draining).await;
            drop(permit);
        });
    }

    /// Closes idle keep-alive connections and waits for running requests. Connections without a
    /// request so far stay open, so that they can receive a 503, but are not waited for.
    pub async fn drain(&self) {
        self.draining.send_replace(true);
        self.draining.closed().await;
    }

    async fn next_stream(&self) -> TcpStream {
        loop {
            match self.socket.accept().await {
                Ok((stream, _)) => return stream,
                Err(error) if closed_by_client(&error) => {}
                Err(error) => {
                    // Out of file descriptors, for example: retrying at once would spin.
                    tracing::warn!("cannot accept a connection, retrying in 1 s: {error}");
                    tokio::time::sleep(RETRY_DELAY).await;
                }
            }
        }
    }
}

/// Returns true if the client closed the connection before it was accepted.
fn closed_by_client(error: &io::Error) -> bool {
    use ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}
