//! The thread that owns the engine. It loops over `step` and sends each request its events; other
//! threads talk to it through [`EngineHandle`] and share nothing with it.

use super::event::{self, EventReceiver, EventSender, RequestEvent, RequestTimes};
use super::event_batcher::EventBatcher;
use super::fair::{self, ScheduledRequest, Turn};
use super::prompt_pacer::PromptPacer;
use super::queue_error::QueueError;
use super::text_limits::{LimitedText, TextLimits};
use super::turns::EngineTurns;
use crate::access::client::Client;
use crate::engine::arrival::Arrival;
use crate::operation::metrics::EngineMetrics;
use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, TryRecvError};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use wf_run_cli::malloc;
use wrinklefree::cache::PAGE;
use wrinklefree::engine::{
    Engine, EngineStats, Event, EventKind, FinishReason, Request, SeqId, Step,
};

/// One client gets at most the queue without this part of it.
const OTHERS_SHARE: usize = 8;
/// Shortest rest of a prompt that is read ahead: less is computed as fast as it is asked for.
const LEAST_AHEAD: usize = 2 * PAGE;
/// Longest time an idle engine waits for a command before it updates the metrics.
const IDLE_WAIT: Duration = Duration::from_secs(1);
/// Most commands between two passes.
const MOST_COMMANDS: usize = 64;
/// Time between returns of free memory to the system while requests run. A return takes milliseconds.
const TRIM_INTERVAL: Duration = Duration::from_secs(60);

/// A command to the engine's thread.
enum EngineCommand {
    Submit {
        requests: Vec<(Request, EventSender)>,
        client: Client,
        limits: TextLimits,
        reply: oneshot::Sender<Result<(), QueueError>>,
    },
    ReadAhead(Box<Request>),
    Stats(oneshot::Sender<EngineStats>),
    Run(Box<dyn FnOnce(&mut Engine) + Send>),
    Cut,
}

/// Submits requests to the engine's thread.
#[derive(Clone, Debug)]
pub struct EngineHandle {
    commands: Arc<mpsc::Sender<EngineCommand>>,
    /// Number of requests that run or wait.
    count: Arc<AtomicUsize>,
}

/// A handle that does not keep the thread: a model can be unloaded while clients still read its answers.
#[derive(Clone, Debug)]
pub struct WeakEngineHandle {
    commands: Weak<mpsc::Sender<EngineCommand>>,
    count: Arc<AtomicUsize>,
}

impl WeakEngineHandle {
    /// Returns the handle, if the engine is still in use.
    pub fn upgrade(&self) -> Option<EngineHandle> {
        Some(EngineHandle { commands: self.commands.upgrade()?, count: Arc::clone(&self.count) })
    }
}

