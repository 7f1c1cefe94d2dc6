//! Files of drafters: what each form states, and what is refused with which words.

use crate::fixtures::drafter::{BLOCK, Sizes, gguf, hf};
use crate::fixtures::{
    Gguf, GgufTensor, HIDDEN, Hf, Rng, VOCAB, f32_bytes, file, meta_bool, meta_bools, meta_f32,
    meta_ints, meta_u32,
};
use serde_json::{Value, json};
use wrinklefree::format::{
    DraftLayout, DrafterCheckpoint, DrafterScales, File, LoadError, load, load_drafter,
};
use wrinklefree::loader::WeightLoader;
use wrinklefree::model::Model;

const SIZES: Sizes = Sizes { vocab: 24, hidden: 32 };
const TAPS: [usize; 3] = [0, 2, 3];

fn read(files: Vec<File>) -> Result<DrafterCheckpoint, LoadError> {
    load_drafter(files, &mut WeightLoader::alone())
}

fn of(g: &Gguf) -> Result<DrafterCheckpoint, LoadError> {
    read(vec![file("drafter.gguf", g.bytes())])
}

#[test]
fn all_forms_of_a_drafter_are_read_alike() {
    let forms: [(&str, DrafterCheckpoint); 4] = [
        ("dflash", of(&gguf("dflash", SIZES, &TAPS, true)).unwrap()),
        ("dspark", of(&gguf("dspark", SIZES, &TAPS, true)).unwrap()),
        ("directory", read(hf("Qwen3DSparkModel", SIZES, &TAPS, true, false).files()).unwrap()),
        ("prefix", read(hf("Qwen3DSparkModel", SIZES, &TAPS, true, true).files()).unwrap()),
    ];
    for (form, c) in &forms {
        let (config, w) = (&c.config, &c.weights);
        assert_eq!(config.taps, TAPS, "{form}");
        assert_eq!((config.block, config.mask, config.causal), (BLOCK, 1, false), "{form}");
        assert_eq!(config.layout, DraftLayout::DSpark, "{form}");
        // Only the newer GGUF files have a key for it.
        assert_eq!(config.layout_stated, *form != "dflash", "{form}");
        assert_eq!(config.log_snr, Some((-6.0, 9.0)), "{form}");
        assert_eq!((c.spec.vocab_size, c.spec.layers, c.spec.kv_heads), (24, 2, 2), "{form}");
        assert!(w.embed.is_none() && w.head.is_none(), "{form}");
        let markov = w.markov.as_ref().unwrap();
        assert_eq!((markov.previous.rows(), markov.next.weight.cols()), (24, 6), "{form}");
        let confidence = w.confidence.as_ref().unwrap();
        assert!(confidence.bias.is_some() && confidence.weight.cols() == 38, "{form}");
        assert!(w.log_snr.as_ref().unwrap().iter().all(|linear| linear.bias.is_some()), "{form}");
        assert!(w.bytes() > 0);
    }
    let of_dflash = [
        of(&gguf("dflash", SIZES, &TAPS, false)).unwrap(),
        read(hf("DFlashDraftModel", SIZES, &TAPS, false, false).files()).unwrap(),
    ];
    for c in of_dflash {
        assert_eq!((c.config.layout, c.config.layout_stated), (DraftLayout::DFlash, false));
        assert!(c.config.describe().contains("layout dflash (not stated"), "{:?}", c.config);
        assert!(c.weights.markov.is_none() && c.config.log_snr.is_none());
        let other = c.with_layout(DraftLayout::DSpark).unwrap();
        assert_eq!((other.config.layout, other.config.layout_stated), (DraftLayout::DSpark, true));
    }
    let mut stated = gguf("dflash", SIZES, &TAPS, false);
    stated.set("dflash.sample_from_anchor", meta_bool(true));
    stated.set("dflash.attention.causal", meta_bool(true));
    let c = of(&stated).unwrap().config;
    assert_eq!((c.layout, c.layout_stated, c.causal), (DraftLayout::DSpark, true, true));
}

#[test]
fn a_drafter_may_have_tables_and_quantized_weights_of_its_own() {
    let mut g = gguf("dflash", SIZES, &TAPS, false);
    let mut rng = Rng(3);
    g.float("token_embd.weight", &[SIZES.vocab, SIZES.hidden], &mut rng);
    g.float("output.weight", &[SIZES.vocab, SIZES.hidden], &mut rng);
    // Q8_0: blocks of 32, a scale of 1 and values.
    let t = g.tensor("blk.0.attn_q.weight");
    let values: Vec<u8> = (0..32u8).flat_map(|_| (0..32u8).map(|i| i.wrapping_sub(9))).collect();
    let blocks = values.chunks(32).flat_map(|block| [&[0x00, 0x3c][..], block].concat());
    *t = GgufTensor { kind: 8, bytes: blocks.collect(), ..t.clone() };
    let c = of(&g).unwrap();
    assert_eq!(c.spec.vocab_size, 24);
    assert!(c.weights.embed.is_some() && c.weights.head.is_some());
    let mut row = vec![0.0; 32];
    c.weights.layers[0].mixer.attention().unwrap().q.weight.row_f32(5, &mut row);
    let want: Vec<f32> = (0..32).map(|i| i as f32 - 9.0).collect();
    assert_eq!(row, want);
}

