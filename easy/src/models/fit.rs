//! Sizes of a KV cache that fit the memory, and an error with numbers for what does not: a system that
//! runs out of memory kills the program without a word.

use crate::machine::{LimitedBy, MemoryLeft, free_swap, memory_left};
use std::fmt;
use wrinklefree::cache::{KvConfig, KvPool, PAGE, StateLimits, StateShape};
use wrinklefree::format::Spec;
use wrinklefree::model::Workspace;

/// Least number of positions of a default context, where memory is small.
const LEAST: usize = 512;
/// Least and largest number of recurrent states that the prefix cache keeps by default. More than the
/// largest number would be texts that nobody continues.
const STATES: (usize, usize) = (4, 1024);
/// Part of the memory that keys, values and kept states share, for the states.
const STATE_SHARE: u64 = 4;
/// Positions of a default context that may take nine tenths of the memory; longer ones take half of it.
const MODEST: usize = 4096;

/// Memory that a step of a program is about to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryNeed {
    /// Bytes of weights that are copied or converted.
    pub weights: u64,
    /// Bytes of the KV cache.
    pub kv: u64,
    /// Positions of the KV cache.
    pub positions: usize,
    /// Bytes of the buffers of forward passes.
    pub workspace: u64,
    /// Bytes of a drafter's buffers.
    pub drafter: u64,
}

/// Error: a model needs more memory than is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotEnoughMemory {
    /// The memory that it needs.
    pub need: MemoryNeed,
    /// The memory that is left.
    pub left: MemoryLeft,
}

impl fmt::Display for NotEnoughMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mb = |bytes: u64| bytes.div_ceil(1_000_000);
        let MemoryNeed { weights, kv, positions, workspace, drafter } = self.need;
        f.write_str("not enough memory: ")?;
        let advice = if weights > 0 {
            write!(f, "weights take {} MB", mb(weights))?;
            "use a smaller model, or leave a packed file mapped"
        } else {
            write!(f, "a KV cache of {positions} positions takes {} MB", mb(kv))?;
            write!(f, " and buffers {} MB", mb(workspace.saturating_add(drafter)))?;
            "ask for a shorter context, fewer positions in the KV cache, less memory for recurrent states or \
             an 8-bit KV type"
        };
        let MemoryLeft { bytes, limit } = self.left;
        write!(
            f,
            ", but {} MB of {limit} are left ({advice}, or raise the limit)",
            bytes / 1_000_000
        )
    }
}

impl std::error::Error for NotEnoughMemory {}

impl MemoryNeed {
    /// The memory of an engine with a KV cache of `pages` pages and passes of `rows` rows.
    pub fn engine(spec: &Spec, kv: &KvConfig, pages: usize, rows: usize) -> Self {
        Self {
            weights: 0,
            kv: KvPool::bytes(spec, pages, kv).saturating_add(KvPool::state_bytes(spec, kv)) as u64,
            positions: pages.saturating_mul(PAGE),
            workspace: Workspace::bytes(spec, rows) as u64,
            drafter: 0,
        }
    }

    /// Checks that this much memory is left. Swap space counts unless a limit of this process is tighter
    /// than the machine.
    ///
    /// # Errors
    /// If less is left.
    pub fn check(self) -> Result<(), NotEnoughMemory> {
        let Some(mut left) = memory_left() else { return Ok(()) };
        if left.limit == LimitedBy::Machine {
            left.bytes = left.bytes.saturating_add(free_swap().unwrap_or(0));
        }
        self.check_against(left)
    }

    /// Returns the bytes of all parts together.
    pub fn total(self) -> u64 {
        let parts = [self.weights, self.kv, self.workspace, self.drafter];
        parts.into_iter().fold(0, u64::saturating_add)
    }

    fn check_against(self, left: MemoryLeft) -> Result<(), NotEnoughMemory> {
        if self.total() <= left.bytes { Ok(()) } else { Err(NotEnoughMemory { need: self, left }) }
    }
}

/// Sizes of a KV cache that are asked for.
#[derive(Clone, Copy, Debug)]
pub struct KvSize {
    /// Positions of a sequence; `None` for the default.
    pub context: Option<usize>,
    /// The default number of positions.
    pub default_context: usize,
    /// Number of sequences that run at the same time.
    pub sequences: usize,
    /// Positions of all sequences together; `None` to choose them by the memory that is left.
    pub tokens: Option<usize>,
    /// Rows of a forward pass.
    pub rows: usize,
    /// Bytes of a drafter's buffers ([`Model::draft_buffer_bytes`](wrinklefree::model::Model)).
    pub draft_buffers: u64,
    /// Bytes of recurrent states that the prefix cache keeps; `None` for the default.
    pub state_memory: Option<u64>,
    /// Types of keys and values.
    pub kv: KvConfig,
}

/// Sizes of a KV cache that fit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KvFit {
    /// Positions of a sequence.
    pub context: usize,
    /// Number of KV pages.
    pub pages: usize,
    /// Types of keys and values, and numbers of recurrent states.
    pub kv: KvConfig,
}

