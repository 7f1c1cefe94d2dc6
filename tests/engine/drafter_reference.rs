//! Drafters in f64, as their description defines them: one block, without caches.

use crate::common::Noise;
use crate::hybrid::{exact, norm};
use crate::reference::{add, dot, embedding, head, rms, rope, row, sigmoid, states, times};
use std::collections::BTreeMap;
use wrinklefree::format::{
    Activation, Architecture, AttentionWeights, DraftLayout, DrafterCheckpoint, DrafterConfig,
    DrafterScales, DrafterWeights, LayerWeights, Linear, MarkovWeights, Mixer, Rope, Spec, Weights,
};

/// A deliberate mistake.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mistake {
    None,
    /// Slots are read one late, or one early.
    OtherLayout,
    /// Positions are one too high.
    Positions,
    NoHiddenNorm,
    NoMarkov,
    /// Hidden states are those one layer earlier.
    EarlierTaps,
    /// The last position before the newest token is left out.
    ShortContext,
    /// Rows see no later ones, or see them although they should not.
    OtherMask,
    /// Every row is conditioned as the newest token.
    Conditioning,
    /// All keys are seen, or one more than the window has.
    NoWindow,
    LongerWindow,
    /// The windows of the layers are exchanged.
    OtherWindows,
    NoEmbeddingScale,
    NoLogitScale,
    NoLogitCap,
    /// The MASK token's row of the table is taken.
    MaskOfTable,
    /// The rows of a reduced head are taken for the first tokens.
    FirstTokens,
}

/// A random drafter for a model of this shape. `heads` has everything that DSpark may have.
pub fn random(
    target: &Spec,
    taps: &[usize],
    layout: DraftLayout,
    heads: bool,
    seed: u64,
) -> DrafterCheckpoint {
    let mut noise = Noise(seed);
    let (hidden, vocab, rank) = (target.hidden_size, target.vocab_size, 7);
    let spec = Spec {
        architecture: Architecture::Qwen3,
        activation: Activation::Silu,
        vocab_size: 0,
        intermediate_size: 70,
        layers: 2,
        heads: 4,
        kv_heads: 2,
        head_dim: 10,
        rope: Rope { theta: 1e4, scaling: None },
        rotary_dim: None,
        attention_gate: false,
        linear_attention: None,
        mixers: Vec::new(),
        factors: None,
        mtp_layers: 0,
        ..target.clone()
    };
    let layers = (0..spec.layers).map(|_| layer(&spec, &mut noise)).collect();
    let with_bias = |rows: usize, cols: usize, noise: &mut Noise| {
        let bias = Some((0..rows).map(|_| noise.float()).collect());
        Linear { bias, ..exact(rows, cols, noise) }
    };
    let weights = DrafterWeights {
        input: exact(hidden, taps.len() * hidden, &mut noise),
        hidden_norm: norm(hidden, &mut noise),
        layers,
        final_norm: norm(hidden, &mut noise),
        embed: None,
        mask_row: None,
        head: None,
        target_ids: None,
        markov: heads.then(|| MarkovWeights {
            previous: exact(vocab, rank, &mut noise).weight,
            next: exact(vocab, rank, &mut noise),
        }),
        confidence: heads.then(|| with_bias(1, hidden + rank, &mut noise)),
        log_snr: heads.then(|| [with_bias(20, 128, &mut noise), with_bias(hidden, 20, &mut noise)]),
    };
    let config = DrafterConfig {
        block: 5,
        mask: 1,
        taps: taps.to_vec(),
        layout,
        layout_stated: true,
        causal: false,
        log_snr: heads.then_some((-6.0, 9.0)),
        windows: Vec::new(),
        scales: DrafterScales::default(),
    };
    DrafterCheckpoint { spec, config, weights, flushed: 0, stored_types: BTreeMap::new() }
}

fn layer(spec: &Spec, noise: &mut Noise) -> LayerWeights {
    let (d, f) = (spec.hidden_size, spec.intermediate_size);
    let (q, kv) = (spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim);
    LayerWeights {
        mixer_norm: norm(d, noise),
        mixer: Mixer::Attention(Box::new(AttentionWeights {
            q: exact(q, d, noise),
            k: exact(kv, d, noise),
            v: exact(kv, d, noise),
            q_norm: Some(norm(spec.head_dim, noise)),
            k_norm: Some(norm(spec.head_dim, noise)),
            sub_norm: None,
            o: exact(d, q, noise),
            draft_adapter: None,
        })),
        ffn_norm: norm(d, noise),
        gate: exact(f, d, noise),
        up: exact(f, d, noise),
        ffn_sub_norm: None,
        down: exact(d, f, noise),
    }
}