fn says(result: Result<DrafterCheckpoint, LoadError>, words: &[&str]) {
    let error = result.map(|_| ()).unwrap_err().to_string();
    assert!(words.iter().all(|word| error.contains(word)), "{error}, not {words:?}");
}

#[test]
fn what_would_draft_noise_is_refused_by_name() {
    let plain = |change: &dyn Fn(&mut Gguf)| {
        let mut g = gguf("dflash", SIZES, &TAPS, false);
        change(&mut g);
        of(&g)
    };
    let whole = |change: &dyn Fn(&mut Gguf)| {
        let mut g = gguf("dflash", SIZES, &TAPS, true);
        change(&mut g);
        of(&g)
    };
    let without = |g: &mut Gguf, name: &str| g.tensors.retain(|t| !t.name.starts_with(name));
    says(
        plain(&|g| g.set("dflash.conv_kernel_size", meta_u32(4))),
        &["conv_kernel_size", "DFlash2"],
    );
    says(plain(&|g| g.set("dflash.selector_rank", meta_u32(4))), &["selector_rank"]);
    says(plain(&|g| g.set("dflash.has_confidence_head", meta_bool(true))), &["Markov head"]);
    says(plain(&|g| g.set("dflash.log_snr_conditioning", meta_bool(true))), &["min_log_snr"]);
    says(
        plain(&|g| g.set("dflash.target_layers", meta_ints(&[0, 3, 4]))),
        &["target_layers", "from 1"],
    );
    says(plain(&|g| g.set("dflash.target_layers", meta_ints(&[3, 1, 4]))), &["ascending"]);
    says(plain(&|g| g.set("dflash.block_size", meta_u32(1))), &["a block of 2 to", "found 1"]);
    says(plain(&|g| g.float("blk.0.conv.weight", &[3], &mut Rng(1))), &["blk.0.conv.weight"]);
    says(plain(&|g| without(g, "fc.")), &["fc.weight"]);
    says(plain(&|g| without(g, "enc.")), &["enc.output_norm.weight"]);
    says(whole(&|g| without(g, "conf_proj")), &["confidence head"]);
    says(whole(&|g| without(g, "log_snr_fc1.w")), &["log_snr_fc1.weight"]);
    says(whole(&|g| g.set("dflash.max_log_snr", meta_f32(-6.0))), &["`min_log_snr` below"]);
    says(whole(&|g| g.set("dflash.max_log_snr", meta_f32(f32::NAN))), &["finite"]);
    says(whole(&|g| g.set("dflash.log_snr_conditioning", meta_bool(false))), &["log_snr_fc1"]);
    says(whole(&|g| without(g, "markov_w")), &["Markov head"]);
    says(of(&Gguf::qwen35()), &["dflash or dspark", "`qwen35`"]);

    let with = |key: &str, value: Value| {
        read(hf("Qwen3DSparkModel", SIZES, &TAPS, true, false).set(key, value).files())
    };
    says(with("markov_head_type", json!("rnn")), &["`markov_head_type` vanilla", "`rnn`"]);
    says(with("hyper_connection", json!({"n": 4})), &["hyper_connection"]);
    says(with("draft_vocab_size", json!(12)), &["`draft_vocab_size` 24", "12"]);
    let sliding = json!(["sliding_attention", "full_attention"]);
    says(with("layer_types", sliding), &["`sliding_window`"]);
    says(with("layer_types", json!(["chunked_attention", "full_attention"])), &["chunked"]);
    says(with("final_logit_softcapping", json!(-3.0)), &["bound of logits above 0"]);
    let windows = |window: u32, pattern: &[bool]| {
        plain(&|g| {
            g.set("dflash.attention.sliding_window", meta_u32(window));
            g.set("dflash.attention.sliding_window_pattern", meta_bools(pattern));
        })
    };
    says(windows(9, &[true]), &["sliding_window_pattern", "each of 2 layers", "found 1"]);
    says(with("architectures", json!(["LlamaForCausalLM"])), &["DFlashDraftModel", "Llama"]);
    says(with("architectures", json!(["DFlash2DraftModel"])), &["DFlash2"]);
    says(with("model_type", json!("gemma4")), &["gemma4", "qwen3"]);
    says(with("min_log_snr", Value::Null), &["min_log_snr"]);
    let other = hf("DFlashDraftModel", SIZES, &TAPS, false, false);
    says(read(other.clone().set("dflash_config", json!({})).files()), &["mask_token_id"]);
    says(
        read(other.clone().with("mask_embedding.pt", "x").files()),
        &["mask_embedding.pt", "pickle", "the tensor `mask_embedding`"],
    );
    says(read(Hf::qwen35(false).files()), &["DFlashDraftModel"]);

    // As a model, a drafter is refused with what to do.
    for files in [vec![file("d.gguf", gguf("dflash", SIZES, &TAPS, false).bytes())], other.files()]
    {
        let error = load(files).unwrap_err().to_string();
        assert!(error.contains("a drafter") && error.contains("draft_model"), "{error}");
    }
}

