//! The thread that owns the core's engine: steps it, and sends each request its events.

use std::collections::HashMap;
use std::sync::Weak;
use std::sync::mpsc::{Receiver, Sender, TryRecvError};
use wrinklefree::engine::{Engine, EngineStats, Event, Request, SeqId, SubmitError};

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
    pub events: Sender<Event>,
    /// Gone when the caller does not want the events any more, which cancels the request.
    pub alive: Weak<()>,
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
            let abandoned = self.clients.iter().filter(|(_, c)| c.alive.strong_count() == 0);
            for id in abandoned.map(|(&id, _)| id).collect::<Vec<_>>() {
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
        while let Some(event) = self.engine.poll() {
            let (Event::Scored { seq, .. }
            | Event::Embedded { seq, .. }
            | Event::Token { seq, .. }
            | Event::Slots { seq, .. }
            | Event::Finished { seq, .. }) = event;
            let client = match event {
                Event::Finished { .. } => self.clients.remove(&seq),
                _ => None,
            };
            if let Some(client) = client.as_ref().or_else(|| self.clients.get(&seq)) {
                let _ = client.events.send(event);
            }
        }
    }
}