impl EngineHandle {
    /// Starts the thread. It ends when all handles are dropped and all requests are finished.
    /// At most `sequences` requests run, and at most `limit` run or wait. Events are delivered by a
    /// task of `runtime`.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn start(
        engine: Engine,
        sequences: usize,
        limit: usize,
        (metrics, turns, pacer): (EngineMetrics, EngineTurns, PromptPacer),
        runtime: &Handle,
    ) -> io::Result<(Self, JoinHandle<()>)> {
        let (commands, receiver) = mpsc::channel();
        let (active, batcher) = (HashMap::new(), EventBatcher::start(runtime));
        let (warned, changed, used, count) = (false, false, None, Arc::default());
        let state = EngineThread {
            engine,
            sequences,
            limit,
            metrics,
            turns,
            pacer,
            warned,
            active,
            ahead: None,
            count: Arc::clone(&count),
            changed,
            used,
            trimmed: Instant::now(),
            batcher,
        };
        let thread = thread::Builder::new().name("engine".into()).spawn(|| state.run(receiver))?;
        Ok((Self { commands: Arc::new(commands), count }, thread))
    }

    /// Submits requests that arrived together, all of them or none. Returns the receiver of each
    /// request's events.
    ///
    /// # Errors
    /// If they are not accepted.
    pub async fn submit(
        &self,
        requests: Vec<Request>,
        arrival: Arrival,
    ) -> Result<Vec<EventReceiver>, QueueError> {
        let channels = requests.into_iter().map(|request| {
            let (sender, receiver) = event::channel();
            ((request, sender), receiver)
        });
        let (requests, receivers) = channels.unzip();
        let (reply, replied) = oneshot::channel();
        let Arrival { client, limits, .. } = arrival;
        let submit = EngineCommand::Submit { requests, client, limits, reply };
        self.commands.send(submit).map_err(|_| QueueError::Stopped)?;
        replied.await.map_err(|_| QueueError::Stopped)??;
        Ok(receivers)
    }

    /// Computes a prompt that somebody will probably send, if the engine has nothing else to do. A request that
    /// begins with it waits for it; others end it.
    pub fn read_ahead(&self, request: Request) {
        let _ = self.commands.send(EngineCommand::ReadAhead(Box::new(request)));
    }

    /// Returns a handle that does not keep the thread.
    pub fn downgrade(&self) -> WeakEngineHandle {
        WeakEngineHandle {
            commands: Arc::downgrade(&self.commands),
            count: Arc::clone(&self.count),
        }
    }

    /// Ends all requests at once: their event channels close.
    pub fn cut(&self) {
        let _ = self.commands.send(EngineCommand::Cut);
    }

    /// Returns the number of requests that run or wait.
    pub fn active(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Runs work on the engine between two steps. Returns its result, or `None` if the thread has ended.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Engine) -> T + Send + 'static,
    ) -> Option<T> {
        self.start_work(work)?.await.ok()
    }

    /// Runs work as [`run`](Self::run) does, for a thread that may block.
    pub fn run_blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Engine) -> T + Send + 'static,
    ) -> Option<T> {
        self.start_work(work)?.blocking_recv().ok()
    }

    /// Starts work on the engine between two steps. Returns what will have its result, or `None` if the thread
    /// has ended.
    pub fn start_work<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Engine) -> T + Send + 'static,
    ) -> Option<oneshot::Receiver<T>> {
        let (reply, replied) = oneshot::channel();
        let run = EngineCommand::Run(Box::new(move |engine| drop(reply.send(work(engine)))));
        self.commands.send(run).ok()?;
        Some(replied)
    }

    /// Returns the current statistics, or `None` if the thread has ended.
    pub async fn stats(&self) -> Option<EngineStats> {
        let (reply, replied) = oneshot::channel();
        self.commands.send(EngineCommand::Stats(reply)).ok()?;
        replied.await.ok()
    }
}

/// A request that runs or waits.
struct ActiveRequest {
    events: EventSender,
    client: Client,
    /// True if it waits until its client may run it.
    parked: bool,
    arrived: Instant,
    /// Times of the first and the latest token.
    tokens: Option<(Instant, Instant)>,
    /// The text, if it has limits.
    limited: Option<LimitedText>,
    /// True if the text reached its limit.
    ended: bool,
}

/// Consequence of the limits of a text for an event.
enum Limited {
    Pass,
    /// It is the last one with text.
    End,
    /// It comes after the end.
    Drop,
}

impl ActiveRequest {
    /// Applies the limits of the text to an event that arrives now.
    fn limit(&mut self, kind: &mut EventKind, now: Instant) -> Limited {
        let Some(limited) = &mut self.limited else { return Limited::Pass };
        match kind {
            EventKind::Token { .. } if self.ended => return Limited::Drop,
            EventKind::Token { text, .. } => {
                let first = self.tokens.map_or(now, |(first, _)| first);
                self.ended = limited.push(text, now - first);
                if self.ended {
                    return Limited::End;
                }
            }
            EventKind::Finished { reason, text, .. } if self.ended => {
                *reason = FinishReason::Length;
                text.clear();
            }
            _ => {}
        }
        Limited::Pass
    }
}

/// A prompt that is read ahead.
struct ReadAhead {
    id: SeqId,
    tokens: Vec<u32>,
    cache_salt: String,
}

impl ReadAhead {
    /// Returns true if a request continues it.
    fn begins(&self, request: &Request) -> bool {
        request.cache_salt == self.cache_salt && request.tokens.starts_with(&self.tokens)
    }
}

/// State of the engine's thread.
struct EngineThread {
    engine: Engine,
    /// Maximum number of running requests.
    sequences: usize,
    /// Maximum number of running and waiting requests together: only the next step decides which
    /// of them run.
    limit: usize,
    metrics: EngineMetrics,
    turns: EngineTurns,
    pacer: PromptPacer,
    /// True after the warning about the trained context length was logged.
    warned: bool,
    active: HashMap<SeqId, ActiveRequest>,
    ahead: Option<ReadAhead>,
    /// Number of active requests, for handles.
    count: Arc<AtomicUsize>,
    /// True if requests came or ended since the sequences were shared.
    changed: bool,
    /// Time of the last pass, until the memory that it left free is returned to the system.
    used: Option<Instant>,
    /// Time when memory was last returned.
    trimmed: Instant,
    batcher: EventBatcher,
}