/// No prefix of a file makes the reader panic.
#[test]
fn a_cut_file_is_an_error() {
    let bytes = gguf("dflash", SIZES, &TAPS, true).bytes();
    for at in (0..bytes.len()).step_by(97) {
        assert!(read(vec![file("drafter.gguf", &bytes[..at])]).is_err(), "{at}");
    }
}

/// Whatever a header says, the answer is an error or a drafter that fits its model or does not.
#[test]
fn damaged_headers_are_errors() {
    let sizes = Sizes { vocab: VOCAB, hidden: HIDDEN };
    let whole = gguf("dflash", sizes, &TAPS, true);
    let (head, data) = whole.parts();
    let mut rng = Rng(77);
    let mut read_ones = 0;
    for _ in 0..3000 {
        let mut bytes = head.clone();
        for _ in 0..=rng.below(2) {
            let at = rng.below(bytes.len());
            bytes[at] = rng.next() as u8;
        }
        bytes.extend_from_slice(&data);
        if let Ok(drafter) = read(vec![file("drafter.gguf", bytes)]) {
            let model = Gguf::qwen35().load().unwrap();
            let model = Model::new(model.spec, model.weights).unwrap();
            read_ones += usize::from(model.with_drafter(drafter).is_ok());
        }
    }
    assert!(read_ones > 10, "{read_ones}");
}

#[test]
fn windows_scales_and_a_mask_row_are_read_from_all_forms() {
    let mut g = gguf("dflash", SIZES, &TAPS, false);
    g.set("dflash.attention.sliding_window", meta_u32(9));
    assert_eq!(of(&g).unwrap().config.windows, [Some(9), Some(9)], "without a pattern all have it");
    g.set("dflash.attention.sliding_window_pattern", meta_bools(&[true, false]));
    for (key, value) in
        [("final_logit_softcapping", 30.0), ("logit_scale", 0.5), ("embedding_scale", 2.0)]
    {
        g.set(&format!("dflash.{key}"), meta_f32(value));
    }
    let mut hf = hf("DFlashDraftModel", SIZES, &TAPS, false, false)
        .set("sliding_window", json!(9))
        .set("layer_types", json!(["sliding_attention", "full_attention"]))
        .set("final_logit_softcapping", json!(30.0))
        .set("logit_scale", json!(0.5))
        .set("embedding_scale", json!(2.0));
    let row: Vec<f32> = (0..32).map(|i| i as f32).collect();
    hf.put("mask_embedding", "F32", &[1, 32], f32_bytes(&row));
    let (gguf, hf) = (of(&g).unwrap(), read(hf.files()).unwrap());
    for config in [&gguf.config, &hf.config] {
        assert_eq!(config.windows, [Some(9), None]);
        let DrafterScales { embedding, logit, logit_cap } = config.scales;
        assert_eq!((embedding, logit, logit_cap), (2.0, 0.5, Some(30.0)));
    }
    assert_eq!((hf.weights.mask_row, gguf.weights.mask_row), (Some(row), None));
}

