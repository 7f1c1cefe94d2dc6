//! Prompts in flight: a sequence whose beginning a running one computes waits for its pages, and for its
//! recurrent states, instead of computing them again.
//!
//! Only sequences that hold nothing wait, and only for running ones that read known text. So no sequence
//! waits for a waiting one, and each wait ends at the latest when the running sequence does.

use super::sequence::{AwaitedPrompt, Running, Sequence};
use crate::cache::{KvPool, PAGE};

/// Least number of positions that are worth a wait.
const LEAST: usize = 2 * PAGE;

/// Returns true if `next`, which has no pages, waits for text that a running sequence is about to compute.
pub(super) fn waits(next: &mut Sequence, running: &mut [Running], pool: &KvPool) -> bool {
    if let Some(AwaitedPrompt { by, end }) = next.awaited {
        let computes = |r: &Running| r.sequence.id == by && is_reading(r, end, pool);
        if running.iter().any(computes) {
            return true;
        }
    }
    next.awaited = find(next, running, pool);
    next.awaited.is_some()
}

/// Returns true if a sequence reads known text, and has not reached this position.
fn is_reading(running: &Running, position: usize, pool: &KvPool) -> bool {
    let Running { kv, sequence } = running;
    sequence.decoder.prefilling() && pool.committed(*kv) < position
}

/// Returns the longest text that a sequence can wait for.
fn find(next: &Sequence, running: &mut [Running], pool: &KvPool) -> Option<AwaitedPrompt> {
    let tokens = &next.decoder.tokens()[..next.decoder.skippable()];
    let least = pool.cached_prefix(&next.namespace, tokens)? + LEAST;
    let mut best: Option<AwaitedPrompt> = None;
    for other in running {
        // A sequence that decodes has read its prompt: its text need not be compared.
        let reads = other.sequence.decoder.prefilling();
        if !reads || tokens.len() < least || other.sequence.namespace != next.namespace {
            continue;
        }
        let theirs = other.sequence.decoder.tokens().iter();
        let common = theirs.zip(tokens).take_while(|(a, b)| a == b).count() / PAGE * PAGE;
        if common < least || !is_reading(other, common, pool) {
            continue;
        }
        let committed = pool.committed(other.kv);
        let end = match (&mut other.sequence.snapshots, pool.state_shape()) {
            (_, None) => common,
            (Some(plan), Some(_)) => plan.share(common, committed),
            (None, Some(_)) => 0,
        };
        if end >= least && end > committed && best.is_none_or(|best| best.end < end) {
            best = Some(AwaitedPrompt { by: other.sequence.id, end });
        }
    }
    best
}
