//! `prism.hadamard.*`: rotations reach the matrices that a file names, and every malformed declaration is
//! refused with the key's name.

use crate::fixtures::hybrid::{DOWN, HEAD, OUT, Q, declare, key, rotated, signs};
use crate::fixtures::{
    FF, Gguf, HIDDEN, Rng, file, list, meta_bool, meta_f32, meta_ints, meta_text, meta_texts,
    meta_u32,
};
use std::sync::Arc;
use wrinklefree::format::{
    Activations, Checkpoint, Linear, Mixer, Rotation, codec, load, write_packed,
};

const TABLE: &str = "token_embd.weight";

/// A tied file of version 2.
fn tied() -> Gguf {
    let mut g = rotated();
    g.tensors.retain(|t| t.name != HEAD);
    g.set(&key("version"), meta_u32(2));
    g.set(&key("weight_names"), meta_texts(&[Q, OUT, DOWN]));
    g.set(&key("inverse_weight_names"), meta_texts(&[TABLE]));
    g.set(&key("tied_output"), meta_bool(true));
    g
}

fn want(width: usize) -> Option<Rotation> {
    let signs = signs(width).into_iter().map(|s| s as f32).collect();
    Some(Rotation { block: 8, signs: Some(signs) })
}

fn found(linear: &Linear) -> Option<Rotation> {
    linear.rotation.as_deref().cloned()
}

fn out(c: &Checkpoint, layer: usize) -> &Linear {
    c.weights.layers[layer].mixer.output()
}

fn q(c: &Checkpoint) -> &Linear {
    &c.weights.layers[3].mixer.attention().unwrap().q
}

fn packed(c: &Checkpoint) -> Checkpoint {
    let mut bytes = Vec::new();
    write_packed(c, None, &mut bytes).unwrap();
    load(vec![file("model.wf.safetensors", bytes)]).unwrap()
}

#[test]
fn named_matrices_are_rotated_and_others_are_not() {
    let c = rotated().load().unwrap();
    for c in [&c, &packed(&c)] {
        let layers = &c.weights.layers;
        assert_eq!(found(c.weights.head.as_ref().unwrap()), want(16));
        assert_eq!(
            (found(q(c)), found(out(c, 0)), found(&layers[1].down)),
            (want(16), want(24), want(32))
        );
        assert!(Arc::ptr_eq(
            q(c).rotation.as_ref().unwrap(),
            c.weights.head.as_ref().unwrap().rotation.as_ref().unwrap()
        ));
        assert_eq!(
            (found(out(c, 1)), found(&layers[0].down), found(&layers[0].gate)),
            (None, None, None)
        );
        assert_eq!(c.weights.embed_rotation, None);
        assert!(!c.spec.linear_attention.as_ref().unwrap().output_grouped);
    }
}

#[test]
fn the_table_is_rotated_with_and_without_a_head() {
    let mut untied = rotated();
    untied.set(&key("inverse_weight_names"), meta_texts(&[TABLE]));
    for (g, head) in [(untied, true), (tied(), false)] {
        let c = g.load().unwrap();
        for c in [&c, &packed(&c)] {
            assert_eq!(c.weights.embed_rotation.as_deref().cloned(), want(16));
            assert_eq!(c.weights.head.is_some(), head);
        }
    }
}

#[test]
fn identity_signs_and_grouped_outputs() {
    let mut g = rotated();
    g.set(&key("sign_mode"), meta_text("identity"));
    g.meta.retain(|(k, _)| !k.contains("sign_widths") && !k.contains("sign_values"));
    g.set(&key("gdn_v_grouped"), meta_bool(true));
    g.set(&key("tied_output"), meta_bool(false));
    let c = g.load().unwrap();
    for c in [&c, &packed(&c)] {
        assert_eq!(found(out(c, 0)), Some(Rotation { block: 8, signs: None }));
        assert!(c.spec.linear_attention.as_ref().unwrap().output_grouped);
    }
}

