//! Reference implementation of block diffusion, from the paper (Fast-dLLM v2, arXiv 2509.26328, section 3
//! and algorithm 1). It does not cache final tokens: every pass computes all of them again.

use wrinklefree::cache::{KvConfig, KvPool, KvSeq};
use wrinklefree::decode::{Certainty, Sampler, SamplingParams, Unmask};
use wrinklefree::model::{AttentionMask, LogitRows, Model, Runtime, Span, Workspace};

pub struct Reference<'a> {
    pub model: &'a Model,
    pub rt: &'a Runtime,
    pub block: usize,
    pub sub_block: usize,
    pub unmask: Unmask,
    pub mask: u32,
    pub clean_causal: bool,
    /// Slots attend to themselves and earlier tokens, instead of the whole block.
    pub causal: bool,
    /// Later passes compute the sub-block alone, with stale keys and values of the other slots.
    pub stale: bool,
    /// A block's first pass also computes the finished block before it.
    pub fused: bool,
    /// The logits at i − 1 predict token i; otherwise those at i do.
    pub shift: bool,
}

/// One denoising pass: its tokens (the finished block first if the pass computes it), and the logits of
/// the slots that it predicts.
pub struct Pass {
    pub block: Vec<u32>,
    pub logits: Vec<Vec<f32>>,
}

/// All passes of a text, and its output.
#[derive(Default)]
pub struct Run {
    pub passes: Vec<Pass>,
    /// All generated tokens, whole blocks.
    pub output: Vec<u32>,
}

/// Keys and values of the final tokens, with room for a block.
struct Context {
    kv: KvPool,
    seq: KvSeq,
    ws: Workspace,
    /// Logits of the last final token.
    last: Vec<f32>,
}

