//! `wf-run serve`: an OpenAI-compatible server. One thread owns the engine (`worker`), a few others
//! the connections; they talk in messages.

mod api;
mod auth;
mod connection;
mod cors;
mod demo;
mod error;
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
pub use cors::Origin;
pub use rehearsal::{Benchmark, Rehearsal};
pub use state::Limits;
pub use tls::Tls;

use crate::exit::usage;
use crate::loaded::Loaded;
use crate::machine::Threads;
use crate::stretch::beyond;
use crate::{args, decoding, machine, out, row_cost};
use anyhow::{Context, anyhow};
use connection::Wire;
use hyper_util::server::graceful::GracefulShutdown;
use metrics::Metrics;
use state::{Ready, Server, now};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, oneshot};
use worker::Worker;
use wrinklefree::cache::{KvConfig, KvPool, PAGE};
use wrinklefree::engine::{Engine, EngineConfig};
use wrinklefree::model::Runtime;
use wrinklefree::settings::Settings;

/// Loads a model that is to compute on this runtime.
type Load = Box<dyn FnOnce(&Runtime) -> anyhow::Result<Loaded> + Send>;

/// Threads for connections: they parse and format, the engine computes.
const THREADS: usize = 2;
/// Connections at the same time.
const CONNECTIONS: usize = 1024;
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

/// Sizes of the engine.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Positions of a sequence, if not the usual.
    pub context: Option<usize>,
    /// Tokens that stay when a sequence's context is full, if it goes on then.
    pub shift: Option<usize>,
    /// Sequences at the same time.
    pub sequences: usize,
    /// Requests that wait.
    pub waiting: usize,
    /// Positions of all sequences together, if not as many as fit.
    pub kv_tokens: Option<usize>,
    /// What is kept of keys and values, and what is read of them.
    pub kv: KvConfig,
    /// Rows of a forward pass.
    pub rows: usize,
    /// Prompts share what was computed for the same beginning.
    pub radix_cache: bool,
}

/// Serves until a signal ends it.
pub fn run(options: Options) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(THREADS)
        .enable_all()
        .build()
        .context("cannot start the server's threads")?;
    let ended = runtime.block_on(serve(options));
    #[cfg(feature = "otlp")]
    otlp::finish();
    ended
}