impl EngineThread {
    fn run(mut self, commands: Receiver<EngineCommand>) {
        let mut open = true;
        while open || !self.active.is_empty() {
            open = self.receive(&commands);
            self.cancel_abandoned();
            if !self.turns.is_alone() {
                self.stop_reading_ahead();
            }
            self.share_sequences();
            let (step, time) = self.step();
            if let Step::Ran { prefill_rows, decode_rows } = step {
                self.used = Some(Instant::now());
                self.metrics.pass(time, prefill_rows, decode_rows);
                self.pacer.observe(time, prefill_rows, decode_rows);
                if self.active.is_empty() {
                    self.metrics.read_ahead(prefill_rows);
                }
            }
            while let Some(event) = self.engine.poll() {
                self.deliver(event);
            }
            self.batcher.flush(self.active.is_empty());
            self.metrics.stats(self.engine.stats());
            if let Some(weakness) = self.engine.weak_drafter() {
                tracing::warn!("{weakness}");
            }
            self.trim();
        }
    }

    /// Runs a step of the engine when it is its turn. Returns also the time that it took.
    fn step(&mut self) -> (Step, Duration) {
        let engine = &mut self.engine;
        engine.set_prompt_rows(self.pacer.rows());
        // A request that arrives waits for the end of a pass.
        let is_idle = self.active.is_empty();
        engine.set_lone_prompt_rows(if is_idle { self.pacer.rows() } else { usize::MAX });
        self.turns.run(|| {
            let begin = Instant::now();
            let step = engine.step();
            (step, begin.elapsed())
        })
    }

