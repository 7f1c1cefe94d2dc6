//! Metrics in the OpenMetrics format, for Prometheus.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use wf_run_cli::{malloc, session};
use wrinklefree::decode::DraftCounts;
use wrinklefree::engine::{EngineStats, FinishReason};

/// Counters, gauges and histograms of one server.
pub struct Metrics {
    registry: Registry,
    requests: Counter,
    finished: Family<Reason, Counter>,
    refused: Family<Refusal, Counter>,
    prompt_tokens: Counter,
    cached_tokens: Counter,
    drafted_tokens: Counter,
    accepted_tokens: Counter,
    preemptions: Counter,
    tokens: Counter,
    passes: Counter,
    rows: Family<Rows, Counter>,
    pass_seconds: Histogram,
    first_token_seconds: Histogram,
    token_seconds: Histogram,
    request_seconds: Histogram,
    running: Gauge,
    waiting: Gauge,
    cache_usage: Gauge<f64, AtomicU64>,
    state_bytes: Gauge,
    state_snapshots: Gauge,
    state_snapshot_limit: Gauge,
    dropped_snapshots: Counter,
    read_ahead: Counter,
    disk_cache_bytes: Gauge,
    disk_cache_read: Counter,
    disk_cache_written: Counter,
    heap_bytes: Gauge,
    /// State of each engine, by number.
    engines: Mutex<BTreeMap<u64, EngineStats>>,
}

/// The metrics of one of several engines. Dropping it takes the engine out of the gauges.
pub struct EngineMetrics {
    metrics: Arc<Metrics>,
    number: u64,
}

/// Label: the reason why an output ended.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Reason {
    reason: &'static str,
}

/// Label: the HTTP status of a refused request.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Refusal {
    status: u16,
}

/// Label: the phase that rows of a pass belong to, `prefill` or `decode`.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Rows {
    phase: &'static str,
}

impl Metrics {
    /// Creates all metrics at zero.
    pub fn new() -> Self {
        // From 100 µs to 100 s, four buckets per decade.
        let seconds = || Histogram::new(exponential_buckets(1e-4, 10f64.powf(0.25), 25));
        let mut this = Self {
            registry: Registry::default(),
            requests: Counter::default(),
            finished: Family::default(),
            refused: Family::default(),
            prompt_tokens: Counter::default(),
            cached_tokens: Counter::default(),
            drafted_tokens: Counter::default(),
            accepted_tokens: Counter::default(),
            preemptions: Counter::default(),
            tokens: Counter::default(),
            passes: Counter::default(),
            rows: Family::default(),
            pass_seconds: seconds(),
            first_token_seconds: seconds(),
            token_seconds: seconds(),
            request_seconds: seconds(),
            running: Gauge::default(),
            waiting: Gauge::default(),
            cache_usage: Gauge::default(),
            state_bytes: Gauge::default(),
            state_snapshots: Gauge::default(),
            state_snapshot_limit: Gauge::default(),
            dropped_snapshots: Counter::default(),
            read_ahead: Counter::default(),
            disk_cache_bytes: Gauge::default(),
            disk_cache_read: Counter::default(),
            disk_cache_written: Counter::default(),
            heap_bytes: Gauge::default(),
            engines: Mutex::default(),
        };
        this.register();
        this
    }

