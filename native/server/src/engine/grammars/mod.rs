//! Compiles the grammars of requests: on threads of its own, a bounded number at a time, fairly between
//! clients, and only after a process that can be ended has made and compiled the same grammar.

pub mod cache;
pub mod checker;
pub mod convert;
pub mod requested;

pub use cache::Ready;
pub use checker::{COMMAND, serve_checks};
pub use requested::{AnswerForm, CallableTools, RequestedGrammar};

use crate::access::client::Client;
use crate::engine::arrival::Arrival;
use crate::error::ApiError;
use axum::http::StatusCode;
use cache::{Cache, Key};
use checker::{Checked, Checker, Job, Reply};
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::thread;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{Instant, timeout_at};
use wrinklefree::text::Tokenizer;
use wrinklefree_easy::models::grammar::{
    Compiled, Effort, Grammars, NOT_HELD, PreparedGrammar, Validation, Vocabulary,
};

/// Most grammars that are compiled at the same time.
const COMPILING: usize = 2;
/// Most requests that wait for a grammar, in all and of one client.
const WAITING: usize = 32;
const WAITING_OF_CLIENT: usize = 8;
/// Most time for one grammar.
const COMPILE_TIME: Duration = Duration::from_secs(5);

/// The model's tokens, as grammars need them.
pub struct Tokens {
    /// The tokenizer.
    pub tokenizer: Arc<Tokenizer>,
    /// Size of the vocabulary.
    pub vocab: usize,
    /// Tokens that end an output.
    pub eos: Vec<u32>,
}

/// Compiles grammars and validates outputs.
pub struct GrammarCompiler {
    tokens: Tokens,
    vocabulary: OnceLock<Vocabulary>,
    grammars: OnceLock<Result<Grammars, String>>,
    cache: Mutex<Cache>,
    places: Arc<Semaphore>,
    slots: Arc<Semaphore>,
    clients: Mutex<HashMap<Client, Weak<ClientQueue>>>,
    /// Processes without a job.
    idle: Mutex<Vec<Checker>>,
}

/// One client's requests that wait.
struct ClientQueue {
    places: Arc<Semaphore>,
    /// One grammar at a time is compiled, so a client delays others by at most one.
    turn: Arc<Semaphore>,
}

/// The right to compile a grammar.
struct Turn {
    _client: Arc<ClientQueue>,
    _permits: [OwnedSemaphorePermit; 2],
}

impl GrammarCompiler {
    /// Makes a compiler. The first grammar prepares it.
    pub fn new(tokens: Tokens) -> Arc<Self> {
        Arc::new(Self {
            tokens,
            vocabulary: OnceLock::new(),
            grammars: OnceLock::new(),
            cache: Mutex::default(),
            places: Arc::new(Semaphore::new(WAITING)),
            slots: Arc::new(Semaphore::new(COMPILING)),
            clients: Mutex::default(),
            idle: Mutex::default(),
        })
    }

    /// Compiles a grammar. Dropping the future ends the work.
    ///
    /// # Errors
    /// 400 if the grammar is invalid or too complex, 429 if too many wait, 504 if the request's time
    /// is over.
    pub async fn compile(
        self: &Arc<Self>,
        requested: &RequestedGrammar,
        arrival: &Arrival,
    ) -> Result<Arc<Ready>, ApiError> {
        let key = key(requested, arrival)?;
        if let Some(ready) = lock(&self.cache).get(&key) {
            return Ok(ready);
        }
        let (_places, queue) = self.enter(arrival.client)?;
        let turn = timeout_at(arrival.deadline, self.turn(queue))
            .await
            .map_err(|_| ApiError::timeout())?;
        let Checked { grammar, not_enforced } = self.check(requested, arrival).await?;
        let compiled = self.compile_here(grammar, turn).await?;
        let compiled = compiled.map_err(|error| invalid(requested.field, &error))?;
        if !requested.best_effort && !compiled.warnings.is_empty() {
            tracing::warn!(warnings = ?compiled.warnings, "parts of a grammar are not enforced");
        }
        let ready = Arc::new(Ready { compiled, not_enforced });
        lock(&self.cache).insert(key, ready.clone());
        Ok(ready)
    }

    /// Validates an output against a schema.
    pub async fn validate(&self, schema: &AnswerForm, text: &str, arrival: &Arrival) -> Validation {
        let failed = |why: &str| Validation {
            errors: vec![format!("cannot validate: {why}")],
            ..Validation::default()
        };
        let turn = timeout_at(arrival.deadline, self.turn(self.queue(arrival.client))).await;
        let Ok(_turn) = turn else { return failed("the request's time is over") };
        let job = Job::Validate { schema: Cow::Borrowed(schema), text: text.into() };
        match self.run(&job, arrival).await {
            Ok(Reply::Validated(report)) => report,
            Ok(Reply::Compiled(_)) => failed("an internal error"),
            Err(error) => failed(&error),
        }
    }

    /// Takes a place among those that wait.
    fn enter(
        &self,
        client: Client,
    ) -> Result<([OwnedSemaphorePermit; 2], Arc<ClientQueue>), ApiError> {
        let queue = self.queue(client);
        let take = |places: &Arc<Semaphore>| places.clone().try_acquire_owned().map_err(|_| busy());
        Ok(([take(&queue.places)?, take(&self.places)?], queue))
    }

