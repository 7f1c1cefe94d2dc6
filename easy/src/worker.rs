//! The thread that owns the core's engine: steps it, and sends each request its events.

use crate::stream::CancelHandle;
use std::collections::HashMap;
use std::sync::mpsc::{Receiver, Sender, TryRecvError};
use wrinklefree::engine::{Engine, EngineStats, Event, EventKind, Request, SeqId, SubmitError};

/// A command to the engine's thread.
pub enum Command {
    /// Runs a request.
    Submit(Box<Submission>),
    /// Returns the state of the engine.
    Stats(Sender<EngineStats>),
}

/// A request with the channels of its caller.
pub struct Submission {
    pub request: Request,
    pub reply: Sender<Result<(), SubmitError>>,
    pub client: Client,
}

/// The receiver of a request's events.
pub struct Client {
    pub events: Sender<EventKind>,
    /// Set when the caller does not want more output.
    pub cancel: CancelHandle,
}

/// State of the engine's thread.
pub struct Worker {
    engine: Engine,
    clients: HashMap<SeqId, Client>,
}

impl Worker {
    pub fn new(engine: Engine) -> Self {
        Self { engine, clients: HashMap::new() }
    }

    /// Runs until all senders of commands are gone.
    pub fn run(mut self, commands: &Receiver<Command>) {
        while self.receive(commands) {
            let cancelled = self.clients.iter().filter(|(_, client)| client.cancel.is_cancelled());
            for id in cancelled.map(|(&id, _)| id).collect::<Vec<_>>() {
                self.engine.cancel(id);
            }
            self.deliver();
            if !self.clients.is_empty() {
                self.engine.step();
                self.deliver();
            }
        }
    }

    /// Handles all pending commands, and waits for one if no request is active. Returns false when
    /// all senders are gone.
    fn receive(&mut self, commands: &Receiver<Command>) -> bool {
        if self.clients.is_empty() {
            match commands.recv() {
                Ok(command) => self.handle(command),
                Err(_) => return false,
            }
        }
        loop {
            match commands.try_recv() {
                Ok(command) => self.handle(command),
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
    }

    fn handle(&mut self, command: Command) {
        // A caller that is gone needs no reply.
        match command {
            Command::Submit(submission) => {
                let Submission { request, reply, client } = *submission;
                let submitted = self.engine.submit(request);
                let _ = reply.send(submitted.map(|id| {
                    self.clients.insert(id, client);
                }));
            }
            Command::Stats(reply) => drop(reply.send(self.engine.stats())),
        }
    }

    fn deliver(&mut self) {
        while let Some(Event { seq, kind }) = self.engine.poll() {
            let finished = matches!(kind, EventKind::Finished { .. });
            if let Some(client) = self.clients.get(&seq) {
                let _ = client.events.send(kind);
            }
            if finished {
                self.clients.remove(&seq);
            }
        }
    }
}