/// The model that a drafter drafts for, and the drafter.
pub struct Pair<'a> {
    pub spec: &'a Spec,
    pub weights: &'a Weights,
    pub drafter: &'a DrafterCheckpoint,
    pub mistake: Mistake,
}

/// Keys or values of a layer: `[rows][heads]`.
type Heads = Vec<Vec<Vec<f64>>>;

impl Pair<'_> {
    fn is(&self, mistake: Mistake) -> bool {
        self.mistake == mistake
    }

    /// The states that the drafter reads at each position of a text.
    pub fn features(&self, text: &[u32]) -> Vec<Vec<f64>> {
        let after = usize::from(!self.is(Mistake::EarlierTaps));
        let taps = self.drafter.config.taps.iter();
        let states: Vec<_> =
            taps.map(|tap| states(self.spec, self.weights, text, tap + after)).collect();
        let at = |p: usize| states.iter().flat_map(|of| of[p].clone()).collect();
        (0..text.len()).map(at).collect()
    }

    /// Drafts `wanted` tokens after a text, with the confidence in each. `features` are those of all its
    /// positions, and of those no more are read than may be known. `choose` chooses a token from logits.
    pub fn draft(
        &self,
        text: &[u32],
        features: &[Vec<f64>],
        wanted: usize,
        choose: &mut dyn FnMut(&[f64]) -> u32,
    ) -> Vec<(u32, Option<f64>)> {
        let DrafterCheckpoint { spec, config, weights: w, .. } = self.drafter;
        let n = text.len() - 1;
        let layout = match (config.layout, self.is(Mistake::OtherLayout)) {
            (DraftLayout::DFlash, false) | (DraftLayout::DSpark, true) => 1,
            _ => 0,
        };
        // Without the mistake there is a row less in DSpark's blocks.
        let rows = wanted + config.layout.unread_rows().max(layout);
        let first = n + usize::from(self.is(Mistake::Positions));
        let mut x = self.inputs(text[n], rows);
        let known = n - usize::from(self.is(Mistake::ShortContext)).min(n);
        let context: Vec<Vec<f64>> = features[..known]
            .iter()
            .map(|f| {
                let y = times(&w.input, f);
                if self.is(Mistake::NoHiddenNorm) { y } else { rms(&y, &w.hidden_norm, spec) }
            })
            .collect();
        for (i, layer) in w.layers.iter().enumerate() {
            self.layer(layer, &context, &mut x, first, self.window(i));
        }
        let mut before = text[n];
        let mut drafted = Vec::new();
        for x in &x[layout..layout + wanted] {
            let h = rms(x, &w.final_norm, spec);
            let mut logits = match &w.head {
                Some(own) => times(own, &h),
                None => head(self.weights, &h),
            };
            self.scale(&mut logits);
            let mut input = h.clone();
            if let Some(markov) = &w.markov {
                let previous = row(&markov.previous, before as usize);
                if !self.is(Mistake::NoMarkov) {
                    add(&mut logits, &times(&markov.next, &previous));
                }
                input.extend(previous);
            }
            let confidence = w
                .confidence
                .as_ref()
                .map(|c| sigmoid(times(c, &input)[0] + f64::from(c.bias.as_ref().unwrap()[0])));
            before = choose(&self.all(logits));
            drafted.push((before, confidence));
        }
        drafted
    }

    /// Number of positions that a row of a layer sees up to its own.
    fn window(&self, layer: usize) -> usize {
        let windows = &self.drafter.config.windows;
        let other = usize::from(self.is(Mistake::OtherWindows));
        match windows.get((layer + other) % windows.len().max(1)).copied().flatten() {
            Some(window) if !self.is(Mistake::NoWindow) => {
                window + usize::from(self.is(Mistake::LongerWindow))
            }
            _ => usize::MAX,
        }
    }

    fn scale(&self, logits: &mut [f64]) {
        let DrafterScales { logit, logit_cap, .. } = self.drafter.config.scales;
        for x in logits {
            *x *= if self.is(Mistake::NoLogitScale) { 1.0 } else { f64::from(logit) };
            if let Some(cap) = logit_cap.map(f64::from).filter(|_| !self.is(Mistake::NoLogitCap)) {
                *x = cap * (*x / cap).tanh();
            }
        }
    }

    /// Logits of the model's whole vocabulary.
    fn all(&self, logits: Vec<f64>) -> Vec<f64> {
        let Some(ids) = &self.drafter.weights.target_ids else { return logits };
        let mut all = vec![f64::NEG_INFINITY; self.spec.vocab_size];
        for (i, logit) in logits.into_iter().enumerate() {
            all[if self.is(Mistake::FirstTokens) { i } else { ids[i] as usize }] = logit;
        }
        all
    }

    /// Embeddings of the newest token and of MASK tokens, conditioned.
    fn inputs(&self, anchor: u32, rows: usize) -> Vec<Vec<f64>> {
        let DrafterCheckpoint { config, weights: w, .. } = self.drafter;
        let input = |i: usize| {
            let token = if i == 0 { anchor } else { config.mask };
            let mut x = match &w.embed {
                Some(own) => row(own, token as usize),
                None => embedding(self.weights, token),
            };
            if let Some(own) =
                w.mask_row.as_ref().filter(|_| i > 0 && !self.is(Mistake::MaskOfTable))
            {
                x = own.iter().map(|&x| f64::from(x)).collect();
            }
            if !self.is(Mistake::NoEmbeddingScale) {
                x.iter_mut().for_each(|x| *x *= f64::from(config.scales.embedding));
            }
            if let (Some([first, second]), Some((min, max))) = (&w.log_snr, config.log_snr) {
                let anchor = i == 0 || self.is(Mistake::Conditioning);
                let s = if anchor { max } else { min };
                let time = 1000.0 * (s - min) / (max - min);
                let angle = |i: i32| time * 10_000f64.powf(-f64::from(i) / 64.0);
                let sines = (0..64).map(|i| angle(i).sin());
                let f: Vec<f64> = sines.chain((0..64).map(|i| angle(i).cos())).collect();
                let inner = biased(first, &f).into_iter().map(|x| x * sigmoid(x));
                add(&mut x, &biased(second, &inner.collect::<Vec<_>>()));
            }
            x
        };
        (0..rows).map(input).collect()
    }

    fn layer(
        &self,
        layer: &LayerWeights,
        context: &[Vec<f64>],
        x: &mut [Vec<f64>],
        first: usize,
        window: usize,
    ) {
        let spec = &self.drafter.spec;
        let w = layer.mixer.attention().unwrap();
        let heads = |y: &[Vec<f64>], start: usize| -> (Heads, Heads) {
            let key = |(i, y): (usize, &Vec<f64>)| {
                let of =
                    |k: &[f64]| rope(spec, &rms(k, w.k_norm.as_ref().unwrap(), spec), start + i);
                times(&w.k, y).chunks(spec.head_dim).map(of).collect()
            };
            let value = |y: &Vec<f64>| -> Vec<Vec<f64>> {
                times(&w.v, y).chunks(spec.head_dim).map(<[f64]>::to_vec).collect()
            };
            (y.iter().enumerate().map(key).collect(), y.iter().map(value).collect())
        };
        let normed: Vec<_> = x.iter().map(|x| rms(x, &layer.mixer_norm, spec)).collect();
        let (mut keys, mut values) = heads(context, 0);
        let own = heads(&normed, first);
        keys.extend(own.0);
        values.extend(own.1);
        let causal = self.drafter.config.causal != self.is(Mistake::OtherMask);
        for (i, x) in x.iter_mut().enumerate() {
            let end = if causal { context.len() + i + 1 } else { keys.len() };
            // The row's own key and those before it that the window has.
            let seen = (context.len() + i + 1).saturating_sub(window)..end;
            let mut joined = Vec::new();
            for (h, q) in times(&w.q, &normed[i]).chunks(spec.head_dim).enumerate() {
                let q = rope(spec, &rms(q, w.q_norm.as_ref().unwrap(), spec), first + i);
                let kv = h / (spec.heads / spec.kv_heads);
                let score = |k: &Vec<Vec<f64>>| dot(&q, &k[kv]) / (spec.head_dim as f64).sqrt();
                let weights: Vec<f64> = keys[seen.clone()].iter().map(|k| score(k).exp()).collect();
                let sum: f64 = weights.iter().sum();
                for c in 0..spec.head_dim {
                    let of = weights.iter().zip(&values[seen.clone()]).map(|(w, v)| w * v[kv][c]);
                    joined.push(of.sum::<f64>() / sum);
                }
            }
            add(x, &times(&w.o, &joined));
            let h = rms(x, &layer.ffn_norm, spec);
            let gate = times(&layer.gate, &h).into_iter().map(|g| g * sigmoid(g));
            let h: Vec<f64> = gate.zip(times(&layer.up, &h)).map(|(g, u)| g * u).collect();
            add(x, &times(&layer.down, &h));
        }
    }
}

/// The most likely token.
pub fn best(logits: &[f64]) -> u32 {
    (0..logits.len()).max_by(|&a, &b| logits[a].total_cmp(&logits[b])).unwrap() as u32
}

fn biased(linear: &Linear, x: &[f64]) -> Vec<f64> {
    let bias = linear.bias.iter().flatten().map(|&b| f64::from(b));
    let mut y = times(linear, x);
    y.iter_mut().zip(bias).for_each(|(y, b)| *y += b);
    y
}