#[test]
fn reduced_vocabularies_are_ids_in_gguf_and_differences_in_directories() {
    let integers = |ids: [i64; 3]| ids.into_iter().flat_map(i64::to_le_bytes).collect::<Vec<u8>>();
    let mut rng = Rng(3);
    let mut g = gguf("dflash", SIZES, &TAPS, false);
    g.float("token_embd.weight", &[SIZES.vocab, SIZES.hidden], &mut rng);
    g.float("output.weight", &[3, SIZES.hidden], &mut rng);
    let d2t =
        |ids| GgufTensor { name: "d2t".into(), kind: 27, shape: vec![3], bytes: integers(ids) };
    g.tensors.push(d2t([4, 9, 23]));
    let directory = |size: usize, ids| {
        let mut hf =
            hf("DFlashDraftModel", SIZES, &TAPS, false, false).set("draft_vocab_size", json!(size));
        hf.put("lm_head.weight", "F32", &[3, 32], f32_bytes(&Rng(4).floats(96)));
        hf.put("d2t", "I64", &[3], integers(ids));
        hf.put("t2d", "BOOL", &[24], vec![0; 24]);
        read(hf.files())
    };
    for drafter in [of(&g).unwrap(), directory(3, [4, 8, 21]).unwrap()] {
        assert_eq!(drafter.weights.target_ids, Some(vec![4, 9, 23]));
        assert_eq!(drafter.weights.head.unwrap().weight.rows(), 3);
        assert_eq!(drafter.spec.vocab_size, 24);
    }
    says(directory(4, [4, 8, 21]), &["`draft_vocab_size` 3", "4"]);
    says(directory(3, [-1, 8, 21]), &["d2t", "below 0"]);
    *g.tensor("d2t") = d2t([4, -1, 23]);
    says(of(&g), &["d2t", "below 0"]);
    *g.tensor("d2t") = GgufTensor { kind: 0, bytes: vec![0; 12], ..d2t([0; 3]) };
    says(of(&g), &["d2t", "a vector of I64", "F32"]);
    g.tensors.retain(|t| t.name != "output.weight");
    *g.tensor("d2t") = d2t([4, 9, 23]);
    says(of(&g), &["output.weight"]);
}

/// A configuration in the format of `speculators`.
fn speculators(change: impl Fn(&mut Value)) -> Result<DrafterCheckpoint, LoadError> {
    let mut hf = hf("DFlashDraftModel", SIZES, &TAPS, false, false);
    let mut layers = hf.config.clone();
    let fields = layers.as_object_mut().unwrap();
    for key in ["architectures", "block_size", "dflash_config"] {
        fields.remove(key);
    }
    fields.insert("model_type".into(), json!("llama"));
    let before: Vec<usize> = TAPS.iter().map(|tap| tap + 1).collect();
    hf.config = json!({
        "architectures": ["DFlashDraftModel"], "speculators_model_type": "dflash",
        "speculators_config": {
            "algorithm": "dflash", "proposal_methods": [{"speculative_tokens": BLOCK - 1}],
        },
        "aux_hidden_state_layer_ids": before, "block_size": BLOCK, "mask_token_id": 1,
        "draft_vocab_size": SIZES.vocab, "transformer_layer_config": layers,
    });
    change(&mut hf.config);
    read(hf.files())
}

#[test]
fn the_format_of_speculators_is_read_or_refused_by_name() {
    let config = speculators(|_| ()).unwrap().config;
    assert_eq!((config.taps, config.block, config.mask), (TAPS.to_vec(), BLOCK, 1));
    assert_eq!((config.layout, config.layout_stated), (DraftLayout::DFlash, true));
    assert!(!config.causal && config.windows.is_empty());
    let sliding = |types: Value, non_causal: bool| {
        speculators(|c| {
            c["transformer_layer_config"]["sliding_window"] = json!(16);
            c["transformer_layer_config"]["layer_types"] = types.clone();
            c["sliding_window_non_causal"] = json!(non_causal);
        })
    };
    let (all, one) = (
        json!(["sliding_attention", "sliding_attention"]),
        json!(["full_attention", "sliding_attention"]),
    );
    let config = sliding(all.clone(), false).unwrap().config;
    assert_eq!((config.causal, config.windows), (true, vec![Some(16); 2]));
    assert!(!sliding(all, true).unwrap().config.causal);
    assert!(!sliding(one.clone(), true).unwrap().config.causal);
    says(sliding(one, false), &["sliding_window_non_causal", "causal layers next to others"]);
    says(
        speculators(|c| c["speculators_model_type"] = json!("eagle3")),
        &["`speculators_model_type` dflash", "eagle3", "not supported"],
    );
    says(
        speculators(|c| c["transformer_layer_config"]["hc_mult"] = json!(4)),
        &["hc_mult", "hyper-connections"],
    );
    says(
        speculators(|c| c["aux_hidden_state_layer_ids"] = json!([0, 2])),
        &["aux_hidden_state_layer_ids", "[0,2]"],
    );
    says(
        speculators(|c| {
            c["speculators_config"]["proposal_methods"][0]["speculative_tokens"] = json!(9)
        }),
        &["speculative_tokens", "9"],
    );
    says(
        speculators(|c| {
            c.as_object_mut().unwrap().remove("transformer_layer_config");
        }),
        &["transformer_layer_config"],
    );
}
