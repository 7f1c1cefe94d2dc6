//! What Prometheus can ask.

use crate::cli::session;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use std::sync::atomic::AtomicU64;
use std::time::Duration;
use wrinklefree::engine::{EngineStats, FinishReason};

/// Counters, gauges and histograms of one server.
pub struct Metrics {
    registry: Registry,
    requests: Counter,
    finished: Family<Reason, Counter>,
    refused: Family<Refusal, Counter>,
    prompt_tokens: Counter,
    cached_tokens: Counter,
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
}

/// Why an answer ended.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Reason {
    reason: &'static str,
}

/// The HTTP status of a request that was refused.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Refusal {
    status: u16,
}

/// What rows of passes were for.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Rows {
    phase: &'static str,
}

impl Metrics {
    /// All at zero.
    pub fn new() -> Self {
        // From 100 µs to 100 s, four a decade.
        let seconds = || Histogram::new(exponential_buckets(1e-4, 10f64.powf(0.25), 25));
        let mut this = Self {
            registry: Registry::default(),
            requests: Counter::default(),
            finished: Family::default(),
            refused: Family::default(),
            prompt_tokens: Counter::default(),
            cached_tokens: Counter::default(),
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
        };
        this.register();
        this
    }

    fn register(&mut self) {
        let r = &mut self.registry;
        r.register("wf_requests", "Requests taken", self.requests.clone());
        r.register("wf_requests_finished", "Answers that ended", self.finished.clone());
        r.register("wf_requests_refused", "Requests refused", self.refused.clone());
        r.register("wf_prompt_tokens", "Tokens of prompts", self.prompt_tokens.clone());
        let help = "Tokens of prompts that had been computed before";
        r.register("wf_cached_tokens", help, self.cached_tokens.clone());
        let help = "Times that a sequence gave its pages to an older one";
        r.register("wf_preemptions", help, self.preemptions.clone());
        r.register("wf_generated_tokens", "Tokens generated", self.tokens.clone());
        r.register("wf_forward_passes", "Forward passes", self.passes.clone());
        r.register("wf_rows", "Rows of forward passes", self.rows.clone());
        r.register("wf_pass_seconds", "Time of a forward pass", self.pass_seconds.clone());
        let (name, help) = ("wf_time_to_first_token_seconds", "From arrival to first token");
        r.register(name, help, self.first_token_seconds.clone());
        let (name, help) = ("wf_inter_token_seconds", "From a token to the next");
        r.register(name, help, self.token_seconds.clone());
        let (name, help) = ("wf_request_seconds", "From arrival to the end of the answer");
        r.register(name, help, self.request_seconds.clone());
        // Twice, under the names that dashboards for vLLM know.
        for prefix in ["wf_", "vllm:"] {
            let name = |name: &str| format!("{prefix}{name}");
            r.register(name("num_requests_running"), "Sequences that run", self.running.clone());
            r.register(name("num_requests_waiting"), "Requests that wait", self.waiting.clone());
            let help = "Share of KV pages in use";
            r.register(name("kv_cache_usage_perc"), help, self.cache_usage.clone());
        }
    }

    /// A request with a prompt of so many tokens was taken.
    pub fn request(&self, prompt: usize) {
        self.requests.inc();
        self.prompt_tokens.inc_by(prompt as u64);
    }

    /// A request was refused.
    pub fn refused(&self, status: u16) {
        self.refused.get_or_create(&Refusal { status }).inc();
    }

    /// A forward pass ran.
    pub fn pass(&self, time: Duration, prefill_rows: usize, decode_rows: usize) {
        self.passes.inc();
        self.pass_seconds.observe(time.as_secs_f64());
        for (phase, rows) in [("prefill", prefill_rows), ("decode", decode_rows)] {
            self.rows.get_or_create(&Rows { phase }).inc_by(rows as u64);
        }
    }

    /// A request got its first token.
    pub fn first_token(&self, time: Duration) {
        self.tokens.inc();
        self.first_token_seconds.observe(time.as_secs_f64());
    }

    /// It got another one.
    pub fn token(&self, time: Duration) {
        self.tokens.inc();
        self.token_seconds.observe(time.as_secs_f64());
    }

    /// An answer ended; so many tokens of its prompt had been computed before.
    pub fn finished(&self, reason: FinishReason, time: Duration, cached: usize) {
        self.cached_tokens.inc_by(cached as u64);
        let reason = session::reason_name(reason);
        self.finished.get_or_create(&Reason { reason }).inc();
        self.request_seconds.observe(time.as_secs_f64());
    }

    /// The engine is that busy.
    pub fn stats(&self, stats: EngineStats) {
        self.running.set(stats.running as i64);
        self.waiting.set(stats.waiting as i64);
        self.preemptions.inc_by(stats.preempted.saturating_sub(self.preemptions.get()));
        let used = stats.kv_pages - stats.free_pages - stats.idle_pages;
        self.cache_usage.set(if stats.kv_pages == 0 {
            0.0
        } else {
            used as f64 / stats.kv_pages as f64
        });
    }

    /// Everything in the OpenMetrics text format.
    pub fn text(&self) -> String {
        let mut text = String::new();
        encode(&mut text, &self.registry).expect("a string takes everything");
        text
    }
}
