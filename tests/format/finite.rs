//! A model file with a weight that is NaN or infinite is refused, whatever its format, with the place of
//! the weight. Subnormal weights become zero and are counted.

use crate::fixtures::{Gguf, Hf, Raw, Style, f32_bytes, file};
use half::{bf16, f16};
use wrinklefree::format::{Checkpoint, File, LoadErrorKind, codec, load, write_packed};
use wrinklefree::matrix::{FloatType, Int8Matrix, Matrix, SplitMatrix};

/// A number as elements of a safetensors type.
fn element(dtype: &str, value: f32) -> Vec<u8> {
    match dtype {
        "F32" => value.to_le_bytes().to_vec(),
        "F16" => f16::from_f32(value).to_le_bytes().to_vec(),
        "BF16" => bf16::from_f32(value).to_le_bytes().to_vec(),
        other => panic!("{other} is no float"),
    }
}

/// Replaces element `at` of a tensor by `value`.
fn replace(raw: &mut Raw, at: usize, value: f32) {
    let bytes = element(raw.dtype, value);
    raw.bytes[at * bytes.len()..][..bytes.len()].copy_from_slice(&bytes);
}

#[track_caller]
fn refused(files: Vec<File>, words: &[&str]) {
    let error = load(files).expect_err("a weight is not finite");
    assert_eq!(error.kind(), LoadErrorKind::NotFinite, "{error}");
    let text = error.to_string();
    for word in words {
        assert!(text.contains(word), "`{word}` is not in: {text}");
    }
}

/// A tensor of every kind that holds floats, its row and column of element 17.
fn of_each_kind(style: Style) -> Vec<(&'static str, &'static str)> {
    let mut tensors = vec![
        ("model.embed_tokens.weight", "row 1, column 1"),
        ("lm_head.weight", "row 1, column 1"),
        ("model.layers.1.mlp.ffn_sub_norm.weight", "column 17"),
    ];
    if style != Style::Packed {
        tensors.push(("model.layers.1.mlp.down_proj.weight", "row 0, column 17"));
        tensors.push(("model.layers.0.self_attn.q_proj.weight", "row 1, column 1"));
    }
    tensors
}

#[test]
fn no_tensor_of_a_directory_may_hold_a_number_that_is_not_finite() {
    for style in [Style::Packed, Style::Master, Style::Float] {
        for (name, place) in of_each_kind(style) {
            for (value, shown) in
                [(f32::NAN, "NaN"), (f32::INFINITY, "inf"), (f32::NEG_INFINITY, "-inf")]
            {
                let mut hf = Hf::new("bitnet", style);
                replace(hf.tensors.get_mut(name).expect("there"), 17, value);
                refused(hf.files(), &["model.safetensors", name, shown, place]);
            }
        }
    }
}

#[test]
fn every_float_type_is_checked() {
    for dtype in ["F32", "F16", "BF16"] {
        let mut hf = Hf::new("llama", Style::Float);
        let raw = hf.tensors.get_mut("model.embed_tokens.weight").expect("there");
        let count = raw.bytes.len() / 2;
        (raw.dtype, raw.bytes) = (dtype, element(dtype, 0.25).repeat(count));
        assert_eq!(hf.load().expect("finite").flushed, 0);
        replace(hf.tensors.get_mut("model.embed_tokens.weight").expect("there"), 40, f32::NAN);
        refused(hf.files(), &["model.embed_tokens.weight", "NaN in row 2, column 8"]);
    }
}

#[test]
fn no_tensor_of_a_gguf_file_may_hold_a_number_that_is_not_finite() {
    let model = || {
        Gguf::model("llama", 64, Gguf::F32, |rng, rows, cols| f32_bytes(&rng.floats(rows * cols)))
    };
    // RoPE pairs are neighbors in the file: row 1 of the file is row 16 of the model.
    for (name, place) in [
        ("token_embd.weight", "row 1, column 6"),
        ("blk.1.attn_q.weight", "row 16, column 6"),
        ("blk.1.ffn_norm.weight", "column 6"),
    ] {
        let mut g = model();
        let at = if name.contains("norm") { 6 } else { 70 };
        g.tensor(name).bytes[4 * at..][..4].copy_from_slice(&f32::NAN.to_le_bytes());
        refused(vec![file("model.gguf", g.bytes())], &["model.gguf", name, "NaN", place]);
    }
    let mut g = Gguf::q2();
    // The scale of the second block is that of row 1, which has one block.
    g.tensor("blk.0.ffn_up.weight").bytes[18..20].copy_from_slice(&f16::INFINITY.to_le_bytes());
    refused(
        vec![file("model.gguf", g.bytes())],
        &["blk.0.ffn_up.weight", "the scale inf", "row 1, column 0"],
    );
    let mut g = Gguf::model("llama", 256, 12, |_, rows, _| vec![0; rows * 144]);
    g.tensor("blk.0.ffn_up.weight").bytes[144..146].copy_from_slice(&f16::NAN.to_le_bytes());
    refused(vec![file("model.gguf", g.bytes())], &["blk.0.ffn_up.weight", "NaN", "row 1"]);
}

fn packed(c: &Checkpoint) -> Vec<u8> {
    let mut out = Vec::new();
    write_packed(c, None, &mut out).expect("written");
    out
}

/// Replaces the only occurrence of `from` in a file.
fn patched(mut bytes: Vec<u8>, from: &[u8], to: &[u8]) -> Vec<File> {
    let places: Vec<_> =
        (0..bytes.len() - from.len()).filter(|&i| bytes[i..].starts_with(from)).collect();
    assert_eq!(places.len(), 1, "it occurs once");
    bytes[places[0]..][..to.len()].copy_from_slice(to);
    vec![file("model.packed", bytes)]
}

