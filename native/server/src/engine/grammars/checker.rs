//! A process that converts and compiles grammars and validates outputs before, or instead of, the server.
//!
//! Neither the conversion nor llguidance nor the validator can be interrupted, and a hostile grammar can
//! take minutes and gigabytes in places that their own limits do not reach. A process can be ended, and
//! has limits. What a client wrote reaches it as data ([`RequestedGrammar`]).

use super::requested::{AnswerForm, RequestedGrammar};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::io::{self, Read, Write};
use std::process::Stdio;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use wf_run_cli::system;
use wrinklefree_easy::models::grammar::{
    Effort, Grammars, PreparedGrammar, Validation, Vocabulary, replaced, validate,
};

/// Name of the command that runs [`serve_checks`].
pub const COMMAND: &str = "check-grammars";
/// Most memory of the process in bytes besides the compiler's stack, which is reserved as a whole.
const MEMORY: u64 = 256 << 20;
/// Largest message in bytes.
const MESSAGE: u32 = 64 << 20;

/// Work for the process.
#[derive(Serialize, Deserialize)]
pub enum Job<'a> {
    /// Converts and compiles a grammar.
    Compile {
        /// Form that a client asks for.
        requested: Cow<'a, RequestedGrammar>,
        /// The parts of it to keep.
        effort: Effort,
    },
    /// Validates an output against a schema.
    Validate {
        /// The schema.
        schema: Cow<'a, AnswerForm>,
        /// The output.
        text: Cow<'a, str>,
    },
}

/// The answer to a [`Job`].
#[derive(Serialize, Deserialize)]
pub enum Reply {
    /// The grammar, which can be compiled, or the reason why it cannot.
    Compiled(Result<Checked, String>),
    /// The report about the output.
    Validated(Validation),
}

/// A grammar that the process has compiled.
#[derive(Serialize, Deserialize)]
pub struct Checked {
    /// The grammar, for the server to compile.
    pub grammar: PreparedGrammar,
    /// Parts of a schema that it does not hold, each with its place.
    pub not_enforced: Vec<String>,
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
    pub async fn run(&mut self, job: &Job<'_>) -> io::Result<Reply> {
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
    if length <= MESSAGE {
        Ok(length as usize)
    } else {
        Err(io::Error::other("the message is too long"))
    }
}

/// Reads jobs from standard input until it ends, and writes replies to standard output.
///
/// # Errors
/// If a message is invalid, or the other end is gone.
pub fn serve_checks() -> anyhow::Result<()> {
    // Only the time ends it where the system has no limits.
    system::restrict_process(wrinklefree_easy::models::grammar::STACK as u64 + MEMORY)?;
    let (mut jobs, mut replies) = (io::stdin().lock(), io::stdout().lock());
    let Some(vocabulary) = receive::<Vocabulary>(&mut jobs)? else { return Ok(()) };
    let grammars = Grammars::for_checks(&vocabulary)?;
    while let Some(job) = receive::<Job<'_>>(&mut jobs)? {
        let reply = match job {
            Job::Compile { requested, effort } => {
                Reply::Compiled(compile(&grammars, &requested, effort))
            }
            Job::Validate { schema, text } => Reply::Validated(validated(&schema, &text)),
        };
        let reply = serde_json::to_vec(&reply)?;
        replies.write_all(&u32::try_from(reply.len())?.to_le_bytes())?;
        replies.write_all(&reply)?;
        replies.flush()?;
    }
    Ok(())
}

fn compile(
    grammars: &Grammars,
    requested: &RequestedGrammar,
    effort: Effort,
) -> Result<Checked, String> {
    let (grammar, mut not_enforced) = requested.convert(effort)?;
    let (grammar, compiled) = grammars.prepare(grammar)?;
    if let Some(answer) = requested.validated() {
        not_enforced.extend(replaced(&answer.schema()?, &compiled));
    }
    Ok(Checked { grammar, not_enforced })
}

fn validated(schema: &AnswerForm, text: &str) -> Validation {
    match schema.schema() {
        Ok(schema) => validate(&schema, text),
        Err(error) => Validation {
            errors: vec![format!("cannot validate: {error}")],
            ..Validation::default()
        },
    }
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