    fn queue(&self, client: Client) -> Arc<ClientQueue> {
        let mut clients = lock(&self.clients);
        clients.get(&client).and_then(Weak::upgrade).unwrap_or_else(|| {
            clients.retain(|_, queue| queue.strong_count() > 0);
            let places = Arc::new(Semaphore::new(WAITING_OF_CLIENT));
            let queue = Arc::new(ClientQueue { places, turn: Arc::new(Semaphore::new(1)) });
            clients.insert(client, Arc::downgrade(&queue));
            queue
        })
    }

    async fn turn(&self, client: Arc<ClientQueue>) -> Turn {
        let turn = acquire(&client.turn).await;
        let slot = acquire(&self.slots).await;
        Turn { _client: client, _permits: [turn, slot] }
    }

    /// Finds the grammar that can be compiled, and what it leaves out, in a process of its own.
    async fn check(
        &self,
        requested: &RequestedGrammar,
        arrival: &Arrival,
    ) -> Result<Checked, ApiError> {
        let efforts = if requested.best_effort { &Effort::BEST[..] } else { &Effort::BEST[..1] };
        let mut last = String::new();
        for &effort in efforts {
            let job = Job::Compile { requested: Cow::Borrowed(requested), effort };
            match self.run(&job, arrival).await {
                Ok(Reply::Compiled(Ok(checked))) => return Ok(checked),
                Ok(Reply::Compiled(Err(error))) | Err(error) => last = error,
                Ok(Reply::Validated(_)) => break,
            }
            if Instant::now() >= arrival.deadline {
                return Err(ApiError::timeout());
            }
        }
        Err(invalid(requested.field, &last))
    }

    /// Runs a job in a process. A process that does not reply in time is killed, also if the client
    /// leaves.
    async fn run(&self, job: &Job<'_>, arrival: &Arrival) -> Result<Reply, String> {
        let deadline = arrival.deadline.min(Instant::now() + COMPILE_TIME);
        let idle = lock(&self.idle).pop();
        let replied = timeout_at(deadline, async {
            let mut checker = match idle {
                Some(checker) => checker,
                None => self.start_checker().await?,
            };
            let reply = checker
                .run(job)
                .await
                .map_err(|_| "it needs too much memory, or is nested too deeply".to_string())?;
            Ok::<_, String>((checker, reply))
        });
        let replied = replied.await;
        let (checker, reply) = replied
            .unwrap_or_else(|_| Err(format!("it takes more than {} s", COMPILE_TIME.as_secs())))?;
        lock(&self.idle).push(checker);
        Ok(reply)
    }

    async fn start_checker(&self) -> Result<Checker, String> {
        let Tokens { tokenizer, vocab, eos } = &self.tokens;
        let vocabulary = self.vocabulary.get_or_init(|| Vocabulary::new(tokenizer, *vocab, eos));
        Checker::start(vocabulary).await.map_err(|error| {
            tracing::error!(%error, "cannot start the process that checks grammars");
            "the server cannot start the process that checks grammars".to_string()
        })
    }

    /// Compiles a checked grammar on a thread, which keeps the turn.
    async fn compile_here(
        self: &Arc<Self>,
        grammar: PreparedGrammar,
        turn: Turn,
    ) -> Result<Result<Compiled, String>, ApiError> {
        let (reply, compiled) = oneshot::channel();
        let this = self.clone();
        let work = move || {
            if reply.is_closed() {
                // The client has left.
                return;
            }
            let grammars = this.grammars.get_or_init(|| {
                let Tokens { tokenizer, vocab, eos } = &this.tokens;
                Grammars::new(tokenizer, *vocab, eos).map_err(|error| format!("{error:#}"))
            });
            let grammars = grammars.as_ref().map_err(Clone::clone);
            let _ = reply.send(grammars.and_then(|grammars| grammars.compile_prepared(&grammar)));
            drop(turn);
        };
        let thread = thread::Builder::new().name("grammars".into());
        thread.spawn(work).map_err(ApiError::internal)?;
        compiled.await.map_err(ApiError::internal)
    }
}

fn key(requested: &RequestedGrammar, arrival: &Arrival) -> Result<Key, ApiError> {
    let text = serde_json::to_string(requested).map_err(ApiError::internal)?;
    Ok((format!("{:?}", arrival.client), text))
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn acquire(semaphore: &Arc<Semaphore>) -> OwnedSemaphorePermit {
    semaphore.clone().acquire_owned().await.expect("it is never closed")
}

fn invalid(field: &str, error: &str) -> ApiError {
    let way_out = match (error.starts_with(NOT_HELD), field) {
        (false, _) => "",
        (true, "tools") => ", or the tool's `strict`",
        (true, _) => ", or set `best_effort`, which does that",
    };
    let message = format!("cannot use this grammar: {error}{way_out}");
    ApiError { code: "invalid_grammar", ..ApiError::bad(field, message) }
}

fn busy() -> ApiError {
    let message = "too many grammars wait to be compiled: try again later";
    ApiError::new(StatusCode::TOO_MANY_REQUESTS, "queue_full", message)
}