    fn register(&mut self) {
        let r = &mut self.registry;
        r.register("wf_requests", "Requests accepted", self.requests.clone());
        r.register("wf_requests_finished", "Requests finished, by reason", self.finished.clone());
        r.register("wf_requests_refused", "Requests refused, by HTTP status", self.refused.clone());
        r.register("wf_prompt_tokens", "Prompt tokens", self.prompt_tokens.clone());
        let help = "Prompt tokens found in the prefix cache";
        r.register("wf_cached_tokens", help, self.cached_tokens.clone());
        r.register("wf_drafted_tokens", "Tokens that were drafted", self.drafted_tokens.clone());
        let help = "Drafted tokens that were right";
        r.register("wf_accepted_draft_tokens", help, self.accepted_tokens.clone());
        let help = "Times a sequence was preempted to free its KV pages for an older one";
        r.register("wf_preemptions", help, self.preemptions.clone());
        r.register("wf_generated_tokens", "Generated tokens", self.tokens.clone());
        r.register("wf_forward_passes", "Forward passes", self.passes.clone());
        r.register("wf_rows", "Rows of forward passes, by phase", self.rows.clone());
        r.register("wf_pass_seconds", "Duration of a forward pass", self.pass_seconds.clone());
        let (name, help) =
            ("wf_time_to_first_token_seconds", "Time from arrival to the first token");
        r.register(name, help, self.first_token_seconds.clone());
        let (name, help) = ("wf_inter_token_seconds", "Time between two tokens of a request");
        r.register(name, help, self.token_seconds.clone());
        let (name, help) = ("wf_request_seconds", "Time from arrival to the last token");
        r.register(name, help, self.request_seconds.clone());
        let help = "Bytes of recurrent states in use, of models with linear attention";
        r.register("wf_state_bytes", help, self.state_bytes.clone());
        let help = "Recurrent states that the prefix cache keeps";
        r.register("wf_state_snapshots", help, self.state_snapshots.clone());
        let help = "Recurrent states that the prefix cache may keep (--state-memory)";
        r.register("wf_state_snapshot_limit", help, self.state_snapshot_limit.clone());
        let help = "Kept recurrent states that were dropped for others";
        r.register("wf_state_snapshots_dropped", help, self.dropped_snapshots.clone());
        let help = "Prompt tokens computed before they were asked for (--read-ahead)";
        r.register("wf_read_ahead_tokens", help, self.read_ahead.clone());
        let help = "Bytes of the prompt cache on disk (--cache-dir)";
        r.register("wf_disk_cache_bytes", help, self.disk_cache_bytes.clone());
        let help = "Prompt tokens read from disk instead of computed";
        r.register("wf_disk_cache_read_tokens", help, self.disk_cache_read.clone());
        let help = "Tokens whose keys and values were written to disk";
        r.register("wf_disk_cache_written_tokens", help, self.disk_cache_written.clone());
        let help = "Bytes of the heap in use, as glibc counts them; 0 with another allocator";
        r.register("wf_heap_bytes", help, self.heap_bytes.clone());
        // Registered twice: dashboards for vLLM know the second name.
        for prefix in ["wf_", "vllm:"] {
            let name = |name: &str| format!("{prefix}{name}");
            r.register(name("num_requests_running"), "Running sequences", self.running.clone());
            r.register(name("num_requests_waiting"), "Waiting requests", self.waiting.clone());
            let help = "Fraction of KV pages in use";
            r.register(name("kv_cache_usage_perc"), help, self.cache_usage.clone());
        }
    }

    /// Counts an accepted request with a prompt of `prompt_tokens` tokens.
    pub fn request(&self, prompt_tokens: usize) {
        self.requests.inc();
        self.prompt_tokens.inc_by(prompt_tokens as u64);
    }

    /// Counts a refused request.
    pub fn refused(&self, status: u16) {
        self.refused.get_or_create(&Refusal { status }).inc();
    }

    /// Records a forward pass.
    pub fn pass(&self, time: Duration, prefill_rows: usize, decode_rows: usize) {
        self.passes.inc();
        self.pass_seconds.observe(time.as_secs_f64());
        for (phase, rows) in [("prefill", prefill_rows), ("decode", decode_rows)] {
            self.rows.get_or_create(&Rows { phase }).inc_by(rows as u64);
        }
    }

    /// Records the first token of a request and the time since its arrival.
    pub fn first_token(&self, time: Duration) {
        self.tokens.inc();
        self.first_token_seconds.observe(time.as_secs_f64());
    }

