//! The thread that owns the engine. It loops `step` and hands each request its events; messages go
//! both ways and nothing is shared.

use super::metrics::Metrics;
use super::post::Post;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, TryRecvError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use wrinklefree::decode::Sampled;
use wrinklefree::engine::{
    Engine, EngineStats, Event, FinishReason, Request, SeqId, Step, SubmitError,
};

/// How long an idle engine waits before it looks around.
const IDLE: Duration = Duration::from_secs(1);

/// What a request hears. At most one message for each token of prompt and answer, so the channel is bounded by the
/// request itself.
#[derive(Clone, Debug)]
pub enum Update {
    /// The prompt's next tokens with their log-probabilities.
    Scored(Vec<Sampled>),
    /// The prompt's vector.
    Embedded(Vec<f32>),
    /// A token is final; `text` is what can be shown now.
    Token {
        /// The token.
        sampled: Sampled,
        /// New text.
        text: String,
    },
    /// The end.
    Finished {
        /// Why.
        reason: FinishReason,
        /// Text that was still held back.
        text: String,
        /// How long it took.
        times: Times,
    },
}

/// How long a request took.
#[derive(Clone, Copy, Debug, Default)]
pub struct Times {
    /// From its arrival to its first token.
    pub first_token: Duration,
    /// From the first token to the last.
    pub decode: Duration,
    /// Forward passes that it took part in.
    pub passes: usize,
    /// Tokens of its prompt that had been computed before.
    pub cached: usize,
}

/// Why a request was not taken.
#[derive(Debug)]
pub enum Refused {
    /// It can never run.
    Rejected(SubmitError),
    /// Too many wait already.
    Busy,
    /// More requests at once than may ever run and wait.
    TooMany {
        /// Requests.
        asked: usize,
        /// That may run or wait.
        most: usize,
    },
    /// The engine has ended.
    Gone,
}

/// The updates of a request; dropping it cancels the request.
pub type Updates = UnboundedReceiver<Update>;

enum Message {
    Submit {
        requests: Vec<(Request, UnboundedSender<Update>)>,
        answer: oneshot::Sender<Result<(), Refused>>,
    },
    Stats(oneshot::Sender<EngineStats>),
}

/// Where requests go.
#[derive(Clone, Debug)]
pub struct Worker {
    messages: mpsc::Sender<Message>,
}

impl Worker {
    /// Starts the thread; it ends when every `Worker` is gone and the last request is answered.
    /// At most `most` requests run or wait. `tasks` is where its updates are handed out.
    ///
    /// # Errors
    /// When there can be no thread.
    pub fn start(
        engine: Engine,
        most: usize,
        metrics: Arc<Metrics>,
        tasks: &Handle,
    ) -> io::Result<(Self, JoinHandle<()>)> {
        let (messages, inbox) = mpsc::channel();
        let (live, post) = (HashMap::new(), Post::start(tasks));
        let state = State { engine, most, metrics, warned: false, live, post };
        let thread = thread::Builder::new().name("engine".into()).spawn(|| state.run(inbox))?;
        Ok((Self { messages }, thread))
    }

    /// Hands requests in, all of them or none.
    ///
    /// # Errors
    /// When they are not taken.
    pub async fn submit(&self, requests: Vec<Request>) -> Result<Vec<Updates>, Refused> {
        let channels = requests.into_iter().map(|request| {
            let (updates, receiver) = unbounded_channel();
            ((request, updates), receiver)
        });
        let (requests, receivers) = channels.unzip();
        let (answer, answered) = oneshot::channel();
        self.messages.send(Message::Submit { requests, answer }).map_err(|_| Refused::Gone)?;
        answered.await.map_err(|_| Refused::Gone)??;
        Ok(receivers)
    }

    /// How busy the engine is; `None` when it has ended.
    pub async fn stats(&self) -> Option<EngineStats> {
        let (answer, answered) = oneshot::channel();
        self.messages.send(Message::Stats(answer)).ok()?;
        answered.await.ok()
    }
}

/// A request that runs or waits.
struct Live {
    updates: UnboundedSender<Update>,
    arrived: Instant,
    /// When the first token came, and the last so far.
    tokens: Option<(Instant, Instant)>,
}

struct State {
    engine: Engine,
    /// Requests that may run or wait. Which of them run is known only after the next step.
    most: usize,
    metrics: Arc<Metrics>,
    /// Somebody went past what the model was trained for, and the log says so.
    warned: bool,
    live: HashMap<SeqId, Live>,
    post: Post,
}