impl KvSize {
    /// Returns the sizes. By default, these are pages for all sequences in at most half of the memory that is
    /// left, but enough for one sequence. A quarter of that half is for recurrent states that the prefix
    /// cache keeps, of models that have any: four at least. A context that nobody has asked for becomes
    /// shorter where memory is small. `limit` is a number of bytes that the engine may take; `None` for
    /// all that are left.
    ///
    /// # Errors
    /// If they do not fit.
    pub fn fitting(&self, spec: &Spec, limit: Option<u64>) -> Result<KvFit, NotEnoughMemory> {
        let left = memory_left().map(|left| left.bytes).into_iter().chain(limit).min();
        let fit = self.within(spec, left);
        let need = MemoryNeed::engine(spec, &fit.kv, fit.pages, self.rows);
        let need = MemoryNeed { drafter: self.draft_buffers, ..need };
        need.check()?;
        if let Some(bytes) = limit {
            need.check_against(MemoryLeft { bytes, limit: LimitedBy::Server })?;
        }
        Ok(fit)
    }

    /// As [`fitting`](Self::fitting), with `left` bytes of memory.
    fn within(&self, spec: &Spec, left: Option<u64>) -> KvFit {
        let kv = self.with_states(spec, left);
        let context = self.context.unwrap_or(self.default_context);
        let each = context.div_ceil(PAGE);
        let pages = self.tokens.map_or_else(
            || {
                let wanted = self.sequences.saturating_mul(each);
                let page = (KvPool::bytes(spec, 1, &kv) as u64).max(1);
                let fit = |bytes: u64| usize::try_from(bytes / page).unwrap_or(usize::MAX);
                let Some(left) = left else { return wanted };
                let states = KvPool::state_bytes(spec, &kv) as u64;
                let buffers = self.buffers(spec).saturating_add(states);
                let one = match self.context {
                    Some(_) => each,
                    None => {
                        let modest = fit((left / 10 * 9).saturating_sub(buffers));
                        each.min(modest.min(MODEST / PAGE))
                    }
                };
                wanted.min(
                    fit((left / 2).saturating_sub(states.saturating_add(self.draft_buffers)))
                        .max(one)
                        .max(each.min(LEAST / PAGE)),
                )
            },
            |tokens| tokens.div_ceil(PAGE),
        );
        KvFit { context: context.min(pages.saturating_mul(PAGE)), pages, kv }
    }

    /// Bytes of the keys and values that were asked for, and of buffers.
    fn asked(&self, spec: &Spec) -> u64 {
        let pages = self.tokens.or(self.context).map_or(0, |positions| positions.div_ceil(PAGE));
        let plain = KvConfig { states: StateLimits { sequences: 0, snapshots: 0 }, ..self.kv };
        let stated = KvPool::bytes(spec, pages, &plain) as u64;
        stated.saturating_add(self.buffers(spec))
    }

    /// Bytes of the buffers of passes.
    fn buffers(&self, spec: &Spec) -> u64 {
        (Workspace::bytes(spec, self.rows) as u64).saturating_add(self.draft_buffers)
    }