#[test]
fn a_fused_matrix_passes_its_rotation_on() {
    let mut g = rotated();
    let parts = ["attn_q", "attn_k", "attn_v"].map(|role| format!("blk.3.{role}.weight"));
    let bytes = parts.iter().flat_map(|name| g.tensor(name).bytes.clone()).collect();
    let whole = g.load().unwrap();
    g.tensors.retain(|t| !parts[1..].contains(&t.name));
    let t = g.tensor(Q);
    (t.name, t.shape, t.bytes) = ("blk.3.attn_qkv.weight".into(), vec![48, HIDDEN], bytes);
    g.set(&key("weight_names"), meta_texts(&[HEAD, "blk.3.attn_qkv.weight", OUT, DOWN]));
    let c = g.load().unwrap();
    let Mixer::Attention(split) = &c.weights.layers[3].mixer else { panic!("attention") };
    let Mixer::Attention(apart) = &whole.weights.layers[3].mixer else { panic!("attention") };
    assert_eq!(
        (&split.q, &split.k.weight, &split.v.weight),
        (&apart.q, &apart.k.weight, &apart.v.weight)
    );
    assert_eq!((found(&split.k), found(&split.v), found(&apart.v)), (want(16), want(16), None));
}

#[test]
fn other_architectures_apply_it_or_refuse_it() {
    let model = |arch| {
        let mut g = Gguf::model(arch, 64, 42, |rng: &mut Rng, rows, cols| {
            codec::Q2_0.encode(&rng.ternary(rows, cols, None)).unwrap()
        });
        declare(&mut g, &[64], &["blk.0.attn_q.weight", "blk.1.ffn_down.weight"]);
        g
    };
    for arch in ["llama", "qwen3"] {
        let c = model(arch).load().unwrap();
        let Mixer::Attention(w) = &c.weights.layers[0].mixer else { panic!("attention") };
        assert_eq!((found(&w.q), found(&w.k)), (want(64), None), "{arch}");
        // Blocks with equal scales do not make it a model with 8-bit activations.
        assert_eq!((w.q.activations, w.k.activations), (Activations::Int16, Activations::Int16));
        assert_eq!(found(&packed(&c).weights.layers[1].down), want(64));
    }
    refused(model("bitnet"), &["prism.hadamard."]);
    refused(model("qwen2"), &["prism.hadamard."]);
    let mut grouped = model("llama");
    grouped.set(&key("gdn_v_grouped"), meta_bool(true));
    refused(grouped, &["prism.hadamard.gdn_v_grouped"]);
}

#[test]
fn a_file_that_says_it_is_folded_needs_the_keys() {
    for (name, lost) in [("Bonsai-9B-folded", true), ("Bonsai 9B Unfolded", false), ("Hf", false)] {
        let mut g = Gguf::qwen35();
        g.set("general.name", meta_text(name));
        if lost {
            refused(g, &["prism.hadamard.version", "general.name"])
        } else {
            drop(g.load().unwrap())
        }
    }
}

#[test]
fn names_of_drafting_blocks_are_left_out() {
    let mut g = rotated();
    g.set("qwen35.block_count", meta_u32(5));
    g.set("qwen35.nextn_predict_layers", meta_u32(1));
    g.set(&key("weight_names"), meta_texts(&[HEAD, Q, OUT, DOWN, "blk.4.ffn_down.weight"]));
    g.qwen35_block(4, true, &mut Rng(3));
    // Its types need not be known.
    g.tensor("blk.4.attn_q.weight").kind = 29;
    g.float("blk.4.nextn.eh_proj.weight", &[HIDDEN, 2 * HIDDEN], &mut Rng(5));
    let c = g.load().unwrap();
    assert_eq!((c.spec.layers, c.weights.layers.len()), (4, 4));
    g.set("qwen35.nextn_predict_layers", meta_u32(5));
    refused(g, &["qwen35.nextn_predict_layers"]);
}