/// A model whose head has int8 values with one scale that occurs nowhere else.
fn with_int8_head(split: bool, scale: f32) -> Checkpoint {
    let mut c = Hf::new("bitnet", Style::Packed).load().expect("loads");
    let head = Int8Matrix::pack(20, 16, 16, |row, values, scales| {
        values.fill(1);
        values[0] = 127;
        scales[0] = if row == 18 { scale } else { 1.0 };
    });
    let head = head.expect("finite");
    let weight = if split { Matrix::Split(SplitMatrix::new(&head)) } else { Matrix::Int8(head) };
    c.weights.head.as_mut().expect("it has one").weight = weight;
    c
}

#[test]
fn no_tensor_of_a_packed_file_may_hold_a_number_that_is_not_finite() {
    let mut c = Hf::new("bitnet", Style::Packed).load().expect("loads");
    let Matrix::Float(embed) = &c.weights.embed else { panic!("bf16") };
    let row = embed.row(3).to_vec();
    let mut broken = row.clone();
    broken[8..10].copy_from_slice(&bf16::NEG_INFINITY.to_le_bytes());
    refused(
        patched(packed(&c), &row, &broken),
        &["model.packed", "`embed`", "-inf in row 3, column 4"],
    );
    c.weights.layers[1].ffn_norm[5] = f32::NAN;
    refused(vec![file("model.packed", packed(&c))], &["layers.1.ffn_norm", "NaN in column 5"]);

    for split in [false, true] {
        let c = with_int8_head(split, 0.3125);
        let nan = f32::NAN.to_le_bytes();
        let scale = 0.3125f32.to_le_bytes();
        refused(patched(packed(&c), &scale, &nan), &["`head.scales`", "NaN in row 1, column 2"]);
        // The scale is finite, but not the weight that it makes.
        let most = f32::MAX.to_le_bytes();
        refused(patched(packed(&c), &scale, &most), &["`head`", "row 18, column 0"]);
    }
}

const TINY: f32 = f32::MIN_POSITIVE / 4.0;

#[test]
fn subnormal_weights_become_zero_in_every_format() {
    let mut hf = Hf::new("bitnet", Style::Packed);
    for (name, at, value) in [
        ("model.embed_tokens.weight", 3, TINY),
        ("model.embed_tokens.weight", 319, -TINY),
        ("model.norm.weight", 2, TINY),
        // The scale is the reciprocal.
        ("model.layers.0.mlp.up_proj.weight_scale", 0, 3e38),
    ] {
        replace(hf.tensors.get_mut(name).expect("there"), at, value);
    }
    let c = hf.load().expect("finite");
    assert_eq!(c.flushed, 4);
    let mut row = [1f32; 16];
    c.weights.embed.row_f32(0, &mut row);
    assert_eq!(row[3].to_bits(), 0);
    c.weights.embed.row_f32(19, &mut row);
    assert_eq!(row[15].to_bits(), (-0.0f32).to_bits());
    assert_eq!(c.weights.final_norm[2].to_bits(), 0);

    let mut g =
        Gguf::model("llama", 64, Gguf::F32, |rng, rows, cols| f32_bytes(&rng.floats(rows * cols)));
    for name in ["token_embd.weight", "blk.0.attn_q.weight", "blk.1.attn_norm.weight"] {
        g.tensor(name).bytes[20..24].copy_from_slice(&TINY.to_le_bytes());
    }
    assert_eq!(g.load().expect("finite").flushed, 3);

    for split in [false, true] {
        let bytes = packed(&with_int8_head(split, 0.3125));
        let files = patched(bytes, &0.3125f32.to_le_bytes(), &TINY.to_le_bytes());
        let c = load(files).expect("finite");
        assert_eq!(c.flushed, 1);
        let mut row = [1f32; 16];
        c.weights.head.as_ref().expect("it has one").weight.row_f32(18, &mut row);
        assert_eq!(row, [0.0; 16]);
        c.weights.head.as_ref().expect("it has one").weight.row_f32(17, &mut row);
        assert_eq!(row[0], 127.0);
    }
}

#[test]
fn a_subnormal_scale_makes_a_matrix_of_zeros() {
    let mut g = Gguf::model("bitnet-b1.58", 128, 36, |rng, rows, cols| {
        codec::encode_i2s(&rng.ternary(rows, cols, None)).expect("whole blocks")
    });
    let end = g.tensor("blk.0.ffn_up.weight").bytes.len() - codec::I2S_TRAILER;
    g.tensor("blk.0.ffn_up.weight").bytes[end..end + 4].copy_from_slice(&TINY.to_le_bytes());
    let c = g.load().expect("finite");
    assert_eq!(c.flushed, 1);
    let mut row = [1f32; 128];
    c.weights.layers[0].up.weight.row_f32(0, &mut row);
    assert!(row.iter().all(|&w| w == 0.0));
}

#[test]
fn subnormal_f16_weights_are_normal_numbers_of_the_kernels() {
    let mut hf = Hf::new("llama", Style::Float);
    let raw = hf.tensors.get_mut("lm_head.weight").expect("there");
    let count = raw.bytes.len() / 2;
    (raw.dtype, raw.bytes) = ("F16", element("F16", 1e-6).repeat(count));
    let c = hf.load().expect("finite");
    let Matrix::Float(head) = &c.weights.head.as_ref().expect("it has one").weight else {
        panic!("f16")
    };
    assert_eq!((c.flushed, head.dtype()), (0, FloatType::F16));
    assert_eq!(head.data()[..2], f16::from_f32(1e-6).to_le_bytes());
}
