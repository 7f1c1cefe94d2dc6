//! Where connections come in.

use super::connection::Wire;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};

/// Connections at the same time.
const CONNECTIONS: usize = 1024;
/// Time for connections to end, and give their files back, before the next one is accepted.
const SHORT_OF_FILES: Duration = Duration::from_secs(1);

/// Lets in as many as there are places for.
pub struct Door {
    listener: TcpListener,
    places: Arc<Semaphore>,
    wire: Wire,
    /// Whether running requests are the last.
    ending: watch::Sender<bool>,
}

impl Door {
    /// Whoever comes through it talks over such a wire.
    pub fn new(listener: TcpListener, wire: Wire) -> Self {
        let (places, ending) = (Semaphore::new(CONNECTIONS), watch::Sender::new(false));
        Self { listener, places: Arc::new(places), wire, ending }
    }

    /// Waits for a connection and serves it in a task of its own.
    pub async fn enter(&self) {
        let place = self.places.clone().acquire_owned().await;
        let stream = self.accept().await;
        let (ending, wire) = (self.ending.clone(), self.wire.clone());
        tokio::spawn(async move {
            wire.converse(stream, ending).await;
            drop(place);
        });
    }

    /// Ends connections that have asked something and wait for nothing more, and waits for those that
    /// do. Who asks for the first time is let in and heard, but not waited for.
    pub async fn last_requests(&self) {
        self.ending.send_replace(true);
        self.ending.closed().await;
    }

    async fn accept(&self) -> TcpStream {
        loop {
            match self.listener.accept().await {
                Ok((stream, _)) => return stream,
                Err(error) if is_the_clients(&error) => {}
                Err(error) => {
                    // Too many files are open, say: the next attempt would fail at once too, and so on.
                    tracing::warn!("cannot accept a connection, trying again in a second: {error}");
                    tokio::time::sleep(SHORT_OF_FILES).await;
                }
            }
        }
    }
}

/// Whether a connection ended before it was accepted.
fn is_the_clients(error: &io::Error) -> bool {
    use ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}
