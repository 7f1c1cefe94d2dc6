//! GGUF types and files, compared with the dequantization of Python's `gguf` package
//! (`tests/golden/gguf_types.py`).

use crate::fixtures::file;
use wrinklefree::format::codec::{self, RowOrder};
use wrinklefree::format::{
    Activations, Architecture, AttentionWeights, RopeScaling, Vocabulary, load,
};
use wrinklefree::matrix::{Matrix, Scales};

const ROWS: usize = 2;
const COLS: usize = 256;

fn read(name: &str) -> Vec<u8> {
    let path = format!("{}/tests/golden/gguf/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(&path).unwrap_or_else(|e| panic!("{path}: {e}"))
}

fn floats(name: &str) -> Vec<f32> {
    read(name).chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
}

fn values(m: &Matrix) -> Vec<f32> {
    let mut out = vec![0f32; m.rows() * m.cols()];
    for (r, row) in out.chunks_exact_mut(m.cols()).enumerate() {
        m.row_f32(r, row);
    }
    out
}

#[test]
fn every_block_type_decodes_to_the_reference_values() {
    let ternary = [codec::TQ1_0, codec::TQ2_0, codec::Q2_0, codec::PQ2_0, codec::PTQ1_0];
    for t in ternary {
        let m = t.decode(&read(&format!("{}.bin", t.name)), ROWS, COLS, RowOrder::Same).unwrap();
        assert_eq!(values(&Matrix::Ternary(m)), floats(&format!("{}.f32", t.name)), "{}", t.name);
    }
    let exact = [codec::Q8_0, codec::Q4_0, codec::Q6_K, codec::Q5_0, codec::Q3_K];
    let tables = [codec::IQ4_NL, codec::IQ4_XS, codec::MXFP4];
    for t in exact.iter().chain(&tables) {
        let m = t.decode(&read(&format!("{}.bin", t.name)), ROWS, COLS, RowOrder::Same).unwrap();
        assert_eq!(values(&m), floats(&format!("{}.f32", t.name)), "{}", t.name);
    }
    for t in [codec::Q4_1, codec::Q5_1, codec::Q2_K, codec::Q4_K, codec::Q5_K] {
        let m = t.decode(&read(&format!("{}.bin", t.name)), ROWS, COLS, RowOrder::Same).unwrap();
        let halves = floats(&format!("{}.f32", t.name)).into_iter();
        let halves: Vec<f32> = halves.map(|w| half::f16::from_f32(w).to_f32()).collect();
        assert_eq!(values(&Matrix::Float(m)), halves, "{}", t.name);
    }
    for t in [codec::IQ1_BN, codec::IQ2_BN] {
        let m = t.decode(&read(&format!("{}.bin", t.name)), ROWS, COLS, RowOrder::Same).unwrap();
        let one_scale = matches!(m.scales(), Scales::Tensor(_));
        assert_eq!(one_scale, t.name == "IQ2_BN", "rows of the other have different scales");
        assert_eq!(values(&Matrix::Ternary(m)), floats(&format!("{}.f32", t.name)), "{}", t.name);
    }
    let m = codec::decode_i2s(&read("I2_S.bin"), ROWS, COLS, RowOrder::Same).unwrap();
    assert_eq!(values(&Matrix::Ternary(m)), floats("I2_S.f32"));
}

#[test]
fn a_file_of_the_reference_writer_loads_with_its_rows_in_order() {
    let c = load(vec![file("tiny.gguf", read("tiny.gguf"))]).unwrap_or_else(|e| panic!("{e}"));
    let layer = &c.weights.layers[0];
    let attention = layer.mixer.attention().expect("attention");
    let head = c.weights.head.as_ref().expect("an untied head");
    let mut all = values(&c.weights.embed);
    all.extend(values(&head.weight));
    all.extend(&c.weights.final_norm);
    all.extend(&layer.mixer_norm);
    for m in [&attention.q, &attention.k, &attention.v, &attention.o] {
        all.extend(values(&m.weight));
    }
    all.extend(&layer.ffn_norm);
    for m in [&layer.gate, &layer.up, &layer.down] {
        all.extend(values(&m.weight));
    }
    assert_eq!(all, floats("tiny.f32"));

    let AttentionWeights { q, k, v, o, .. } = attention;
    let kinds = [q, k, v, o, &layer.gate].map(|l| l.weight.kind());
    assert_eq!(kinds, ["ternary", "ternary", "int6/g16", "f16", "int8/g32"]);
    // Blocks with equal scales do not make it a model with 8-bit activations.
    assert_eq!(q.activations, Activations::Int16);
    assert_eq!(v.activations, Activations::Int16);

    assert_eq!(c.spec.architecture, Architecture::Llama);
    assert_eq!((c.spec.heads, c.spec.kv_heads, c.spec.head_dim), (2, 1, 8));
    assert_eq!(c.spec.rope.theta, 500_000.0);
    let Some(RopeScaling::Divisors(divisors)) = c.spec.rope.scaling else { panic!("divisors") };
    assert_eq!((divisors[0], divisors[3]), (1.0, 8.0));

    let Some(Vocabulary::Gguf(vocab)) = &c.text.vocabulary else { panic!("a vocabulary") };
    assert_eq!((vocab.model.as_str(), vocab.pre.as_deref()), ("gpt2", Some("llama-bpe")));
    assert_eq!((vocab.tokens.len(), vocab.merges.len(), vocab.types[7]), (8, 2, 1));
    assert_eq!(c.text.special["bos_token"], "t1");
    assert_eq!(c.text.chat_template.as_deref(), Some("{{ messages }}"));
    assert_eq!((c.generation.bos, &c.generation.eos[..]), (Some(1), &[2, 3][..]));
}
