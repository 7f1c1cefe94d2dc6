//! A hybrid model in f64, position by position, as its papers and `transformers` define it.

#![allow(dead_code, reason = "every test uses its own part")]

use wrinklefree::format::{
    AttentionWeights, LayerWeights, Linear, LinearAttention, LinearAttentionWeights, Mixer,
    Rotation, Spec, ValueOrder, Weights,
};
use wrinklefree::matrix::Matrix;

/// Logits of all positions, `[tokens][vocab_size]`.
pub fn logits(spec: &Spec, w: &Weights, tokens: &[u32]) -> Vec<f64> {
    hidden(spec, w, tokens).iter().flat_map(|x| head(w, x)).collect()
}

/// Hidden states of all positions after the final norm.
pub fn hidden(spec: &Spec, w: &Weights, tokens: &[u32]) -> Vec<Vec<f64>> {
    let mut x: Vec<Vec<f64>> = tokens.iter().map(|&token| embedding(w, token)).collect();
    w.layers.iter().for_each(|l| layer(spec, l, &mut x));
    x.iter().map(|x| rms(x, &w.final_norm, spec)).collect()
}

/// States of all positions after the first `layers` layers.
pub fn states(spec: &Spec, w: &Weights, tokens: &[u32], layers: usize) -> Vec<Vec<f64>> {
    let mut x: Vec<Vec<f64>> = tokens.iter().map(|&token| embedding(w, token)).collect();
    w.layers[..layers].iter().for_each(|l| layer(spec, l, &mut x));
    x
}

/// Output of the block for multi-token prediction in front of its head and its logits, for the positions
/// of `tokens`. `before` has the hidden state before each.
pub fn drafts(
    spec: &Spec,
    w: &Weights,
    tokens: &[u32],
    before: &[Vec<f64>],
) -> Vec<(Vec<f64>, Vec<f64>)> {
    let mtp = w.mtp.as_ref().unwrap();
    let input = |(&token, before): (&u32, &Vec<f64>)| {
        let embedding = match &mtp.embed {
            Some(embed) => row(embed, token as usize),
            None => embedding(w, token),
        };
        let parts = [rms(&embedding, &mtp.embed_norm, spec), rms(before, &mtp.hidden_norm, spec)];
        times(&mtp.input, &parts.concat())
    };
    let mut x: Vec<Vec<f64>> = tokens.iter().zip(before).map(input).collect();
    layer(spec, &mtp.layer, &mut x);
    let output = |x: &Vec<f64>| {
        let x = rms(x, mtp.head_norm.as_ref().unwrap_or(&w.final_norm), spec);
        let logits = match &mtp.head {
            Some(own) => times(own, &x),
            None => head(w, &x),
        };
        (x, logits)
    };
    x.iter().map(output).collect()
}

/// Logits of a hidden state.
pub fn head(w: &Weights, x: &[f64]) -> Vec<f64> {
    match &w.head {
        Some(head) => times(head, x),
        None => product(&w.embed, &turned(w.embed_rotation.as_deref(), x)),
    }
}

/// Runs a layer over all positions.
pub fn layer(spec: &Spec, layer: &LayerWeights, x: &mut [Vec<f64>]) {
    let inputs: Vec<_> = x.iter().map(|x| rms(x, &layer.mixer_norm, spec)).collect();
    let mixed = match &layer.mixer {
        Mixer::Attention(w) => attention(spec, w, &inputs),
        Mixer::Linear(w) => {
            linear_attention(spec, spec.linear_attention.as_ref().unwrap(), w, &inputs)
        }
    };
    for (x, y) in x.iter_mut().zip(mixed) {
        add(x, &y);
        let h = rms(x, &layer.ffn_norm, spec);
        let gate = times(&layer.gate, &h).into_iter().map(|g| g * sigmoid(g));
        let h: Vec<f64> = gate.zip(times(&layer.up, &h)).map(|(g, u)| g * u).collect();
        add(x, &times(&layer.down, &h));
    }
}

