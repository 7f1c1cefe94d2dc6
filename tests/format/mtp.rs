//! Blocks for multi-token prediction in directories, GGUF and packed files: loaded where asked for, left
//! out otherwise, and refused by name where they cannot be used.

use crate::fixtures::{
    Gguf, HEAD_DIM, HEADS, HIDDEN, Hf, KV, Rng, f32_bytes, file, hybrid, meta_u32,
};
use serde_json::json;
use wrinklefree::format::{
    Checkpoint, File, LoadOptions, MtpWeights, load, load_with, write_packed,
};
use wrinklefree::loader::WeightLoader;
use wrinklefree::matrix::Matrix;
use wrinklefree::model::Model;

fn with_mtp(files: Vec<File>) -> Checkpoint {
    load_with(files, LoadOptions { mtp: true }, &mut WeightLoader::alone()).unwrap()
}

fn gguf(g: &Gguf) -> Vec<File> {
    vec![file("model.gguf", g.bytes())]
}

/// The numbers of a matrix.
fn numbers(matrix: &Matrix) -> Vec<f32> {
    let mut rows = vec![0.0; matrix.rows() * matrix.cols()];
    rows.chunks_exact_mut(matrix.cols()).enumerate().for_each(|(r, row)| matrix.row_f32(r, row));
    rows
}

fn debug(of: &impl std::fmt::Debug) -> String {
    format!("{of:?}")
}