async fn serve(options: Options) -> anyhow::Result<()> {
    let Options { load, name, host, port, keys, limits, drain, threads, engine, .. } = options;
    let Options { origins, demo, tls, rehearsal, settings, .. } = options;
    let address = SocketAddr::new(host, port);
    let listener = TcpListener::bind(address).await;
    let listener = listener.map_err(|e| usage(format!("cannot listen on {address}: {e}")))?;
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
    let (own, tasks) = (server.clone(), Handle::current());
    // A thread of its own: it takes long and never waits for anything of tokio's.
    let loader = std::thread::spawn(move || {
        let started = machine::runtime(threads).and_then(|runtime| {
            let loaded = load(&runtime)?;
            start(loaded, name, (runtime, threads), engine, settings, rehearsal, (&own, &tasks))
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
    let service = cors::allow(router, &origins);
    #[cfg(feature = "otlp")]
    let service = otlp::spans(service);
    let error =
        accept(&server, &listener, Wire { service, tls, slow: SLOW }, drain, &mut failed).await;
    drop(listener);
    match error {
        Some(error) => Err(error),
        None => {
            // The engine ends when nobody can ask it any more.
            drop(server);
            let ended = tokio::task::spawn_blocking(move || {
                loader.join().ok().flatten().map(JoinHandle::join)
            });
            let _ = tokio::time::timeout(drain, ended).await;
            Ok(())
        }
    }
}

/// Starts the engine's thread.
fn start(
    loaded: Loaded,
    name: Option<String>,
    (runtime, threads): (Runtime, Threads),
    sizes: Sizes,
    settings: Settings,
    rehearsal: Rehearsal,
    (server, tasks): (&Server, &Handle),
) -> anyhow::Result<JoinHandle<()>> {
    let isa = runtime.kernels.isa().name();
    // What cannot be decoded is said now and not to every request.
    let mode = settings.mode(&loaded.ability())?;
    decoding::warn(&settings, &loaded.ability(), &mode);
    let Loaded { name: own, model, tokenizer, template, defaults, dlm, time } = loaded;
    let Some(tokenizer) = tokenizer else {
        return Err(anyhow!("{own} has no tokenizer: put its tokenizer.json beside the weights"));
    };
    let spec = model.spec();
    let (vocab, hidden) = (spec.vocab_size, spec.hidden_size);
    let context = args::context(sizes.context, spec);
    let page = KvPool::bytes(spec, 1, &sizes.kv) as u64;
    let wanted = sizes.sequences.saturating_mul(context.div_ceil(PAGE));
    let pages = match sizes.kv_tokens {
        Some(tokens) => tokens.div_ceil(PAGE),
        // Half of what is free now, but enough for one sequence.
        None => {
            let fit = machine::free_memory().map_or(wanted, |free| (free / 2 / page) as usize);
            wanted.min(fit.max(context.div_ceil(PAGE)))
        }
    };
    // What a sequence can really have.
    let context = context.min(pages.saturating_mul(PAGE));
    if let Some(warning) = beyond(context, spec) {
        tracing::warn!("{warning}");
    }
    let context_shift = args::shift(sizes.shift, &mode, context)?;
    let (rope, activation_sparsity) = (spec.rope.clone(), model.sparsity);
    let (tight, screened) = (model.is_tight(), model.is_screened());
    let row_cost = row_cost::measure(&model, &runtime)?;
    let Sizes { sequences, rows, radix_cache, kv, .. } = sizes;
    let config =
        EngineConfig { context, pages, sequences, rows, row_cost, prefix_cache: radix_cache, kv };
    let mut engine = Engine::new(model, Some(tokenizer.clone()), runtime, config)?;
    let ends = || server.draining.load(Ordering::Relaxed);
    rehearsal.run(&mut engine, &tokenizer, &mode, ends)?;
    let context = engine.context();
    let (worker, thread) = Worker::start(
        engine,
        sequences.saturating_add(sizes.waiting),
        server.metrics.clone(),
        tasks,
    )
    .context("cannot start the engine's thread")?;
    let name = name.unwrap_or(own);
    tracing::info!(
        model = name,
        isa,
        threads = threads.decode,
        prefill_threads = threads.prefill,
        context,
        kv_tokens = pages * PAGE,
        kv_keys = kv.keys.name(),
        kv_values = kv.values.name(),
        attention = %kv.selection,
        sequences,
        radix_cache,
        seconds = time.as_secs_f64(),
        "ready"
    );
    let ready = Ready {
        name,
        created: now(),
        worker,
        tokenizer,
        template,
        defaults,
        dlm,
        settings,
        vocab,
        hidden,
        context,
        kv,
        rope,
        activation_sparsity,
        tight,
        screened,
        context_shift,
        isa,
        threads,
        grammars: OnceLock::new(),
    };
    let set = server.ready.set(Arc::new(ready));
    assert!(set.is_ok(), "one model is loaded");
    Ok(thread)
}

/// Accepts connections until a signal, or until there can be no model; then lets running requests
/// finish.
async fn accept(
    server: &Arc<Server>,
    listener: &TcpListener,
    wire: Wire,
    drain: Duration,
    failed: &mut oneshot::Receiver<anyhow::Error>,
) -> Option<anyhow::Error> {
    let graceful = GracefulShutdown::new();
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let mut signal = pin!(signal());
    let mut loading = true;
    loop {
        let place = places.clone().acquire_owned();
        tokio::select! {
            () = &mut signal => break,
            error = &mut *failed, if loading => match error {
                Ok(error) => return Some(error),
                Err(_) => loading = false,
            },
            (place, accepted) = async { (place.await, listener.accept().await) } => {
                let Ok((stream, _)) = accepted else { continue };
                let (watcher, wire) = (graceful.watcher(), wire.clone());
                tokio::spawn(async move {
                    wire.converse(stream, watcher).await;
                    drop(place);
                });
            }
        }
    }
    tracing::info!("shutting down: running requests may finish");
    server.draining.store(true, Ordering::Relaxed);
    if tokio::time::timeout(drain, graceful.shutdown()).await.is_err() {
        tracing::warn!("some requests took too long and were cut off");
    }
    None
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