    /// Records a later token and the time since the one before.
    pub fn token(&self, time: Duration) {
        self.tokens.inc();
        self.token_seconds.observe(time.as_secs_f64());
    }

    /// Records a finished request, its total time and the prompt tokens found in the prefix cache.
    pub fn finished(
        &self,
        reason: FinishReason,
        time: Duration,
        cached: usize,
        drafts: DraftCounts,
    ) {
        self.cached_tokens.inc_by(cached as u64);
        self.drafted_tokens.inc_by(drafts.drafted);
        self.accepted_tokens.inc_by(drafts.accepted);
        let reason = session::reason_name(reason);
        self.finished.get_or_create(&Reason { reason }).inc();
        self.request_seconds.observe(time.as_secs_f64());
    }

    /// Counts prompt tokens that were computed before they were asked for.
    pub fn read_ahead(&self, tokens: usize) {
        self.read_ahead.inc_by(tokens as u64);
    }

    /// Updates the size of the prompt cache on disk.
    pub fn disk_cache(&self, bytes: u64) {
        self.disk_cache_bytes.set(bytes as i64);
    }

    /// Counts prompt tokens that were read from disk.
    pub fn disk_cache_read(&self, tokens: usize) {
        self.disk_cache_read.inc_by(tokens as u64);
    }

    /// Counts tokens that were written to disk.
    pub fn disk_cache_written(&self, tokens: usize) {
        self.disk_cache_written.inc_by(tokens as u64);
    }

    /// Updates the gauges, which show the sum of all engines. `stats` is the state of the engine with
    /// this number; `None` if it has ended.
    fn update(&self, number: u64, stats: Option<EngineStats>) {
        let mut engines = self.engines.lock().unwrap_or_else(PoisonError::into_inner);
        let before = match stats {
            Some(stats) => engines.insert(number, stats),
            None => engines.remove(&number),
        };
        if let (Some(stats), Some(before)) = (stats, before) {
            self.preemptions.inc_by(stats.preempted.saturating_sub(before.preempted));
            let dropped = stats.dropped_snapshots.saturating_sub(before.dropped_snapshots);
            self.dropped_snapshots.inc_by(dropped);
        }
        let sum = |of: fn(&EngineStats) -> usize| engines.values().map(of).sum::<usize>();
        self.running.set(sum(|stats| stats.running) as i64);
        self.waiting.set(sum(|stats| stats.waiting) as i64);
        self.state_bytes.set(sum(|stats| stats.state_bytes) as i64);
        self.state_snapshots.set(sum(|stats| stats.snapshots) as i64);
        self.state_snapshot_limit.set(sum(|stats| stats.snapshot_limit) as i64);
        let used = sum(|stats| stats.kv_pages - stats.free_pages - stats.idle_pages);
        let pages = sum(|stats| stats.kv_pages).max(1);
        self.cache_usage.set(used as f64 / pages as f64);
    }

    /// Renders all metrics in the OpenMetrics text format.
    pub fn text(&self) -> String {
        self.heap_bytes.set(malloc::live_bytes().unwrap_or(0) as i64);
        let mut text = String::new();
        encode(&mut text, &self.registry).expect("a string takes everything");
        text
    }
}

impl EngineMetrics {
    /// Adds an engine.
    pub fn new(metrics: &Arc<Metrics>) -> Self {
        let mut engines = metrics.engines.lock().unwrap_or_else(PoisonError::into_inner);
        let number = engines.last_key_value().map_or(0, |(last, _)| last + 1);
        engines.insert(number, EngineStats::default());
        Self { metrics: metrics.clone(), number }
    }

    /// Updates the gauges of the engine's load.
    pub fn stats(&self, stats: EngineStats) {
        self.metrics.update(self.number, Some(stats));
    }
}

impl Deref for EngineMetrics {
    type Target = Metrics;

    fn deref(&self) -> &Metrics {
        &self.metrics
    }
}

impl Drop for EngineMetrics {
    fn drop(&mut self) {
        self.metrics.update(self.number, None);
    }
}
