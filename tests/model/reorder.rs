//! Reordering the intermediate columns of the feed-forward blocks gives the same model.

use crate::common::{Noise, bitnet, int8, odd, ternary};
use half::f16;
use std::collections::BTreeMap;
use wrinklefree::cache::{KvConfig, KvPool};
use wrinklefree::format::{
    Activations, Checkpoint, GenerationDefaults, ReorderError, Rotation, TextParts,
};
use wrinklefree::kernel::Kernels;
use wrinklefree::matrix::{GroupScales, Int8Matrix, Matrix, Scales, SplitMatrix, TernaryMatrix};
use wrinklefree::model::{AttentionMask, LogitRows, Model, Runtime, Span, Workspace};
use wrinklefree::par::ThreadPool;

/// A checkpoint whose last block of columns is not whole.
fn checkpoint() -> Checkpoint {
    let spec = odd();
    let mut weights = bitnet(&spec, 21);
    let mut noise = Noise(22);
    for layer in &mut weights.layers {
        let norm = (0..151).map(|_| 1.0 + noise.float() / 2.0);
        layer.ffn_sub_norm = Some(norm.collect());
        layer.up.bias = Some((0..151).map(|_| noise.float()).collect());
    }
    // `gate` and `up` may be of any kind: group scales, int8, planes.
    let scales = GroupScales::from_rows(151, 90, 32, |row, s| s.fill(f16::from_f32(row as f32)));
    let codes = ternary(151, 90, &mut noise).codes().clone();
    let grouped = TernaryMatrix::from_panels(151, 90, codes, Scales::Groups(scales.unwrap()));
    weights.layers[1].gate.weight = Matrix::Ternary(grouped.unwrap());
    weights.layers[1].gate.activations = Activations::Int16;
    let plain = int8(151, 90, &mut noise);
    let int8 = Int8Matrix::pack(151, 90, 90, |row, values, scales| {
        plain.unpack_row(row, values);
        scales[0] = 0.01 * row as f32;
    });
    weights.layers[2].gate.weight = Matrix::Split(SplitMatrix::new(int8.as_ref().unwrap()));
    weights.layers[2].up.weight = Matrix::Int8(int8.unwrap());
    let (text, generation) = (TextParts::default(), GenerationDefaults::default());
    Checkpoint {
        spec,
        weights,
        text,
        generation,
        dlm: None,
        training: None,
        flushed: 0,
        mtp_fault: None,
        stored_types: BTreeMap::new(),
        notes: Vec::new(),
    }
}

fn logits(checkpoint: Checkpoint) -> Vec<f32> {
    let model = Model::new(checkpoint.spec, checkpoint.weights).unwrap();
    let rt = Runtime { kernels: Kernels::best(), thread_pool: ThreadPool::new(1).unwrap() };
    let mut kv = KvPool::new(model.spec(), 1, KvConfig::EXACT).unwrap();
    let seq = kv.open(20).unwrap();
    let tokens: Vec<u32> = (0..20).map(|i| i * 37 % 131).collect();
    let span = Span {
        seq,
        start: 0,
        tokens: &tokens,
        attention_mask: AttentionMask::Causal,
        logits: LogitRows::All,
    };
    let mut ws = Workspace::default();
    model.forward(&rt, &mut kv, &[span], &mut ws).values().to_vec()
}

/// An order that moves every column.
fn order() -> Vec<usize> {
    (0..151).map(|i| (i * 40 + 7) % 151).collect()
}

#[test]
fn logits_stay_within_rounding() {
    let (plain, moved) = (checkpoint(), checkpoint().with_ffn_orders(&[(); 3].map(|()| order())));
    let moved = moved.unwrap();
    assert_ne!(plain.weights.layers[0].down, moved.weights.layers[0].down);
    let (a, b) = (logits(plain), logits(moved));
    let largest = a.iter().fold(0f32, |m, x| m.max(x.abs()));
    // A difference in the norm's last bit may move an 8-bit activation by one step.
    let difference = a.iter().zip(&b).fold(0f32, |m, (x, y)| m.max((x - y).abs())) / largest;
    assert!(difference < 0.02, "{difference}");
}

/// All weights of a matrix as f32.
fn weights(matrix: &Matrix) -> Vec<f32> {
    let mut values = vec![0.0; matrix.rows() * matrix.cols()];
    let rows = values.chunks_exact_mut(matrix.cols()).enumerate();
    rows.for_each(|(row, out)| matrix.row_f32(row, out));
    values
}

#[test]
fn an_order_and_its_inverse_give_back_every_weight() {
    let mut inverse = vec![0; 151];
    order().iter().enumerate().for_each(|(i, &from)| inverse[from] = i);
    let moved = checkpoint().with_ffn_orders(&[(); 3].map(|()| order())).unwrap();
    let back = moved.with_ffn_orders(&[(); 3].map(|()| inverse.clone())).unwrap();
    for (a, b) in checkpoint().weights.layers.iter().zip(&back.weights.layers) {
        for (a, b) in [(&a.gate, &b.gate), (&a.up, &b.up), (&a.down, &b.down)] {
            assert!(weights(&a.weight) == weights(&b.weight) && a.bias == b.bias);
        }
        assert_eq!(a.ffn_sub_norm, b.ffn_sub_norm);
    }
}

#[test]
fn columns_that_share_scales_are_refused_by_name() {
    let mut rotated = checkpoint();
    let rotation = Rotation { block: 1, signs: None };
    rotated.weights.layers[1].down.rotation = Some(rotation.into());
    let error = rotated.with_ffn_orders(&[(); 3].map(|()| order())).unwrap_err();
    assert_eq!(error, ReorderError::Rotated { layer: 1 });

    let mut wrong = checkpoint();
    let scales = GroupScales::from_rows(90, 151, 64, |_, s| s.fill(f16::ONE)).unwrap();
    let codes = ternary(90, 151, &mut Noise(3)).codes().clone();
    let down = TernaryMatrix::from_panels(90, 151, codes, Scales::Groups(scales)).unwrap();
    wrong.weights.layers[2].down.weight = Matrix::Ternary(down);
    let error = wrong.with_ffn_orders(&[(); 3].map(|()| order())).unwrap_err();
    assert_eq!(error, ReorderError::Down { layer: 2, kind: "ternary/g64".into() });
    assert!(error.to_string().contains("down_proj in layer 2 (ternary/g64)"), "{error}");
}