/// Embedding of a token.
pub fn embedding(w: &Weights, token: u32) -> Vec<f64> {
    let row = row(&w.embed, token as usize);
    match &w.embed_rotation {
        None => row,
        Some(r) => {
            let signs = r.signs.as_ref().unwrap();
            hadamard(&row, r.block).iter().zip(signs).map(|(x, s)| x * f64::from(*s)).collect()
        }
    }
}

fn attention(spec: &Spec, w: &AttentionWeights, inputs: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let (dim, group) = (spec.head_dim, spec.heads / spec.kv_heads);
    let heads = |linear: &Linear, x: &Vec<f64>| -> Vec<Vec<f64>> {
        times(linear, x).chunks(dim).map(<[f64]>::to_vec).collect()
    };
    let (mut keys, mut values, mut out) = (Vec::new(), Vec::new(), Vec::new());
    for (position, x) in inputs.iter().enumerate() {
        let turn = |head: &Vec<f64>, norm: &Option<Vec<f32>>| {
            rope(spec, &rms(head, norm.as_ref().unwrap(), spec), position)
        };
        keys.push(heads(&w.k, x).iter().map(|k| turn(k, &w.k_norm)).collect::<Vec<_>>());
        values.push(heads(&w.v, x));
        // Of each head the query, then its gate.
        let pairs = heads(&w.q, x);
        let mut joined = Vec::new();
        for head in 0..spec.heads {
            let q = turn(&pairs[2 * head], &w.q_norm);
            let score = |k: &Vec<Vec<f64>>| (dot(&q, &k[head / group]) / (dim as f64).sqrt()).exp();
            let weights: Vec<f64> = keys.iter().map(score).collect();
            let sum: f64 = weights.iter().sum();
            for c in 0..dim {
                let of = weights.iter().zip(&values).map(|(w, v)| w * v[head / group][c]);
                joined.push(of.sum::<f64>() / sum * sigmoid(pairs[2 * head + 1][c]));
            }
        }
        out.push(times(&w.o, &joined));
    }
    out
}

/// Turns a head by the angles of a position.
pub fn rope(spec: &Spec, head: &[f64], position: usize) -> Vec<f64> {
    let (mut out, rotary) = (head.to_vec(), spec.rotary_dim());
    for i in 0..rotary / 2 {
        let frequency = spec.rope.theta.powf(-2.0 * i as f64 / rotary as f64);
        let (sin, cos) = (position as f64 * frequency).sin_cos();
        let (a, b) = (head[i], head[i + rotary / 2]);
        (out[i], out[i + rotary / 2]) = (a * cos - b * sin, b * cos + a * sin);
    }
    out
}