impl State {
    fn run(mut self, inbox: Receiver<Message>) {
        let mut open = true;
        while open || !self.live.is_empty() {
            open = self.receive(&inbox);
            self.drop_abandoned();
            let begin = Instant::now();
            let step = self.engine.step();
            if let Step::Ran { prefill_rows, decode_rows } = step {
                self.metrics.pass(begin.elapsed(), prefill_rows, decode_rows);
            }
            while let Some(event) = self.engine.poll() {
                self.deliver(event);
            }
            self.post.send(self.live.is_empty());
            self.metrics.stats(self.engine.stats());
        }
    }

    /// Takes what has come; waits for it when there is nothing else to do. `false` when nothing can
    /// come any more.
    fn receive(&mut self, inbox: &Receiver<Message>) -> bool {
        if self.live.is_empty() {
            match inbox.recv_timeout(IDLE) {
                Ok(message) => self.handle(message),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return false,
            }
        }
        loop {
            match inbox.try_recv() {
                Ok(message) => self.handle(message),
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
    }

    fn handle(&mut self, message: Message) {
        match message {
            Message::Submit { requests, answer } => {
                let submitted = self.submit(requests);
                // Who does not wait for the answer any more, or is refused, has dropped the updates
                // too, and so cancels what was taken.
                let _ = answer.send(submitted);
            }
            Message::Stats(answer) => {
                let _ = answer.send(self.engine.stats());
            }
        }
    }

    fn submit(&mut self, requests: Vec<(Request, UnboundedSender<Update>)>) -> Result<(), Refused> {
        let (asked, most) = (requests.len(), self.most);
        if asked > most {
            return Err(Refused::TooMany { asked, most });
        }
        if self.live.len() + asked > most {
            return Err(Refused::Busy);
        }
        for (request, updates) in requests {
            self.warn_beyond(&request);
            let prompt = request.tokens.len();
            let id = self.engine.submit(request).map_err(Refused::Rejected)?;
            self.metrics.request(prompt);
            self.live.insert(id, Live { updates, arrived: Instant::now(), tokens: None });
        }
        Ok(())
    }

    /// Says once that a request may go past what the model was trained for; of later ones only to
    /// who reads everything.
    fn warn_beyond(&mut self, request: &Request) {
        let trained = self.engine.model().spec().context_length;
        let wanted = request.tokens.len().saturating_add(request.max_tokens);
        let positions = wanted.min(self.engine.context());
        if positions <= trained {
            return;
        }
        let text = "a request may go past the positions that the model was trained for";
        match std::mem::replace(&mut self.warned, true) {
            false => tracing::warn!(positions, trained, "{text}; of others only debug lines tell"),
            true => tracing::debug!(positions, trained, "{text}"),
        }
    }

    /// Cancels what nobody listens to any more.
    fn drop_abandoned(&mut self) {
        let abandoned = |(id, live): (&SeqId, &Live)| live.updates.is_closed().then_some(*id);
        let abandoned: Vec<SeqId> = self.live.iter().filter_map(abandoned).collect();
        for id in abandoned {
            self.engine.cancel(id);
        }
        while let Some(event) = self.engine.poll() {
            self.deliver(event);
        }
    }

    fn tell(&mut self, seq: SeqId, update: Update) {
        if let Some(live) = self.live.get(&seq) {
            self.post.add(live.updates.clone(), update, false);
        }
    }

    fn deliver(&mut self, event: Event) {
        let now = Instant::now();
        match event {
            Event::Token { seq, sampled, text } => {
                let Some(live) = self.live.get_mut(&seq) else { return };
                let first = live.tokens.is_none();
                match &mut live.tokens {
                    None => {
                        self.metrics.first_token(now - live.arrived);
                        live.tokens = Some((now, now));
                    }
                    Some((_, last)) => {
                        self.metrics.token(now - *last);
                        *last = now;
                    }
                }
                self.post.add(live.updates.clone(), Update::Token { sampled, text }, first);
            }
            Event::Scored { seq, tokens } => self.tell(seq, Update::Scored(tokens)),
            Event::Embedded { seq, vector } => self.tell(seq, Update::Embedded(vector)),
            // Nobody here asks for it.
            Event::Slots { .. } => {}
            Event::Finished { seq, reason, text, passes, cached } => {
                let Some(live) = self.live.remove(&seq) else { return };
                let (first, last) = live.tokens.unwrap_or((now, now));
                let times = Times {
                    first_token: first - live.arrived,
                    decode: last - first,
                    passes,
                    cached,
                };
                self.metrics.finished(reason, now - live.arrived, cached);
                self.post.add(live.updates, Update::Finished { reason, text, times }, true);
            }
        }
    }
}
