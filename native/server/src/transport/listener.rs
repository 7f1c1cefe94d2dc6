//! Accepts connections and serves each one in a task of its own.

use super::connection::ConnectionHandler;
use super::connections::{ConnectionLimits, Connections};
use futures_util::future::select_all;
use std::io::{self, ErrorKind};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use wf_run_cli::config::TrustedProxy;
use wf_run_cli::system;

/// Maximum number of concurrent connections.
const MAX_CONNECTIONS: usize = 1024;
/// File descriptors that are not for connections: the model, logs, events and the reserve.
const OTHER_FILES: usize = 64;
/// Pause after a failed accept. Meanwhile connections may close and return their file descriptors.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// Connections that may be ending while others already have their places. In a burst of connections, more
/// would use up the file descriptors, and nobody could connect for the pause above.
const ENDING: usize = 16;

/// Listening sockets with limits on concurrent connections.
pub struct Listener {
    sockets: Vec<TcpListener>,
    connections: Arc<Connections>,
    /// Proxies, whose connections are of many clients.
    proxies: Vec<TrustedProxy>,
    handler: ConnectionHandler,
    /// Permits of connections whose tasks have not ended.
    tasks: Arc<Semaphore>,
    /// Becomes true when the server drains. Connections hold a receiver while they have requests.
    draining: watch::Sender<bool>,
}

impl Listener {
    /// Serves connections of `sockets` with `handler`.
    pub fn new(
        sockets: Vec<TcpListener>,
        handler: ConnectionHandler,
        proxies: Vec<TrustedProxy>,
    ) -> Self {
        let limits = ConnectionLimits::new(max_connections());
        let tasks = Arc::new(Semaphore::new(limits.total + limits.reserve + ENDING));
        let (connections, draining) = (Connections::new(limits), watch::Sender::new(false));
        Self { sockets, connections, proxies, handler, tasks, draining }
    }

    /// Waits for one connection and spawns the task that serves it.
    pub async fn accept(&self) {
        let task = self.tasks.clone().acquire_owned().await;
        let (stream, address) = self.next_stream().await;
        let limited = !self.proxies.iter().any(|proxy| proxy.contains(address));
        let Some(slot) = self.connections.enter(address, limited) else {
            tracing::debug!(%address, "refused a connection: too many are open");
            return;
        };
        let (draining, handler) = (self.draining.clone(), self.handler.clone());
        tokio::spawn(async move {
            let _task = task;
            handler.serve(stream, address, slot, draining).await;
        });
    }

    /// Closes idle keep-alive connections and waits for running requests. Connections without a
    /// request so far stay open, so that they can receive a 503, but are not waited for.
    pub async fn drain(&self) {
        self.draining.send_replace(true);
        self.draining.closed().await;
    }

    async fn next_stream(&self) -> (TcpStream, IpAddr) {
        loop {
            let accepts = self.sockets.iter().map(|socket| Box::pin(socket.accept()));
            match select_all(accepts).await.0 {
                Ok((stream, address)) => return (stream, address.ip()),
                Err(error) if closed_by_client(&error) => {}
                Err(error) => {
                    // Out of file descriptors, for example: retrying at once would spin.
                    self.connections.close_idle();
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

/// Returns the number of connections that the limit on open files allows. The soft limit is often
/// 1024; it is raised as far as needed and allowed.
fn max_connections() -> usize {
    let wanted = (MAX_CONNECTIONS + OTHER_FILES) as u64;
    let Some(allowed) = system::raise_open_files(wanted) else { return MAX_CONNECTIONS };
    let allowed = usize::try_from(allowed).unwrap_or(usize::MAX);
    // With very few files, half of them are for connections.
    allowed.saturating_sub(OTHER_FILES).max(allowed / 2).clamp(1, MAX_CONNECTIONS)
}