fn linear_attention(
    spec: &Spec,
    shape: &LinearAttention,
    w: &LinearAttentionWeights,
    inputs: &[Vec<f64>],
) -> Vec<Vec<f64>> {
    let LinearAttention { key_heads, value_heads, key_dim, value_dim, conv_kernel, .. } = *shape;
    let rep = value_heads / key_heads;
    let u: Vec<Vec<f64>> = inputs.iter().map(|x| times(&w.qkv, x)).collect();
    let mut states = vec![vec![vec![0.0; value_dim]; key_dim]; value_heads];
    let mut outputs = Vec::new();
    for (t, x) in inputs.iter().enumerate() {
        let y: Vec<f64> = (0..shape.channels())
            .map(|c| {
                let taps = (0..conv_kernel).filter(|j| t + j + 1 >= conv_kernel);
                let weight = |j: usize| f64::from(w.conv[c * conv_kernel + j]);
                let sum: f64 = taps.map(|j| weight(j) * u[t + j + 1 - conv_kernel][c]).sum();
                sum * sigmoid(sum)
            })
            .collect();
        let (z, a, b) = (times(&w.z, x), times(&w.alpha, x), times(&w.beta, x));
        let mut heads = Vec::new();
        for (j, state) in states.iter_mut().enumerate() {
            let key_head = match shape.value_order {
                ValueOrder::Grouped => j / rep,
                ValueOrder::Tiled => j % key_heads,
            };
            let q = unit(&y[key_head * key_dim..][..key_dim]);
            let k = unit(&y[(key_heads + key_head) * key_dim..][..key_dim]);
            let v = &y[2 * key_heads * key_dim + j * value_dim..][..value_dim];
            let softplus = (1.0 + (a[j] + f64::from(w.dt_bias[j])).exp()).ln();
            let alpha = (f64::from(w.a[j]) * softplus).exp();
            state.iter_mut().flatten().for_each(|s| *s *= alpha);
            let mut o = vec![0.0; value_dim];
            for c in 0..value_dim {
                let read: f64 = (0..key_dim).map(|r| state[r][c] * k[r]).sum();
                let d = sigmoid(b[j]) * (v[c] - read);
                (0..key_dim).for_each(|r| state[r][c] += k[r] * d);
                let of: f64 = (0..key_dim).map(|r| state[r][c] * q[r]).sum();
                o[c] = of / (key_dim as f64).sqrt();
            }
            let z = z[j * value_dim..][..value_dim].iter().map(|z| z * sigmoid(*z));
            heads
                .push(rms(&o, &w.norm, spec).iter().zip(z).map(|(o, z)| o * z).collect::<Vec<_>>());
        }
        // Tiled heads in front of a projection that has them grouped are put in that order.
        let order: Vec<usize> = match (shape.value_order, shape.output_grouped) {
            (ValueOrder::Tiled, true) => {
                (0..value_heads).map(|g| g % rep * key_heads + g / rep).collect()
            }
            _ => (0..value_heads).collect(),
        };
        let joined: Vec<f64> = order.iter().flat_map(|&j| heads[j].clone()).collect();
        outputs.push(times(&w.out, &joined));
    }
    outputs
}

/// y = W·x, or W·H(s ⊙ x) in a rotated basis.
pub fn times(linear: &Linear, x: &[f64]) -> Vec<f64> {
    product(&linear.weight, &turned(linear.rotation.as_deref(), x))
}

fn product(matrix: &Matrix, x: &[f64]) -> Vec<f64> {
    (0..matrix.rows()).map(|r| dot(&row(matrix, r), x)).collect()
}

/// A row of a matrix.
pub fn row(matrix: &Matrix, r: usize) -> Vec<f64> {
    let mut row = vec![0.0; matrix.cols()];
    matrix.row_f32(r, &mut row);
    row.into_iter().map(f64::from).collect()
}

fn turned(rotation: Option<&Rotation>, x: &[f64]) -> Vec<f64> {
    let Some(r) = rotation else { return x.to_vec() };
    let signs = r.signs.as_ref().unwrap();
    let signed: Vec<f64> = x.iter().zip(signs).map(|(x, s)| x * f64::from(*s)).collect();
    hadamard(&signed, r.block)
}

/// H[r][c] = (−1)^popcount(r AND c) / √block.
pub fn hadamard(x: &[f64], block: usize) -> Vec<f64> {
    let entry =
        |r: usize, c: usize| if (r & c).count_ones().is_multiple_of(2) { 1.0 } else { -1.0 };
    let of = |x: &[f64], r: usize| -> f64 {
        let sum: f64 = x.iter().enumerate().map(|(c, x)| entry(r, c) * x).sum();
        sum / (block as f64).sqrt()
    };
    x.chunks(block).flat_map(|x| (0..block).map(move |r| of(x, r))).collect()
}

/// RMSNorm.
pub fn rms(x: &[f64], norm: &[f32], spec: &Spec) -> Vec<f64> {
    let mean = dot(x, x) / x.len() as f64;
    let factor = 1.0 / (mean + f64::from(spec.norm_eps)).sqrt();
    x.iter().zip(norm).map(|(x, w)| x * factor * f64::from(*w)).collect()
}

fn unit(x: &[f64]) -> Vec<f64> {
    let length = (dot(x, x) + 1e-6).sqrt();
    x.iter().map(|x| x / length).collect()
}

/// x += y.
pub fn add(x: &mut [f64], y: &[f64]) {
    x.iter_mut().zip(y).for_each(|(x, y)| *x += y);
}

/// Inner product.
pub fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// 1 / (1 + e^−x).
pub fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}
