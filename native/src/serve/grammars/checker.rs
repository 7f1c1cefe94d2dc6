//! A process that compiles grammars and validates outputs before, or instead of, the server.
//!
//! Neither llguidance nor the validator can be interrupted, and a hostile grammar can take minutes and
//! gigabytes in places that their own limits do not reach. A process can be ended, and has limits.

use crate::cli::system;
use crate::models::grammar::{Grammar, Grammars, Validation, Vocabulary, validate};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::io::{self, Read, Write};
use std::process::Stdio;
use std::thread;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// Name of the command that runs [`serve_checks`].
pub const COMMAND: &str = "check-grammars";
/// Most memory of the process in bytes besides the compiler's stack, which is reserved as a whole.
const MEMORY: u64 = 256 << 20;
/// Largest message in bytes.
const MESSAGE: u32 = 64 << 20;

/// Work for the process.
#[derive(Serialize, Deserialize)]
pub enum Job {
    /// Compiles a grammar.
    Compile(Grammar),
    /// Validates an output against a schema.
    Validate {
        /// The schema.
        schema: Value,
        /// The output.
        text: String,
    },
}

/// The answer to a [`Job`].
#[derive(Serialize, Deserialize)]
pub enum Reply {
    /// The grammar can be compiled, or the reason why not.
    Compiled(Result<(), String>),
    /// The report about the output.
    Validated(Validation),
}

/// A running process. Dropping it kills it.
pub struct Checker {
    jobs: ChildStdin,
    replies: ChildStdout,
    _process: Child,
}

impl Checker {
    /// Starts the process for a vocabulary.
    ///
    /// # Errors
    /// If it cannot be started.
    pub async fn start(vocabulary: &Vocabulary) -> io::Result<Self> {
        let mut command = Command::new(system::program()?);
        command.arg(COMMAND).env_clear().kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = command.spawn()?;
        let (Some(jobs), Some(replies)) = (process.stdin.take(), process.stdout.take()) else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        let mut checker = Self { jobs, replies, _process: process };
        checker.send(vocabulary).await?;
        Ok(checker)
    }

    /// Runs a job. If the future is dropped before it ends, the process must be dropped, too.
    ///
    /// # Errors
    /// If the process has ended: the job exceeded its memory, or the stack.
    pub async fn run(&mut self, job: &Job) -> io::Result<Reply> {
        self.send(job).await?;
        let length = self.replies.read_u32_le().await?;
        let mut reply = vec![0; checked(length)?];
        self.replies.read_exact(&mut reply).await?;
        Ok(serde_json::from_slice(&reply)?)
    }

    async fn send(&mut self, message: &impl Serialize) -> io::Result<()> {
        let message = serde_json::to_vec(message)?;
        let length = u32::try_from(message.len()).map_err(io::Error::other)?;
        self.jobs.write_u32_le(length).await?;
        self.jobs.write_all(&message).await?;
        self.jobs.flush().await
    }
}

fn checked(length: u32) -> io::Result<usize> {
    match length <= MESSAGE {
        true => Ok(length as usize),
        false => Err(io::Error::other("the message is too long")),
    }
}

/// Reads jobs from standard input until it ends, and writes replies to standard output.
///
/// # Errors
/// If a message is invalid, or the other end is gone.
pub fn serve_checks() -> anyhow::Result<()> {
    // Only the time ends it where the system has no limits.
    system::restrict_process(crate::models::grammar::STACK as u64 + MEMORY)?;
    let (mut jobs, mut replies) = (io::stdin().lock(), io::stdout().lock());
    let Some(vocabulary) = receive::<Vocabulary>(&mut jobs)? else { return Ok(()) };
    let grammars = Grammars::for_checks(&vocabulary)?;
    while let Some(job) = receive::<Job>(&mut jobs)? {
        let reply = match job {
            Job::Compile(grammar) => Reply::Compiled(grammars.compile(grammar).map(|_| ())),
            Job::Validate { schema, text } => Reply::Validated(validated(schema, text)),
        };
        let reply = serde_json::to_vec(&reply)?;
        replies.write_all(&u32::try_from(reply.len())?.to_le_bytes())?;
        replies.write_all(&reply)?;
        replies.flush()?;
    }
    Ok(())
}

/// Validates on a stack that fits deep schemas.
fn validated(schema: Value, text: String) -> Validation {
    let thread = thread::Builder::new().stack_size(crate::models::grammar::STACK / 4);
    let report = thread.spawn(move || validate(&schema, &text)).ok().and_then(|t| t.join().ok());
    let failed = || Validation { errors: vec!["cannot validate".into()], ..Validation::default() };
    report.unwrap_or_else(failed)
}

/// Reads a message; `None` at the end of the input.
fn receive<T: DeserializeOwned>(input: &mut impl Read) -> anyhow::Result<Option<T>> {
    let mut length = [0; 4];
    match input.read_exact(&mut length) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    }
    let mut message = vec![0; checked(u32::from_le_bytes(length))?];
    input.read_exact(&mut message)?;
    Ok(Some(serde_json::from_slice(&message)?))
}
