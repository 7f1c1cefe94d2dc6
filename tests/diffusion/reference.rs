//! Block diffusion written plainly from the paper (Fast-dLLM v2, arXiv 2509.26328, section 3 and
//! algorithm 1), not from the decoder: no cache of clean tokens, every pass computes all of them
//! again from the first on.

use wrinklefree::cache::{KvPool, KvSeq};
use wrinklefree::decode::{Sampler, SamplingParams};
use wrinklefree::model::{Model, Rows, Runtime, Sight, Span, Workspace};

pub struct Reference<'a> {
    pub model: &'a Model,
    pub rt: &'a Runtime,
    pub block: usize,
    pub sub_block: usize,
    pub threshold: f32,
    pub mask: u32,
    pub clean_causal: bool,
    /// Slots see themselves and what precedes them, instead of the whole block.
    pub causal: bool,
    /// Repeat passes look at the sub-block alone, against stale keys and values of the others.
    pub stale: bool,
}

/// One denoising pass: the block before it, and the logits of each masked slot of the sub-block.
pub struct Pass {
    pub block: Vec<u32>,
    pub logits: Vec<Vec<f32>>,
}

/// What a text took.
#[derive(Default)]
pub struct Run {
    pub passes: Vec<Pass>,
    /// Everything generated, whole blocks.
    pub output: Vec<u32>,
}

/// The keys and values of the clean tokens, with room for a block.
struct Context {
    kv: KvPool,
    seq: KvSeq,
    ws: Workspace,
    /// Logits of the last clean token.
    last: Vec<f32>,
}

impl Reference<'_> {
    fn clean(&self, tokens: &[u32]) -> Context {
        let mut kv = KvPool::new(self.model.spec(), 16).unwrap();
        let seq = kv.open(tokens.len() + self.block).unwrap();
        let (mut ws, mut last) = (Workspace::default(), Vec::new());
        if !tokens.is_empty() {
            let sight = if self.clean_causal { Sight::Causal } else { Sight::Blocks(self.block) };
            let span = Span { seq, start: 0, tokens, sight, logits: Rows::Last };
            last = self.model.forward(self.rt, &mut kv, &[span], &mut ws).values().to_vec();
        }
        Context { kv, seq, ws, last }
    }

    /// All logits of some slots of a block that ends at `end`.
    fn look(&self, c: &mut Context, start: usize, tokens: &[u32], end: usize) -> Vec<Vec<f32>> {
        let (seq, sight) = (c.seq, if self.causal { Sight::Causal } else { Sight::UpTo(end) });
        let span = Span { seq, start, tokens, sight, logits: Rows::All };
        let logits = self.model.forward(self.rt, &mut c.kv, &[span], &mut c.ws);
        (0..tokens.len()).map(|row| logits.row(row).to_vec()).collect()
    }

    /// The best token that is not MASK, and its probability: the sampler's (`tests/sampling.rs`), for
    /// in a block of MASKs alone all slots are equally sure but for the last bit.
    fn best(&self, logits: &[f32]) -> (u32, f32) {
        let logit_bias = vec![(self.mask, f32::NEG_INFINITY)];
        let params = SamplingParams { logit_bias, ..SamplingParams::default() };
        let choice = Sampler::new(params, &[]).choose(logits, 0);
        (choice.token, choice.probability)
    }

    pub fn run(&self, prompt: &[u32], at_least: usize) -> Run {
        let (b, s) = (self.block, self.sub_block);
        let mut run = Run::default();
        let mut clean = prompt[..prompt.len() / b * b].to_vec();
        let mut known = prompt[clean.len()..].to_vec();
        while clean.len() < prompt.len() + at_least {
            let l = clean.len();
            if known.is_empty() && l > 0 {
                known.push(self.best(&self.clean(&clean).last).0);
            }
            let mut block = known.clone();
            block.resize(b, self.mask);
            let mut masked: Vec<bool> = (0..b).map(|i| i >= known.len()).collect();
            let mut context = self.clean(&clean);
            for sub in (0..b).step_by(s) {
                let mut first_pass = true;
                while masked[sub..sub + s].contains(&true) {
                    let slots: Vec<usize> = (sub..sub + s).filter(|&i| masked[i]).collect();
                    let alone = self.stale && !first_pass && !masked[sub];
                    if !self.stale {
                        context = self.clean(&clean);
                    }
                    let from = if alone { sub } else { 0 };
                    let tokens = if alone { &block[sub..sub + s] } else { &block[..] };
                    let rows = self.look(&mut context, l + from, tokens, l + b);
                    // The logits at i − 1 predict token i; the first token of all has no i − 1.
                    let logits: Vec<Vec<f32>> =
                        slots.iter().map(|&i| rows[i.saturating_sub(1) - from].clone()).collect();
                    let choices: Vec<_> = logits.iter().map(|row| self.best(row)).collect();
                    run.passes.push(Pass { block: block.clone(), logits });
                    let surest = (0..slots.len())
                        .rev()
                        .max_by(|&a, &c| choices[a].1.total_cmp(&choices[c].1));
                    for (n, &i) in slots.iter().enumerate() {
                        if choices[n].1 > self.threshold || Some(n) == surest {
                            (block[i], masked[i]) = (choices[n].0, false);
                        }
                    }
                    first_pass = false;
                }
            }
            clean.extend(&block);
            known.clear();
        }
        run.output = clean[prompt.len()..].to_vec();
        run
    }
}