/// Writes the model as a packed file, which holds the same block and loads without it too.
fn packed(c: &Checkpoint) {
    let mut bytes = Vec::new();
    write_packed(c, None, &mut bytes).unwrap();
    let files = || vec![file("model.wf.safetensors", bytes.clone())];
    let again = with_mtp(files());
    assert_eq!((&again.spec, again.mtp_fault), (&c.spec, None));
    assert!(debug(&again.weights) == debug(&c.weights));
    let without = load(files()).unwrap();
    assert_eq!((without.spec.mtp_layers, without.weights.mtp.is_none()), (0, true));
    assert!(debug(&without.weights.layers) == debug(&c.weights.layers));
    let text = String::from_utf8_lossy(&bytes).into_owned();
    assert!(text.contains(r#""version":"6""#), "older programs refuse the file by its version");
}

/// The block of a file that has one.
fn block(c: &Checkpoint) -> &MtpWeights {
    assert_eq!((c.spec.mtp_layers, &c.mtp_fault), (1, &None));
    Model::new(c.spec.clone(), c.weights.clone()).unwrap();
    c.weights.mtp.as_deref().unwrap()
}

#[test]
fn gguf_files() {
    for own in [false, true] {
        let mut g = Gguf::qwen35().with_mtp(own);
        let c = with_mtp(gguf(&g));
        packed(&c);
        let w = block(&c);
        let mut stored = |name: &str| -> Vec<f32> {
            let of = |b: &[u8]| f32::from_le_bytes(b.try_into().unwrap());
            g.tensor(&format!("blk.4.{name}.weight")).bytes.chunks(4).map(of).collect()
        };
        assert_eq!(w.embed_norm, stored("nextn.enorm"));
        assert_eq!(w.hidden_norm, stored("nextn.hnorm"));
        assert_eq!(numbers(&w.input.weight), stored("nextn.eh_proj"));
        assert_eq!(w.layer.mixer_norm, stored("attn_norm"));
        assert_eq!(w.layer.ffn_norm, stored("post_attention_norm"));
        let attention = w.layer.mixer.attention().unwrap();
        assert_eq!(numbers(&attention.q.weight), stored("attn_q"));
        assert_eq!(attention.k_norm, Some(stored("attn_k_norm")));
        assert_eq!(numbers(&w.layer.down.weight), stored("ffn_down"));
        let own_parts = (w.head_norm.is_some(), w.embed.is_some(), w.head.is_some());
        assert_eq!(own_parts, (own, own, own));
        if own {
            assert_eq!(w.head_norm, Some(stored("nextn.shared_head_norm")));
            assert_eq!(numbers(w.embed.as_ref().unwrap()), stored("nextn.embed_tokens"));
            assert_eq!(numbers(&w.head.as_ref().unwrap().weight), stored("nextn.shared_head_head"));
        }
        let without = load(gguf(&g)).unwrap();
        assert_eq!((without.spec.mtp_layers, without.weights.mtp.is_none()), (0, true));
        assert!(debug(&without.weights) == debug(&Gguf::qwen35().load().unwrap().weights));
    }
}

#[test]
fn a_fused_block_and_a_rotated_model() {
    let mut g = hybrid::rotated().with_mtp(false);
    let parts = ["attn_q", "attn_k", "attn_v"].map(|name| format!("blk.4.{name}.weight"));
    let bytes = parts.each_ref().map(|name| g.tensor(name).bytes.clone()).concat();
    let rows = 2 * HEADS * HEAD_DIM + 2 * KV * HEAD_DIM;
    g.tensors.retain(|t| !parts.contains(&t.name));
    g.float("blk.4.attn_qkv.weight", &[rows, HIDDEN], &mut Rng(1));
    g.tensor("blk.4.attn_qkv.weight").bytes = bytes.clone();
    let c = with_mtp(gguf(&g));
    packed(&c);
    let attention = block(&c).layer.mixer.attention().unwrap();
    let found = [&attention.q, &attention.k, &attention.v].map(|l| numbers(&l.weight)).concat();
    assert!(f32_bytes(&found) == bytes);
    assert!(attention.q.rotation.is_none() && block(&c).input.rotation.is_none());
}

#[test]
fn directories() {
    for wrapped in [false, true] {
        let hf = Hf::qwen35(wrapped).with_mtp();
        let c = with_mtp(hf.files());
        packed(&c);
        let w = block(&c);
        let stored = |name: &str| -> Vec<f32> {
            let of = |b: &[u8]| half::bf16::from_le_bytes([b[0], b[1]]).to_f32();
            hf.tensors[&format!("mtp.{name}.weight")].bytes.chunks(2).map(of).collect()
        };
        let plus_one = |name: &str| stored(name).iter().map(|w| 1.0 + w).collect::<Vec<f32>>();
        assert_eq!(w.embed_norm, plus_one("pre_fc_norm_embedding"));
        assert_eq!(w.hidden_norm, plus_one("pre_fc_norm_hidden"));
        assert_eq!(w.head_norm, Some(plus_one("norm")));
        assert_eq!(w.layer.ffn_norm, plus_one("layers.0.post_attention_layernorm"));
        assert_eq!(numbers(&w.input.weight), stored("fc"));
        let attention = w.layer.mixer.attention().unwrap();
        assert_eq!(attention.q_norm, Some(plus_one("layers.0.self_attn.q_norm")));
        assert_eq!(numbers(&attention.o.weight), stored("layers.0.self_attn.o_proj"));
        assert!(load(hf.files()).unwrap().weights.mtp.is_none());
    }
}

/// The model loads without a block that cannot be used, and says why.
#[track_caller]
fn left_out(files: Vec<File>, words: &[&str]) {
    let c = with_mtp(files);
    assert_eq!((c.spec.mtp_layers, c.weights.mtp.is_none()), (0, true));
    let fault = c.mtp_fault.expect("a reason").to_string();
    for word in words {
        assert!(fault.contains(word), "`{word}` is not in: {fault}");
    }
}

#[test]
fn blocks_that_cannot_be_used_are_left_out_by_name() {
    let plain = || Gguf::qwen35().with_mtp(false);
    let change = |change: &dyn Fn(&mut Gguf)| {
        let mut g = plain();
        change(&mut g);
        gguf(&g)
    };
    let name = "blk.4.nextn.eh_proj.weight";
    left_out(change(&|g| g.tensors.retain(|t| t.name != name)), &[name, "expected it"]);
    left_out(change(&|g| g.tensor(name).kind = 11), &[name, "Q3_K"]);
    left_out(change(&|g| g.tensor(name).shape = vec![2 * HIDDEN, HIDDEN]), &[name, "shape"]);
    left_out(change(&|g| g.tensor(name).bytes[..4].copy_from_slice(&[0xff; 4])), &[name, "finite"]);
    let other = "blk.4.nextn.other.weight";
    left_out(change(&|g| g.float(other, &[1], &mut Rng(1))), &[other]);
    let two = change(&|g| {
        g.set("qwen35.block_count", meta_u32(6));
        g.set("qwen35.nextn_predict_layers", meta_u32(2));
    });
    left_out(two, &["one block for multi-token prediction, found 2"]);
    let mut rotated = hybrid::rotated().with_mtp(false);
    let names = [hybrid::HEAD, hybrid::Q, hybrid::OUT, hybrid::DOWN, "blk.4.ffn_up.weight"];
    hybrid::declare(&mut rotated, &[16, 24, 32], &names);
    left_out(gguf(&rotated), &["blk.4.ffn_up.weight", "prism.hadamard.weight_names"]);

    let mut hf = Hf::qwen35(false);
    hf.put("mtp.fc.weight", "BF16", &[1], vec![0, 0]);
    left_out(hf.files(), &["mtp."]);
    let two = Hf { config: hf.config.clone(), ..hf.clone() }.set("mtp_num_hidden_layers", json!(2));
    left_out(two.files(), &["config.json", "`mtp_num_hidden_layers` 1, found 2"]);
    // Without a block nothing is left out.
    let c = with_mtp(gguf(&Gguf::qwen35()));
    assert_eq!((c.mtp_fault, c.spec.mtp_layers), (None, 0));
}
