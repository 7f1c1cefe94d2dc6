//! Mutated model files of every format and architecture: each one is refused, or is a model that answers.
//! None panics, hangs or takes memory out of proportion.
//!
//! `WF_MUTATED_FILES` sets their number (4,000), `WF_MUTATED_SEED` the seed (1), `WF_MUTATED_FIRST` the number
//! of the first file (0). A failure names its file's number; `WF_MUTATED_FILES=1` writes that one to the
//! folder `WF_MUTATED_OUT`.

#[path = "../common/counting.rs"]
mod counting;
#[path = "../common/format.rs"]
mod fixtures;
mod mutate;
mod sources;
#[path = "../fuzz/http/values.rs"]
mod values;

use counting::{HELD, PEAK};
use fastrand::Rng;
use std::fmt::{Display, Formatter, Result as Written};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::{Duration, Instant};
use wrinklefree::decode::DecodeMode;
use wrinklefree::engine::{Engine, EngineConfig, EventKind, Request, Step};
use wrinklefree::format::{Checkpoint, File, LoadError, LoadOptions, load_with};
use wrinklefree::kernel::Kernels;
use wrinklefree::loader::WeightLoader;
use wrinklefree::model::{Model, Runtime};
use wrinklefree::par::ThreadPool;
use wrinklefree::settings::{ModelCapabilities, Settings};
use wrinklefree::text::Tokenizer;

/// The longest time that a file may take, on a busy machine.
const LONGEST: Duration = Duration::from_secs(5);
/// The most memory that loading a file and answering may take.
const MEMORY: usize = 64 << 20;
const TEXT: &str = " \u{0}<s> aab é\u{301} 日本\u{AD}\r\n 12\u{200D}👩‍💻  ▁<0x0A>";

/// Counts of files by their end.
#[derive(Default)]
struct Tally {
    refused: u64,
    no_model: u64,
    answered: u64,
    failed: Vec<String>,
    slowest: Duration,
    most_memory: usize,
}

/// The end of one file.
enum End {
    Refused,
    NoModel,
    Answered,
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |n| n.parse().expect("a number"))
}

#[test]
fn mutated_files_are_refused_or_answer() {
    let (files, seed) = (number("WF_MUTATED_FILES", 4000), number("WF_MUTATED_SEED", 1));
    let first = number("WF_MUTATED_FIRST", 0);
    let sources = sources::all();
    for (name, source) in &sources {
        let files = source.files();
        assert!(matches!(answer(files.clone()), End::Answered), "{name}: {:?}", read(files).err());
    }
    let threads = thread::available_parallelism().map_or(1, usize::from) as u64;
    let tally = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|worker| {
                let sources = &sources;
                scope.spawn(move || {
                    let mut tally = Tally::default();
                    (first + worker..first + files).step_by(threads as usize).for_each(|file| {
                        tally.file(seed, file, sources);
                    });
                    tally
                })
            })
            .collect();
        let tallies = workers.into_iter().map(|worker| worker.join().expect("a worker"));
        tallies.fold(Tally::default(), Tally::and)
    });
    println!("seed {seed}, {files} files of {} kinds: {tally}", sources.len());
    assert!(tally.failed.is_empty(), "{:#?}", tally.failed);
    assert!(tally.refused > 0 && tally.answered > 0, "both happen");
}