impl Reference<'_> {
    fn clean(&self, tokens: &[u32]) -> Context {
        let mut kv = KvPool::new(self.model.spec(), 16, KvConfig::EXACT).unwrap();
        let seq = kv.open(tokens.len() + self.block).unwrap();
        let (mut ws, mut last) = (Workspace::default(), Vec::new());
        if !tokens.is_empty() {
            let attention_mask = if self.clean_causal {
                AttentionMask::Causal
            } else {
                AttentionMask::BlockCausal(self.block)
            };
            let span = Span { seq, start: 0, tokens, attention_mask, logits: LogitRows::Last };
            last = self.model.forward(self.rt, &mut kv, &[span], &mut ws).values().to_vec();
        }
        Context { kv, seq, ws, last }
    }

    /// Returns the logits of all rows of some slots, in a block that ends at `end`.
    fn pass(&self, c: &mut Context, start: usize, tokens: &[u32], end: usize) -> Vec<Vec<f32>> {
        let (seq, attention_mask) =
            (c.seq, if self.causal { AttentionMask::Causal } else { AttentionMask::Prefix(end) });
        let span = Span { seq, start, tokens, attention_mask, logits: LogitRows::All };
        let logits = self.model.forward(self.rt, &mut c.kv, &[span], &mut c.ws);
        (0..tokens.len()).map(|row| logits.row(row).to_vec()).collect()
    }

    /// Returns the best token except MASK, and its certainty. The certainty is the sampler's, compared with
    /// the definition: in a block of MASK tokens the slots differ in the last bit only.
    fn best(&self, logits: &[f32]) -> (u32, f32) {
        let logit_bias = vec![(self.mask, f32::NEG_INFINITY)];
        let params = SamplingParams { logit_bias, ..SamplingParams::default() };
        let by = match self.unmask {
            Unmask::Margin(_) => Certainty::Margin,
            Unmask::Entropy(_) => Certainty::Entropy,
            _ => Certainty::Probability,
        };
        let choice = Sampler::new(params, &[]).predict(logits, 0, by);
        let want = self.certainty(logits);
        assert!((choice.certainty - want).abs() < 1e-4, "{by:?}: {} {want}", choice.certainty);
        (choice.token, choice.certainty)
    }

    /// Returns the certainty of the best token by definition.
    fn certainty(&self, logits: &[f32]) -> f32 {
        let allowed = logits.iter().enumerate().filter(|(i, _)| *i != self.mask as usize);
        let weights: Vec<f64> = allowed.map(|(_, &x)| f64::from(x).exp()).collect();
        let sum: f64 = weights.iter().sum();
        let mut p: Vec<f64> = weights.iter().map(|w| w / sum).collect();
        p.sort_by(|a, b| b.total_cmp(a));
        (match self.unmask {
            Unmask::Margin(_) => p[0] - p[1],
            Unmask::Entropy(_) => p.iter().filter(|&&p| p > 0.0).map(|p| p * p.ln()).sum(),
            _ => p[0],
        }) as f32
    }

    /// Marks the choices that are accepted: the largest set of the most certain ones that the selector's
    /// definition allows, by trying each size.
    fn select(&self, choices: &[(u32, f32)], pass: usize) -> Vec<bool> {
        let sure = |i: usize| choices[i].1;
        let mut order: Vec<usize> = (0..choices.len()).collect();
        order.sort_by(|&a, &b| sure(b).total_cmp(&sure(a)).then(a.cmp(&b)));
        let allowed = |set: &[usize]| {
            let least = set.iter().map(|&i| sure(i)).fold(f32::INFINITY, f32::min);
            match self.unmask {
                Unmask::All => true,
                Unmask::Above(t) | Unmask::Margin(t) => least > t,
                Unmask::AtLeast(t) => least >= t,
                Unmask::Rising(t) => match pass {
                    0 => least > (t - 0.4).max(0.5),
                    1 => least > (t - 0.2).max(0.7),
                    _ => least > t,
                },
                Unmask::ThresholdAndFactor(..)
                | Unmask::ThresholdOrFactor(..)
                | Unmask::Product(_) => {
                    unreachable!("`nemotron.py` is their reference")
                }
                Unmask::Factor(f) => (set.len() + 1) as f32 * (1.0 - least) < f,
                Unmask::Entropy(bound) => {
                    let sum: f32 = set.iter().map(|&i| -sure(i)).sum();
                    sum + least <= bound
                }
                Unmask::Top(n) => set.len() <= n,
            }
        };
        let most = (1..=order.len()).rev().find(|&n| allowed(&order[..n])).unwrap_or(1);
        let mut accepted = vec![false; choices.len()];
        order.iter().take(most).for_each(|&i| accepted[i] = true);
        accepted
    }

    pub fn run(&self, prompt: &[u32], at_least: usize) -> Run {
        let (b, s) = (self.block, self.sub_block);
        let mut run = Run::default();
        let mut clean = prompt[..prompt.len() / b * b].to_vec();
        let mut known = prompt[clean.len()..].to_vec();
        while clean.len() < prompt.len() + at_least {
            let l = clean.len();
            // The token that the finished block predicts; the first pass has it unless commits are fused.
            let first = (self.shift && known.is_empty() && l > 0).then(|| self.clean(&clean).last);
            let late = self.fused && self.shift && l > prompt.len() / b * b;
            if let (Some(logits), false) = (&first, late) {
                known.push(self.best(logits).0);
            }
            let mut block = known.clone();
            block.resize(b, self.mask);
            let mut masked: Vec<bool> = (0..b).map(|i| i >= known.len()).collect();
            let mut context = self.clean(&clean);
            for sub in (0..b).step_by(s) {
                let mut pass = 0;
                while masked[sub..sub + s].contains(&true) {
                    let carried = late && masked[0] && sub == 0;
                    let from_slot = if carried { 1 } else { sub };
                    let slots: Vec<usize> = (from_slot..sub + s).filter(|&i| masked[i]).collect();
                    let alone = self.stale && pass > 0 && !masked[sub];
                    if !self.stale {
                        context = self.clean(&clean);
                    }
                    let from = if alone { sub } else { 0 };
                    let tokens = if alone { &block[sub..sub + s] } else { &block[..] };
                    let rows = self.pass(&mut context, l + from, tokens, l + b);
                    // With a shift the logits at i − 1 predict token i; its own logits predict token 0.
                    let row = |i: usize| i.saturating_sub(usize::from(self.shift)) - from;
                    let mut logits: Vec<Vec<f32>> =
                        slots.iter().map(|&i| rows[row(i)].clone()).collect();
                    let choices: Vec<_> = logits.iter().map(|row| self.best(row)).collect();
                    let mut seen = block.clone();
                    if carried {
                        let first = first.clone().expect("there is a block before it");
                        (block[0], masked[0]) = (self.best(&first).0, false);
                        logits.insert(0, first);
                        seen.splice(..0, clean[l - b..].iter().copied());
                    }
                    run.passes.push(Pass { block: seen, logits });
                    for (&i, (choice, accepted)) in
                        slots.iter().zip(choices.iter().zip(self.select(&choices, pass)))
                    {
                        if accepted {
                            (block[i], masked[i]) = (choice.0, false);
                        }
                    }
                    pass += 1;
                }
            }
            clean.extend(&block);
            known.clear();
        }
        run.output = clean[prompt.len()..].to_vec();
        run
    }
}
