//! `wf-run serve`: an OpenAI-compatible server. One thread owns the engine (`worker`), a few others
//! the connections; they talk in messages.

mod api;
mod auth;
mod connection;
mod cors;
mod demo;
mod door;
mod error;
mod host;
mod launch;
pub mod log;
mod metrics;
#[cfg(feature = "otlp")]
mod otlp;
mod page;
mod post;
mod rehearsal;
mod state;
mod tls;
mod worker;

pub use auth::Keys;
pub use launch::Sizes;
pub use rehearsal::{Benchmark, Rehearsal};
pub use state::Limits;
pub use tls::Tls;

use crate::cli::exit::usage;
use crate::cli::out;
use crate::config::Origin;
use crate::machine::{self, Threads};
use crate::models::Loaded;
use anyhow::Context;
use connection::Wire;
use door::Door;
use launch::Launch;
use metrics::Metrics;
use state::Server;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use wrinklefree::model::Runtime;
use wrinklefree::settings::Settings;

/// Loads a model that is to compute on this runtime.
type Load = Box<dyn FnOnce(&Runtime) -> anyhow::Result<Loaded> + Send>;

/// Threads for connections: they parse and format, the engine computes.
const THREADS: usize = 2;
/// Time for a request's headers, between two pieces of its body, and for the client to take an answer.
const SLOW: Duration = Duration::from_secs(30);

/// What the server is told.
pub struct Options {
    /// Loads the model; runs beside the server, which says 503 meanwhile.
    pub load: Load,
    /// The name that requests know the model by, if not its own.
    pub name: Option<String>,
    /// Where to listen.
    pub host: IpAddr,
    /// 0: any free port.
    pub port: u16,
    /// Keys that open it.
    pub keys: Keys,
    /// Web pages that may ask from a browser.
    pub origins: Vec<Origin>,
    /// Names of the server besides localhost.
    pub names: Vec<String>,
    /// The folder of the browser demo.
    pub demo: Option<PathBuf>,
    /// Serve HTTPS.
    pub tls: Option<Tls>,
    /// Bounds of requests.
    pub limits: Limits,
    /// How long running requests may take when the server is to end.
    pub drain: Duration,
    /// What is done before anybody may ask.
    pub rehearsal: Rehearsal,
    /// Threads that compute.
    pub threads: Threads,
    /// Sizes of the engine.
    pub engine: Sizes,
    /// How answers are decoded where a request does not say.
    pub settings: Settings,
}

/// Serves until a signal ends it.
pub fn run(options: Options) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(THREADS)
        .enable_all()
        .build()
        .context("cannot start the server's threads")?;
    let ended = runtime.block_on(serve(options));
    // What is still computed there has nobody who waits for it.
    runtime.shutdown_background();
    #[cfg(feature = "otlp")]
    otlp::finish();
    ended
}

async fn serve(options: Options) -> anyhow::Result<()> {
    let Options { load, name, host, port, keys, limits, drain, threads, engine, .. } = options;
    let Options { origins, names, demo, tls, rehearsal, settings, .. } = options;
    let address = SocketAddr::new(host, port);
    let listener = TcpListener::bind(address).await;
    let listener = listener.with_context(|| format!("cannot listen on {address}"))?;
    let server = Arc::new(Server {
        ready: OnceLock::new(),
        draining: AtomicBool::new(false),
        metrics: Arc::new(Metrics::new()),
        keys,
        limits,
    });
    let router = match demo {
        Some(folder) => {
            demo::serve(api::router(&server), &folder).map_err(|e| usage(format!("{e:#}")))?
        }
        None => api::router(&server),
    };
    let (loaded, mut failed) = oneshot::channel();
    let launch = Launch { name, threads, sizes: engine, settings, rehearsal };
    let (own, tasks) = (server.clone(), Handle::current());
    // A thread of its own: it takes long and never waits for anything of tokio's.
    let loader = std::thread::spawn(move || {
        let started = machine::runtime(threads).and_then(|runtime| {
            let loaded = load(&runtime)?;
            launch.start(loaded, runtime, (&own, &tasks))
        });
        match started {
            Ok(thread) => Some(thread),
            Err(error) => {
                let _ = loaded.send(error);
                None
            }
        }
    });
    let scheme = if tls.is_some() { "https" } else { "http" };
    out::print(&format!("listening on {scheme}://{}\n", listener.local_addr()?))?;
    let guarded = server.keys.is_empty() && host.is_loopback();
    let router = if guarded { host::check(router, names) } else { router };
    let service = cors::allow(router, &origins);
    #[cfg(feature = "otlp")]
    let service = otlp::spans(service);
    let door = Door::new(listener, Wire { service, tls, slow: SLOW });
    let end = attend(&server, &door, drain, &mut failed).await;
    drop(door);
    match end {
        End::Failed(error) => return Err(error),
        // The engine ends when nobody can ask it any more. Whatever is still loaded, nobody waits for.
        End::Drained if server.ready.get().is_some() => {
            drop(server);
            let ended = tokio::task::spawn_blocking(move || {
                loader.join().ok().flatten().map(JoinHandle::join)
            });
            let _ = tokio::time::timeout(drain, ended).await;
        }
        End::Drained | End::CutOff => {}
    }
    Ok(())
}

/// How a server comes to its end.
enum End {
    /// There can be no model.
    Failed(anyhow::Error),
    /// All requests were answered.
    Drained,
    /// Some were not.
    CutOff,
}

/// Lets connections in until a signal, or until there can be no model; then lets running requests
/// finish, while others hear that they come too late.
async fn attend(
    server: &Arc<Server>,
    door: &Door,
    drain: Duration,
    failed: &mut oneshot::Receiver<anyhow::Error>,
) -> End {
    let mut first = pin!(signal());
    let mut loading = true;
    loop {
        tokio::select! {
            () = &mut first => break,
            error = &mut *failed, if loading => match error {
                Ok(error) => return End::Failed(error),
                Err(_) => loading = false,
            },
            () = door.enter() => {}
        }
    }
    tracing::info!("shutting down: running requests may finish");
    server.draining.store(true, Ordering::Relaxed);
    let mut second = pin!(signal());
    let mut drained = pin!(tokio::time::timeout(drain, door.last_requests()));
    loop {
        tokio::select! {
            drained = &mut drained => {
                if drained.is_ok() {
                    return End::Drained;
                }
                tracing::warn!("some requests took too long and were cut off");
                return End::CutOff;
            }
            () = &mut second => {
                tracing::warn!("a second signal: running requests were cut off");
                return End::CutOff;
            }
            () = door.enter() => {}
        }
    }
}

/// Ctrl-C or SIGTERM.
async fn signal() {
    let interrupt = tokio::signal::ctrl_c();
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        if let Ok(mut terminate) = signal(SignalKind::terminate()) {
            tokio::select! { _ = interrupt => {}, _ = terminate.recv() => {} }
            return;
        }
    }
    let _ = interrupt.await;
}