    /// Types and numbers of recurrent states: one for each sequence, and those that the prefix cache keeps.
    fn with_states(&self, spec: &Spec, left: Option<u64>) -> KvConfig {
        let numbers = |snapshots: usize| {
            let states = StateLimits { sequences: self.sequences, snapshots };
            KvConfig { states, ..self.kv }
        };
        let Some(shape) = StateShape::of(spec) else { return numbers(STATES.0) };
        let fit = |bytes: u64| {
            let count = bytes / (shape.snapshot_bytes() as u64).max(1);
            usize::try_from(count).unwrap_or(usize::MAX)
        };
        let count = match (self.state_memory, left) {
            (Some(bytes), _) => fit(bytes),
            (None, Some(left)) => {
                let running = KvPool::state_bytes(spec, &numbers(0)) as u64;
                let share = (left / 2).saturating_sub(running) / STATE_SHARE;
                // What was asked for comes first.
                let rest = left.saturating_sub(running).saturating_sub(self.asked(spec));
                fit(share.min(rest)).min(STATES.1)
            }
            (None, None) => self.sequences.saturating_mul(2),
        };
        numbers(count.max(STATES.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wrinklefree::format::{
        Activation, Architecture, LinearAttention, MixerKind, Rope, ValueOrder,
    };

    fn spec() -> Spec {
        Spec {
            architecture: Architecture::Llama,
            vocab_size: 1000,
            hidden_size: 64,
            intermediate_size: 128,
            layers: 4,
            heads: 4,
            kv_heads: 2,
            head_dim: 16,
            context_length: 4096,
            norm_eps: 1e-5,
            activation: Activation::Silu,
            rope: Rope { theta: 1e4, scaling: None },
            rotary_dim: None,
            attention_gate: false,
            linear_attention: None,
            mixers: Vec::new(),
            factors: None,
            mtp_layers: 0,
        }
    }

    fn size() -> KvSize {
        KvSize {
            context: None,
            default_context: 4096,
            sequences: 8,
            tokens: None,
            rows: 32,
            draft_buffers: 0,
            state_memory: None,
            kv: KvConfig::default(),
        }
    }

    /// Positions of a sequence, and number of pages.
    fn within(size: KvSize, left: Option<u64>) -> (usize, usize) {
        let KvFit { context, pages, .. } = size.within(&spec(), left);
        (context, pages)
    }

    #[test]
    fn the_default_follows_the_memory_that_is_left() {
        let spec = spec();
        let page = KvPool::bytes(&spec, 1, &KvConfig::default()) as u64;
        let buffers = Workspace::bytes(&spec, 32) as u64;
        let pages = |left| within(size(), Some(left));
        assert_eq!(within(size(), None), (4096, 8 * 128));
        assert_eq!(pages(u64::MAX), (4096, 8 * 128));
        assert_eq!(pages(page * 600), (4096, 300), "half of it");
        assert_eq!(pages(page * 160 + buffers * 2), (4096, 128), "enough for one sequence");
        let (context, few) = pages(page * 100 + buffers * 2);
        assert!((60..128).contains(&few) && context == few * PAGE, "{context} {few}");
        assert_eq!(pages(0), (LEAST, LEAST / PAGE));
        let drafted = KvSize { draft_buffers: page * 100, ..size() };
        assert_eq!(
            within(drafted, Some(page * 600)),
            (4096, 200),
            "a drafter's buffers take part of it"
        );
    }

    #[test]
    fn a_long_default_context_takes_half_of_the_memory() {
        let page = KvPool::bytes(&spec(), 1, &KvConfig::default()) as u64;
        let long = KvSize { default_context: 1 << 20, ..size() };
        assert_eq!(within(long, Some(page * 600)), (300 * PAGE, 300));
        assert_eq!(within(long, Some(u64::MAX)), (1 << 20, 8 << 15));
    }

    #[test]
    fn what_is_asked_for_does_not_shrink() {
        let asked = KvSize { context: Some(1000), ..size() };
        assert_eq!(within(asked, Some(0)), (1000, 32));
        let tokens = KvSize { tokens: Some(640), ..size() };
        assert_eq!(within(tokens, Some(0)), (640, 20));
    }

    #[test]
    fn kept_states_take_a_quarter_of_what_they_share_with_keys_and_values() {
        let shape = LinearAttention {
            key_heads: 2,
            value_heads: 4,
            key_dim: 16,
            value_dim: 16,
            conv_kernel: 4,
            value_order: ValueOrder::Grouped,
            output_grouped: false,
        };
        let mixers = [MixerKind::Linear, MixerKind::Attention];
        let spec = Spec { linear_attention: Some(shape), mixers: mixers.repeat(2), ..spec() };
        let states = StateShape::of(&spec).expect("there are some");
        let (running, each) = (8 * states.bytes() as u64, states.snapshot_bytes() as u64);
        let kept = |size: KvSize, left| size.within(&spec, left).kv.states.snapshots;
        let long = KvSize { default_context: 1 << 20, ..size() };
        let left = 2 * (running + 400 * each);
        assert_eq!(kept(long, Some(left)), 100);
        let KvFit { pages, kv, .. } = long.within(&spec, Some(left));
        let bytes = |pages| KvPool::bytes(&spec, pages, &kv) as u64;
        assert!(bytes(pages) <= 300 * each && bytes(pages + 1) > 300 * each, "{pages} pages");
        let most = (left - running - Workspace::bytes(&spec, 32) as u64) / bytes(1);
        let asked = KvSize { context: Some(most as usize * PAGE), sequences: 8, ..size() };
        assert_eq!(kept(asked, Some(left)), 4, "what was asked for comes first");
        let stated = |bytes| KvSize { state_memory: Some(bytes), ..long };
        assert_eq!(kept(stated(7 * each + 1), Some(left)), 7);
        assert_eq!((kept(stated(1), Some(left)), kept(long, Some(0))), (4, 4), "four at least");
        assert_eq!((kept(long, Some(u64::MAX)), kept(long, None)), (1024, 16));
    }

    #[test]
    fn an_error_has_numbers_and_advice() {
        let left = MemoryLeft { bytes: 90_000_000, limit: LimitedBy::Group(150_000_000) };
        let need = MemoryNeed {
            kv: 80_000_000,
            positions: 4096,
            workspace: 10_000_000,
            ..MemoryNeed::default()
        };
        assert_eq!(need.check_against(left), Ok(()));
        assert!(MemoryNeed { drafter: 1, ..need }.check_against(left).is_err());
        let more = MemoryNeed { kv: 80_000_001, ..need };
        let text = more.check_against(left).expect_err("too much").to_string();
        for part in ["4096 positions", "81 MB", "10 MB", "90 MB", "cgroup", "150 MB", "shorter"] {
            assert!(text.contains(part), "no {part:?} in: {text}");
        }
        let weights = MemoryNeed { weights: u64::MAX, ..MemoryNeed::default() };
        let text = weights.check_against(left).expect_err("too much").to_string();
        assert!(text.contains("weights take") && text.contains("smaller model"), "{text}");
    }
}
