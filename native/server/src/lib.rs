//! The server of `wf-run serve`: a model with the APIs of OpenAI and Anthropic.
//!
//! [`run`] serves what a [`ServerConfig`] names. One thread owns the engine (`engine::thread`). tokio's
//! threads serve connections and pass requests to it as messages. Imports point one way, which a test
//! checks: errors, ids and times; `access`; `transport` and `operation`; `engine`; `registry`,
//! `response_store` and `state`; the endpoints (`api`); this module, which starts and stops the server.

mod access;
mod api;
mod demo;
mod engine;
mod error;
mod ids;
mod ignored;
mod operation;
mod page;
mod registry;
mod reload;
mod response_store;
mod state;
mod time;
mod transport;

pub use access::keys::{ApiKeys, NamedKey};
pub use engine::grammars::{COMMAND as CHECK_GRAMMARS, serve_checks};
pub use operation::log;
pub use operation::warmup::{Benchmark, Warmup};
pub use registry::startup::{EngineBuilder, EngineLimits};
pub use registry::{Catalog, LoadModel, ModelSource};
pub use reload::{Access, AccessReader};
pub use state::RequestLimits;
pub use transport::tls::Tls;

use access::admission::Admission;
use access::keys::SharedKeys;
use access::{browser, cors, host};
use anyhow::Context;
use engine::disk_cache::DiskCache;
use engine::shared::EngineShared;
use operation::log_writer;
use operation::metrics::Metrics;
use registry::{LoadCommand, Loader, ModelRegistry};
use reload::reload_on_hangup;
use response_store::ResponseStore;
use response_store::files::ResponseFiles;
use state::ServerState;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, RwLock};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, oneshot};
use transport::connection::ConnectionHandler;
use transport::listener::Listener;
use wf_run_cli::config::{Host, Origin, TrustedProxy};
use wf_run_cli::exit::usage;
use wf_run_cli::{out, signals};

/// Number of threads for connections. They parse and format; computing is the engine's.
const CONNECTION_THREADS: usize = 2;

/// Downloads that their clients have left and that have not noticed it.
const LEFT_PULLS: usize = 3;

/// Maximum time for the last events of requests that are cut off.
const CUT_TIME: Duration = Duration::from_secs(2);

/// Configuration of the server.
pub struct ServerConfig {
    /// Reads a model. Runs while the server already answers.
    pub load: LoadModel,
    /// The models.
    pub models: Models,
    /// True if clients may change the local store.
    pub manage_models: bool,
    /// Settings of the engines.
    pub builder: EngineBuilder,
    /// Address to listen on.
    pub host: Host,
    /// Port to listen on; 0 for any free port.
    pub port: u16,
    /// Accepted API keys and the certificate for HTTPS.
    pub access: Access,
    /// Reads keys and certificate again, on SIGHUP.
    pub reread: AccessReader,
    /// Origins of web pages that may send requests (CORS).
    pub origins: Vec<Origin>,
    /// Proxies that name their clients.
    pub proxies: Vec<TrustedProxy>,
    /// Accepted host names besides localhost, for a server without keys.
    pub host_names: Vec<String>,
    /// Folder of the browser demo.
    pub demo: Option<PathBuf>,
    /// Folder of saved slots; `None` if none are saved.
    pub slot_save_path: Option<PathBuf>,
    /// Folder of the prompt cache on disk and its maximum size in bytes; `None` without one.
    pub disk_cache: Option<(PathBuf, u64)>,
    /// Limits of requests.
    pub limits: RequestLimits,
    /// Maximum time for running requests to finish at shutdown.
    pub drain: Duration,
}

/// The models of a server.
pub struct Models {
    /// Those that are known at the start.
    pub sources: Vec<ModelSource>,
    /// Lists them again; `None` if they never change.
    pub catalog: Option<Catalog>,
    /// True if models are loaded when requests name them.
    pub on_demand: bool,
    /// Bytes of all of them in memory together; `None`: no limit.
    pub memory_limit: Option<u64>,
    /// True if the only model answers to any name.
    pub any_name: bool,
}