impl Tally {
    fn file(&mut self, seed: u64, file: u64, sources: &[(String, mutate::Source)]) {
        let mut rng = Rng::with_seed(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ file);
        let (name, source) = &sources[rng.usize(..sources.len())];
        let files = source.mutated(&mut rng);
        if let Ok(folder) = std::env::var("WF_MUTATED_OUT") {
            for file in &files {
                let path = format!("{folder}/{}", file.name);
                std::fs::write(path, file.bytes.whole()).expect("a folder");
            }
        }
        let (before, begin) = (HELD.get(), Instant::now());
        PEAK.set(before);
        let end = catch_unwind(AssertUnwindSafe(|| answer(files)));
        let (time, memory) = (begin.elapsed(), PEAK.get().saturating_sub(before));
        match end {
            Ok(End::Refused) => self.refused += 1,
            Ok(End::NoModel) => self.no_model += 1,
            Ok(End::Answered) => self.answered += 1,
            Err(_) => self.failed.push(format!("file {file} ({name}) panics")),
        }
        if time > LONGEST || memory > MEMORY {
            self.failed.push(format!("file {file} ({name}) takes {time:?} and {memory} bytes"));
        }
        self.slowest = self.slowest.max(time);
        self.most_memory = self.most_memory.max(memory);
    }

    fn and(mut self, other: Self) -> Self {
        self.refused += other.refused;
        self.no_model += other.no_model;
        self.answered += other.answered;
        self.failed.extend(other.failed);
        self.slowest = self.slowest.max(other.slowest);
        self.most_memory = self.most_memory.max(other.most_memory);
        self
    }
}

impl Display for Tally {
    fn fmt(&self, f: &mut Formatter) -> Written {
        write!(
            f,
            "{} refused by the loader, {} by the model, {} answered, {} failed; at most {} ms and {} KiB",
            self.refused,
            self.no_model,
            self.answered,
            self.failed.len(),
            self.slowest.as_millis(),
            self.most_memory >> 10,
        )
    }
}

/// Loads files, with a block for multi-token prediction if they have one.
fn read(files: Vec<File>) -> Result<Checkpoint, LoadError> {
    load_with(files, LoadOptions { mtp: true }, &mut WeightLoader::alone())
}

/// Loads files and lets what they hold encode, decode and generate.
fn answer(files: Vec<File>) -> End {
    let Ok(checkpoint) = read(files) else { return End::Refused };
    if let Some(vocabulary) = &checkpoint.text.vocabulary
        && let Ok(tokenizer) = Tokenizer::new(vocabulary)
    {
        let ids = tokenizer.encode(TEXT, true).unwrap_or_default();
        assert!(ids.iter().all(|&id| (id as usize) < tokenizer.vocab_size()));
        let _ = tokenizer.decode(&ids);
    }
    match generate(checkpoint) {
        Some(()) => End::Answered,
        None => End::NoModel,
    }
}

/// Generates a few tokens in each mode that the model has.
fn generate(checkpoint: Checkpoint) -> Option<()> {
    let Checkpoint { spec, weights, dlm, .. } = checkpoint;
    let vocab = spec.vocab_size as u32;
    let mut modes = vec![DecodeMode::Autoregressive];
    let model = Model::new(spec, weights).ok()?;
    let capabilities = ModelCapabilities {
        name: "this model",
        dlm: dlm.as_ref(),
        tokenizer: None,
        vocab: model.spec().vocab_size,
        rows: 512,
        draft_net: model.draft_net(),
    };
    modes.extend(Settings::default().mode(&capabilities).ok());
    let runtime = Runtime { kernels: Kernels::best(), thread_pool: ThreadPool::new(1).ok()? };
    let config =
        EngineConfig { max_context: 64, kv_pages: 4, max_sequences: 2, ..EngineConfig::default() };
    let mut engine = Engine::new(model, None, runtime, config).ok()?;
    for mode in modes {
        let tokens = [0, 5, 1].iter().map(|token| token % vocab).collect();
        // A mode that the model does not have is refused by name.
        let _ = engine.submit(Request { tokens, mode, max_tokens: 3, ..Request::default() });
    }
    for steps in 0.. {
        assert!(steps < 1000, "the engine does not end");
        if engine.step() == Step::Idle {
            break;
        }
    }
    while let Some(event) = engine.poll() {
        if let EventKind::Token { sampled, .. } = event.kind {
            assert!(sampled.token < vocab, "a token of the vocabulary");
        }
    }
    Some(())
}