#[track_caller]
fn refused(g: Gguf, words: &[&str]) {
    let text = match g.load() {
        Err(error) => error.to_string(),
        Ok(_) => panic!("this must not load"),
    };
    for word in words {
        assert!(text.contains(word), "`{word}` is not in: {text}");
    }
}

/// Tests that a change of a valid file is refused with the name of a key.
macro_rules! refusals {
    ($($test:ident $start:ident $key:literal $change:expr;)+) => {
        $(#[test]
        fn $test() {
            let mut g = $start();
            g.load().expect("valid before the change");
            let change: fn(&mut Gguf) = $change;
            change(&mut g);
            refused(g, &[concat!("prism.hadamard.", $key)]);
        })+
    };
}

fn without(g: &mut Gguf, name: &str) {
    g.meta.retain(|(k, _)| *k != key(name));
}

refusals! {
    no_version rotated "version" |g| without(g, "version");
    version_0 rotated "version" |g| g.set(&key("version"), meta_u32(0));
    version_3 rotated "version" |g| g.set(&key("version"), meta_u32(3));
    a_version_in_text rotated "version" |g| g.set(&key("version"), meta_text("1"));
    an_unknown_key rotated "permutation" |g| g.set(&key("permutation"), meta_u32(1));

    no_transform rotated "transform" |g| without(g, "transform");
    an_unknown_transform rotated "transform" |g| g.set(&key("transform"), meta_text("hadamard"));
    no_axis rotated "axis" |g| without(g, "axis");
    an_unknown_axis rotated "axis" |g| g.set(&key("axis"), meta_text("output-first-dimension"));
    no_sign_mode rotated "sign_mode" |g| without(g, "sign_mode");
    an_unknown_sign_mode rotated "sign_mode" |g| g.set(&key("sign_mode"), meta_text("random"));

    no_block_size rotated "block_size" |g| without(g, "block_size");
    a_block_of_0 rotated "block_size" |g| g.set(&key("block_size"), meta_u32(0));
    a_block_of_12 rotated "block_size" |g| g.set(&key("block_size"), meta_u32(12));
    a_negative_block rotated "block_size" |g| g.set(&key("block_size"), (5, (-8i32).to_le_bytes().into()));
    a_block_that_divides_not_every_width rotated "block_size" |g| g.set(&key("block_size"), meta_u32(16));
    a_block_that_does_not_divide_the_table tied "block_size" |g| {
        g.set(&key("weight_names"), meta_texts(&[DOWN]));
        g.set(&key("block_size"), meta_u32(32));
    };

    no_sign_widths rotated "sign_widths" |g| without(g, "sign_widths");
    empty_sign_widths rotated "sign_widths" |g| g.set(&key("sign_widths"), meta_ints(&[]));
    a_width_twice rotated "sign_widths" |g| g.set(&key("sign_widths"), meta_ints(&[16, 16, 40]));
    a_width_of_0 rotated "sign_widths" |g| g.set(&key("sign_widths"), meta_ints(&[0, 16, 24, 32]));
    a_negative_width rotated "sign_widths" |g| g.set(&key("sign_widths"), meta_ints(&[-16, 24, 32]));
    a_used_width_without_signs rotated "sign_widths" |g| g.set(&key("sign_widths"), meta_ints(&[16, 56]));
    sign_widths_in_floats rotated "sign_widths" |g| {
        g.set(&key("sign_widths"), (9, list(6, 3, &[16f32, 24.0, 32.0].map(f32::to_le_bytes).concat())));
    };

    no_sign_values rotated "sign_values" |g| without(g, "sign_values");
    empty_sign_values rotated "sign_values" |g| g.set(&key("sign_values"), meta_ints(&[]));
    too_few_signs rotated "sign_values" |g| g.set(&key("sign_values"), meta_ints(&signs(71)));
    too_many_signs rotated "sign_values" |g| g.set(&key("sign_values"), meta_ints(&signs(73)));
    a_sign_of_0 rotated "sign_values" |g| {
        let mut values = signs(72);
        values[5] = 0;
        g.set(&key("sign_values"), meta_ints(&values));
    };
    a_sign_of_2 rotated "sign_values" |g| {
        let mut values = signs(72);
        values[71] = 2;
        g.set(&key("sign_values"), meta_ints(&values));
    };
    signs_in_bytes rotated "sign_values" |g| g.set(&key("sign_values"), (9, list(1, 72, &[1; 72])));
    signs_in_floats rotated "sign_values" |g| {
        g.set(&key("sign_values"), (9, list(6, 72, &[1f32.to_le_bytes(); 72].concat())));
    };
    identity_with_other_signs rotated "sign_values" |g| g.set(&key("sign_mode"), meta_text("identity"));

    no_weight_names rotated "weight_names" |g| without(g, "weight_names");
    empty_weight_names rotated "weight_names" |g| g.set(&key("weight_names"), meta_texts(&[]));
    a_name_twice rotated "weight_names" |g| g.set(&key("weight_names"), meta_texts(&[Q, OUT, Q]));
    a_name_without_a_tensor rotated "weight_names" |g| {
        g.set(&key("weight_names"), meta_texts(&[Q, "blk.0.attn_q.weight"]));
    };
    a_folded_norm rotated "weight_names" |g| {
        g.set(&key("weight_names"), meta_texts(&[Q, "blk.0.attn_norm.weight"]));
    };
    a_folded_gate_of_decays rotated "weight_names" |g| {
        g.set(&key("weight_names"), meta_texts(&[Q, "blk.0.ssm_alpha.weight"]));
    };
    a_folded_convolution rotated "weight_names" |g| {
        g.set(&key("weight_names"), meta_texts(&[Q, "blk.0.ssm_conv1d.weight"]));
    };
    a_folded_bias rotated "weight_names" |g| {
        g.set(&key("weight_names"), meta_texts(&[Q, "blk.3.attn_q.bias"]));
    };
    a_folded_drafting_matrix rotated "weight_names" |g| {
        g.float("blk.3.nextn.eh_proj.weight", &[HIDDEN, FF], &mut Rng(1));
        g.set(&key("weight_names"), meta_texts(&[Q, "blk.3.nextn.eh_proj.weight"]));
    };
    a_folded_table rotated "weight_names" |g| g.set(&key("weight_names"), meta_texts(&[Q, TABLE]));

    an_inverse_of_a_layer rotated "inverse_weight_names" |g| {
        g.set(&key("inverse_weight_names"), meta_texts(&[DOWN]));
    };
    an_inverse_of_the_head rotated "inverse_weight_names" |g| {
        g.set(&key("inverse_weight_names"), meta_texts(&[HEAD]));
    };
    the_table_twice tied "inverse_weight_names" |g| {
        g.set(&key("inverse_weight_names"), meta_texts(&[TABLE, TABLE]));
    };
    a_name_in_both_lists tied "" |g| g.set(&key("weight_names"), meta_texts(&[Q, TABLE]));
    version_1_with_a_rotated_table_as_head tied "inverse_weight_names" |g| {
        g.set(&key("version"), meta_u32(1));
        without(g, "tied_output");
    };

    version_1_tied rotated "tied_output" |g| g.set(&key("tied_output"), meta_bool(true));
    version_2_without_tied_output tied "tied_output" |g| without(g, "tied_output");
    version_2_with_a_head tied "tied_output" |g| {
        g.float(HEAD, &[crate::fixtures::VOCAB, HIDDEN], &mut Rng(2));
    };
    version_2_without_the_table tied "tied_output" |g| without(g, "inverse_weight_names");
    tied_output_as_a_number tied "tied_output" |g| g.set(&key("tied_output"), meta_f32(1.0));
    grouped_as_a_number rotated "gdn_v_grouped" |g| g.set(&key("gdn_v_grouped"), meta_u32(1));
}