/// Runs the server until a signal ends it.
///
/// # Errors
/// If the address, the demo or the model cannot be used.
pub fn run(config: ServerConfig) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(CONNECTION_THREADS)
        .enable_all()
        .build()
        .context("cannot start the server's threads")?;
    let ended = runtime.block_on(serve(config));
    // Do not wait for blocking tasks: no client waits for their results.
    runtime.shutdown_background();
    #[cfg(feature = "otlp")]
    operation::otlp::shut_down();
    log_writer::flush();
    ended
}

async fn serve(config: ServerConfig) -> anyhow::Result<()> {
    let ServerConfig { load, models, builder, host, port, access, reread, .. } = config;
    let ServerConfig { limits, drain, manage_models, .. } = config;
    let ServerConfig { origins, proxies, host_names, demo, slot_save_path, disk_cache, .. } =
        config;
    let Access { keys, tls } = access;
    let (sockets, address) = listen(host, port).await?;
    let Models { sources, catalog, on_demand, memory_limit, any_name } = models;
    let (models, commands) =
        ModelRegistry::new(sources, catalog, on_demand, builder.limits.waiting);
    let (shared_keys, metrics) =
        (Arc::new(RwLock::new((keys.clone(), keys.count() as u64))), Arc::new(Metrics::new()));
    let (disk_cache, responses) = open_disk_cache(disk_cache, &shared_keys, &metrics)
        .map_err(|error| usage(format!("{error:#}")))?;
    let draining = Arc::new(AtomicBool::new(false));
    let shared = EngineShared {
        draining: Arc::clone(&draining),
        metrics: Arc::clone(&metrics),
        turns: Arc::default(),
        disk_cache: disk_cache.clone(),
    };
    let server = Arc::new(ServerState {
        models: Arc::new(models.with_any_name(any_name)),
        responses,
        draining,
        metrics,
        keys: shared_keys,
        proxies,
        admission: Admission::new(limits.body),
        limits,
        manage_models,
        pulls: Arc::new(Semaphore::new(1)),
        left_pulls: Arc::new(Semaphore::new(LEFT_PULLS)),
        slot_save_path,
        disk_cache,
    });
    let router = match demo {
        Some(folder) => {
            demo::serve(api::router(&server), &folder).map_err(|e| usage(format!("{e:#}")))?
        }
        None => api::router(&server),
    };
    let (failed, mut load_error) = oneshot::channel();
    let tasks = Handle::current();
    let loader = Loader::new(&server.models, shared, builder, load, tasks, failed, memory_limit);
    let loader = spawn_loader(loader, commands)?;
    let scheme = if tls.is_some() { "https" } else { "http" };
    out::print(&format!("listening on {scheme}://{address}\n"))?;
    let restricted = keys.is_empty() && host.is_loopback();
    let router = if restricted { host::restrict(router, host_names) } else { router };
    let router = browser::restrict(host::require(router), origins.clone());
    let service = cors::allow(api::observed(router, &server), &origins);
    #[cfg(feature = "otlp")]
    let service = operation::otlp::trace_requests(service);
    let handler = ConnectionHandler { service, tls: tls.clone(), timeout: api::CLIENT_TIMEOUT };
    let listener = Listener::new(sockets, handler, server.proxies.clone());
    let shutdown = tokio::select! {
        shutdown = run_until_shutdown(&server, &listener, drain, &mut load_error) => shutdown,
        () = reload_on_hangup(reread, &server, tls) => unreachable!("it never returns"),
    };
    drop(listener);
    if let Some(cache) = &server.disk_cache {
        let _ = tokio::time::timeout(drain, cache.written()).await;
        let _ = tokio::time::timeout(drain, server.responses.written()).await;
    }
    match shutdown {
        Shutdown::LoadFailed(error) => return Err(error),
        // A model that is still loading is abandoned.
        Shutdown::Drained if server.models.close() => {
            let ended = tokio::task::spawn_blocking(move || loader.join());
            let _ = tokio::time::timeout(drain, ended).await;
        }
        Shutdown::Drained | Shutdown::Aborted => {}
    }
    Ok(())
}

