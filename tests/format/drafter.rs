//! Files of drafters: what each form states, and what is refused with which words.

use crate::fixtures::drafter::{BLOCK, Sizes, gguf, hf};
use crate::fixtures::{
    Gguf, GgufTensor, HIDDEN, Hf, Rng, VOCAB, file, meta_bool, meta_f32, meta_ints, meta_u32,
};
use serde_json::{Value, json};
use wrinklefree::format::{DraftLayout, DrafterCheckpoint, File, LoadError, load, load_drafter};
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
    says(
        plain(&|g| g.set("dflash.attention.sliding_window", meta_u32(64))),
        &["sliding_window", "64"],
    );
    says(
        plain(&|g| g.set("dflash.final_logit_softcapping", meta_f32(30.0))),
        &["softcapping", "30"],
    );
    says(plain(&|g| g.set("dflash.logit_scale", meta_f32(0.5))), &["logit_scale", "0.5"]);
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
    says(with("draft_vocab_size", json!(12)), &["draft_vocab_size", "12"]);
    says(with("architectures", json!(["LlamaForCausalLM"])), &["DFlashDraftModel", "Llama"]);
    says(with("architectures", json!(["DFlash2DraftModel"])), &["DFlash2"]);
    says(with("model_type", json!("gemma4")), &["gemma4", "qwen3"]);
    says(with("min_log_snr", Value::Null), &["min_log_snr"]);
    says(
        with("layer_types", json!(["sliding_attention", "full_attention"])),
        &["sliding_attention"],
    );
    let other = hf("DFlashDraftModel", SIZES, &TAPS, false, false);
    says(read(other.clone().set("dflash_config", json!({})).files()), &["mask_token_id"]);
    says(read(other.clone().with("mask_embedding.pt", "x").files()), &["mask_embedding.pt"]);
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
