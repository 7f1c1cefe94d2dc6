//! Nets that draft tokens from the model's hidden states: one interface for the model's own block for
//! multi-token prediction and for drafters in files of their own.
//!
//! A net reads each position of a text once, with the states that the model had there, and keeps keys and
//! values in layers of the same pages. What it drafts changes no token.

use super::{Model, Runtime, Workspace};
use crate::cache::{DraftLayers, KvPool, KvSeq};
use crate::decode::{DraftNet, Sampler, argmax};
use crate::format::Linear;
use std::ops::Range;

/// The work of the net for one sequence.
#[derive(Clone, Debug)]
pub struct DraftJob<'a> {
    /// The sequence in the KV cache.
    pub seq: KvSeq,
    /// The known text.
    pub tokens: &'a [u32],
    /// Positions to read. Before a draft these are the last ones that can be read:
    /// [`Model::unread_tokens`] are left after them.
    pub positions: Range<usize>,
    /// The states that these positions read, `[positions]` of [`Model::state_width`]; zeros where they are
    /// unknown.
    pub states: &'a [f32],
    /// Number of tokens to draft; 0 to read only.
    pub wanted: usize,
    /// The draft ends before the first token of a lower confidence.
    pub threshold: f32,
    /// Draws the drafted tokens with the random numbers of their places; `None` drafts the most likely ones.
    pub sampler: Option<Sampler>,
}

impl DraftJob<'_> {
    /// Chooses the next drafted token.
    pub(super) fn choose(&mut self, logits: &[f32]) -> u32 {
        let Some(sampler) = &mut self.sampler else { return argmax(logits, None) };
        let token = sampler.next(logits, sampler.position());
        sampler.accept(token);
        token
    }
}

/// A draft for one sequence.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Draft {
    /// The drafted tokens.
    pub tokens: Vec<u32>,
    /// Confidence in each token, and in the one that the draft ends before; empty if the net has none.
    pub confidences: Vec<f32>,
}

impl Model {
    /// Returns the properties of the net that drafts for the model, if it has one.
    pub fn draft_net(&self) -> Option<DraftNet> {
        let all = self.bytes_per_token() as f32;
        let net = match (self.drafter.as_deref(), self.weights.mtp.as_deref()) {
            (Some(drafter), _) => drafter.net(all),
            (None, Some(mtp)) => DraftNet::mtp(self.mtp_bytes(mtp) as f32 / all),
            (None, None) => return None,
        };
        Some(match self.draft_costs.get() {
            Some(&(pass_cost, token_cost)) => {
                DraftNet { pass_cost, token_cost, measured: true, ..net }
            }
            None => net,
        })
    }

    /// Returns the shape of the layers of a drafter, for [`KvConfig`](crate::cache::KvConfig).
    pub fn draft_layers(&self) -> Option<DraftLayers> {
        Some(self.drafter.as_deref()?.layers())
    }

    /// Width of the states that a pass keeps for the net: [`Model::forward_keeping`].
    pub fn state_width(&self) -> usize {
        match self.drafter.as_deref() {
            Some(drafter) => drafter.taps().len() * self.spec.hidden_size,
            None => self.spec.hidden_size,
        }
    }

    /// Number of last tokens of the known text that the net does not read with states. A drafter begins its
    /// block with the newest token. A block for multi-token prediction reads a token with the state before
    /// it.
    pub fn unread_tokens(&self) -> usize {
        usize::from(self.drafter.is_some())
    }

    /// Lets the net read positions, write its keys and values, and draft tokens: a draft for each job.
    ///
    /// # Panics
    /// When the model has no net that drafts, or a job is outside of its sequence's pages, its text or the
    /// vocabulary.
    pub fn draft(
        &self,
        rt: &Runtime,
        kv: &mut KvPool,
        jobs: &mut [DraftJob<'_>],
        ws: &mut Workspace,
    ) -> Vec<Draft> {
        for job in &*jobs {
            let states = job.positions.len() * self.state_width();
            assert_eq!(job.states.len(), states, "states for each position");
            assert!(job.positions.end <= job.tokens.len(), "positions of the text");
            let known = |&token: &u32| (token as usize) < self.spec.vocab_size;
            let last = job.tokens.last();
            let read = job.tokens[job.positions.clone()].iter().chain(last);
            assert!(read.into_iter().all(known), "tokens are in the vocabulary");
        }
        match self.drafter.as_deref() {
            Some(drafter) => drafter.draft(self.spec.layers, rt, kv, jobs, ws),
            None => self.draft_by_mtp(rt, kv, jobs, ws),
        }
    }
}

/// Bytes of weights that a product with a matrix reads.
pub(super) fn bytes(linear: &Linear) -> usize {
    linear.weight.bytes()
}