/// Opens the prompt cache on disk, if there is one, and the responses that its folder holds.
fn open_disk_cache(
    place: Option<(PathBuf, u64)>,
    keys: &SharedKeys,
    metrics: &Arc<Metrics>,
) -> anyhow::Result<(Option<Arc<DiskCache>>, ResponseStore)> {
    let Some((folder, limit)) = place else { return Ok((None, ResponseStore::default())) };
    let cache = DiskCache::open(&folder, limit, Arc::clone(keys), Arc::clone(metrics))?;
    let folder = folder.join("responses");
    let (files, found) = ResponseFiles::open(folder.clone(), Arc::clone(keys))
        .with_context(|| format!("cannot use the folder {}", folder.display()))?;
    Ok((Some(cache), ResponseStore::with_files(files, found)))
}

/// Listens on the addresses of a host. Returns the sockets and the address of the first one. Others may
/// be missing: not every machine has IPv6.
async fn listen(host: Host, port: u16) -> anyhow::Result<(Vec<TcpListener>, SocketAddr)> {
    let mut sockets = Vec::new();
    let mut bound: Option<SocketAddr> = None;
    for address in host.addresses() {
        let address = SocketAddr::new(address, bound.map_or(port, |bound| bound.port()));
        match (TcpListener::bind(address).await, bound) {
            (Ok(socket), _) => {
                bound = Some(bound.map_or_else(|| socket.local_addr(), Ok)?);
                sockets.push(socket);
            }
            (Err(error), None) => {
                return Err(error).with_context(|| format!("cannot listen on {address}"));
            }
            (Err(error), Some(_)) => tracing::warn!(%address, "cannot listen too: {error}"),
        }
    }
    Ok((sockets, bound.expect("a host has an address")))
}

/// Starts the loader in a thread of its own, because loading takes long and never yields to tokio.
fn spawn_loader(loader: Loader, commands: Receiver<LoadCommand>) -> anyhow::Result<JoinHandle<()>> {
    let thread = std::thread::Builder::new().name("loader".into());
    thread.spawn(|| loader.run(commands)).context("cannot start the loader's thread")
}

/// Outcome of [`run_until_shutdown`].
enum Shutdown {
    /// The model cannot be loaded.
    LoadFailed(anyhow::Error),
    /// All running requests finished.
    Drained,
    /// Some requests were cut off.
    Aborted,
}

/// Accepts connections until a signal arrives or loading fails. After the signal, running requests
/// may finish within `drain` while new ones receive 503; a second signal cuts them off.
async fn run_until_shutdown(
    server: &Arc<ServerState>,
    listener: &Listener,
    drain: Duration,
    load_error: &mut oneshot::Receiver<anyhow::Error>,
) -> Shutdown {
    let mut first = pin!(signals::termination());
    let mut loading = true;
    loop {
        tokio::select! {
            () = &mut first => break,
            error = &mut *load_error, if loading => match error {
                Ok(error) => return Shutdown::LoadFailed(error),
                Err(_) => loading = false,
            },
            () = listener.accept() => {}
        }
    }
    tracing::info!("shutting down: waiting for running requests");
    server.draining.store(true, Ordering::Relaxed);
    let mut second = pin!(signals::termination());
    let mut drained = pin!(tokio::time::timeout(drain, listener.drain()));
    loop {
        tokio::select! {
            drained = &mut drained => {
                if drained.is_ok() {
                    return Shutdown::Drained;
                }
                tracing::warn!("running requests exceeded the drain time and were cut off");
                break;
            }
            () = &mut second => {
                tracing::warn!("received a second signal: running requests were cut off");
                break;
            }
            () = listener.accept() => {}
        }
    }
    // Streams end with an error event, so that clients can tell it from the end of an answer.
    server.models.cut();
    let _ = tokio::time::timeout(CUT_TIME, listener.drain()).await;
    Shutdown::Aborted
}