    /// Handles all pending commands, and waits for one if no request is active. Returns false when
    /// all handles are gone.
    fn receive(&mut self, commands: &Receiver<EngineCommand>) -> bool {
        if self.active.is_empty() && self.ahead.is_none() {
            match commands.recv_timeout(IDLE_WAIT) {
                Ok(command) => self.handle(command),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return false,
            }
        }
        // Commands may come faster than they are handled: passes go on meanwhile.
        for _ in 0..MOST_COMMANDS {
            match commands.try_recv() {
                Ok(command) => self.handle(command),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
        true
    }

    /// Returns free memory to the system: once nothing runs any more, and every minute of a busy time.
    fn trim(&mut self) {
        let Some(used) = self.used else { return };
        let rests = self.active.is_empty() && used.elapsed() >= IDLE_WAIT;
        if rests || self.trimmed.elapsed() >= TRIM_INTERVAL {
            malloc::trim();
            (self.used, self.trimmed) = (None, Instant::now());
        }
    }

    fn handle(&mut self, command: EngineCommand) {
        match command {
            EngineCommand::Submit { requests, client, limits, reply } => {
                let submitted = self.submit(requests, client, limits);
                // If the caller is gone or was refused, its receivers are dropped, which cancels
                // the requests that were submitted already.
                let _ = reply.send(submitted);
            }
            EngineCommand::ReadAhead(request) => self.read_ahead(*request),
            EngineCommand::Run(work) => work(&mut self.engine),
            EngineCommand::Cut => {
                self.stop_reading_ahead();
                for (id, _) in self.active.drain() {
                    self.engine.cancel(id);
                }
                self.count.store(0, Ordering::Relaxed);
            }
            EngineCommand::Stats(reply) => {
                let _ = reply.send(self.engine.stats());
            }
        }
    }

    fn submit(
        &mut self,
        requests: Vec<(Request, EventSender)>,
        client: Client,
        limits: TextLimits,
    ) -> Result<(), QueueError> {
        let (requested, limit) = (requests.len(), self.limit);
        // The rest of the queue is for other clients.
        let share = limit - limit / OTHERS_SHARE;
        if requested > share {
            return Err(QueueError::TooMany { requested, limit: share });
        }
        let own = self.active.values().filter(|active| active.client == client).count();
        if self.active.len() + requested > limit || own + requested > share {
            return Err(QueueError::Full);
        }
        let goes_on = |ahead: &ReadAhead| requests.iter().any(|(request, _)| ahead.begins(request));
        if !self.ahead.as_ref().is_some_and(goes_on) {
            self.stop_reading_ahead();
        }
        for (request, events) in requests {
            self.warn_beyond_trained(&request);
            let prompt_tokens = request.tokens.len();
            let id = self.engine.submit(request).map_err(QueueError::Rejected)?;
            self.engine.park(id);
            self.metrics.request(prompt_tokens);
            let active = ActiveRequest {
                events,
                client,
                parked: true,
                arrived: Instant::now(),
                tokens: None,
                limited: LimitedText::new(limits),
                ended: false,
            };
            self.active.insert(id, active);
        }
        self.count.store(self.active.len(), Ordering::Relaxed);
        self.changed = true;
        Ok(())
    }

    /// Computes a prompt, unless requests run or the prompt cache has nearly all of it.
    fn read_ahead(&mut self, request: Request) {
        let place = (&*request.cache_salt, request.mode.clean_block());
        let (_, cached) = self.engine.cached_prefix(place, &request.tokens);
        if !self.active.is_empty() || request.tokens.len() - cached < LEAST_AHEAD {
            return;
        }
        self.stop_reading_ahead();
        let (tokens, cache_salt) = (request.tokens.clone(), request.cache_salt.clone());
        if let Ok(id) = self.engine.submit(request) {
            tracing::debug!(tokens = tokens.len(), cached, "reading ahead");
            self.ahead = Some(ReadAhead { id, tokens, cache_salt });
        }
    }

    /// Ends the prompt that is read ahead. The prompt cache keeps what was computed.
    fn stop_reading_ahead(&mut self) {
        if let Some(ReadAhead { id, .. }) = self.ahead.take() {
            self.engine.cancel(id);
        }
    }

    /// Decides which requests run, so that each client gets its share.
    fn share_sequences(&mut self) {
        if !std::mem::take(&mut self.changed) {
            return;
        }
        loop {
            let scheduled = |(&id, active): (&SeqId, &ActiveRequest)| ScheduledRequest {
                id,
                client: active.client,
                parked: active.parked,
            };
            let requests: Vec<ScheduledRequest> = self.active.iter().map(scheduled).collect();
            let Some(Turn { park, resume }) = fair::next(&requests, self.sequences) else { return };
            for (id, parked) in park.map(|id| (id, true)).into_iter().chain([(resume, false)]) {
                if parked {
                    self.engine.park(id)
                } else {
                    self.engine.resume(id)
                }
                self.active.get_mut(&id).expect("a scheduled request is active").parked = parked;
            }
        }
    }

    /// Logs that a request may exceed the trained context length: once as a warning, then at debug
    /// level.
    fn warn_beyond_trained(&mut self, request: &Request) {
        let trained = self.engine.model().spec().context_length;
        let wanted = request.tokens.len().saturating_add(request.max_tokens);
        let positions = wanted.min(self.engine.context());
        if positions <= trained {
            return;
        }
        let text = "request exceeds the trained context length";
        if std::mem::replace(&mut self.warned, true) {
            tracing::debug!(positions, trained, "{text}")
        } else {
            tracing::warn!(
                positions,
                trained,
                "{text} (further occurrences are logged at debug level)"
            )
        }
    }

    /// Cancels requests whose receiver was dropped or does not read.
    fn cancel_abandoned(&mut self) {
        let abandoned =
            |(id, active): (&SeqId, &ActiveRequest)| active.events.is_abandoned().then_some(*id);
        let abandoned: Vec<SeqId> = self.active.iter().filter_map(abandoned).collect();
        for id in abandoned {
            self.engine.cancel(id);
        }
        while let Some(event) = self.engine.poll() {
            self.deliver(event);
        }
    }

    fn deliver(&mut self, Event { seq, mut kind }: Event) {
        let Some(active) = self.active.get_mut(&seq) else {
            let has_ended = matches!(kind, EventKind::Finished { .. });
            self.ahead.take_if(|ahead| ahead.id == seq && has_ended);
            return;
        };
        let now = Instant::now();
        match active.limit(&mut kind, now) {
            Limited::Drop => return,
            Limited::End => self.engine.cancel(seq),
            Limited::Pass => {}
        }
        let (mut urgent, mut finished) = (false, false);
        match kind {
            EventKind::Token { .. } => {
                urgent = active.tokens.is_none();
                match &mut active.tokens {
                    None => {
                        self.metrics.first_token(now - active.arrived);
                        active.tokens = Some((now, now));
                    }
                    Some((_, last)) => {
                        self.metrics.token(now - *last);
                        *last = now;
                    }
                }
            }
            EventKind::Finished { reason, cached, drafts, .. } => {
                (urgent, finished) = (true, true);
                self.metrics.finished(reason, now - active.arrived, cached, drafts);
            }
            _ => {}
        }
        let (first, last) = active.tokens.unwrap_or((now, now));
        let times = RequestTimes { first_token: first - active.arrived, decode: last - first };
        self.batcher.push(active.events.clone(), RequestEvent { kind, times }, urgent);
        if finished {
            self.changed = true;
            self.active.remove(&seq);
            self.count.store(self.active.len(), Ordering::Relaxed);
        }
    }
}
