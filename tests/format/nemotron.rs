//! Directories of Nemotron-Labs-Diffusion: what is read, written and refused.

#[path = "../common/nemotron.rs"]
mod files;

use serde_json::{Value, json};
use wrinklefree::format::{
    Architecture, Checkpoint, File, GgufFile, GgufOptions, GgufTokenizer, HfDirectory, LoadError,
    RopeScaling, load, write_packed,
};
use wrinklefree::matrix::Matrix;

const ADAPTER: &str = "linear_spec_lora/adapter_model.safetensors";
const ADAPTER_CONFIG: &str = "linear_spec_lora/adapter_config.json";

/// The files with a field of a JSON file changed; `null` removes it.
fn with(adapter: bool, file: &str, field: &str, value: Value) -> Vec<File> {
    let mut files = files::files(adapter);
    let file = files.iter_mut().find(|f| f.name == file).unwrap();
    let mut json: Value = serde_json::from_slice(&file.bytes.whole()).unwrap();
    let (parent, name) = match field.split_once('.') {
        Some((parent, name)) => (&mut json[parent], name),
        None => (&mut json, field),
    };
    parent[name] = value;
    file.bytes = json.to_string().into_bytes().into();
    files
}

fn refused(files: Vec<File>, parts: &[&str]) -> LoadError {
    let error = load(files).expect_err("it is refused");
    let text = error.to_string();
    parts.iter().for_each(|part| assert!(text.contains(part), "`{part}` is not in: {text}"));
    error
}

/// The numbers of the matrices of the adapter and of the output projections.
fn projections(c: &Checkpoint) -> Vec<Vec<f32>> {
    let numbers = |matrix: &Matrix| {
        let mut values = vec![0.0; matrix.rows() * matrix.cols()];
        let rows = values.chunks_mut(matrix.cols()).enumerate();
        rows.for_each(|(row, out)| matrix.row_f32(row, out));
        values
    };
    let attention = c.weights.layers.iter().map(|layer| layer.mixer.attention().unwrap());
    let matrices = attention.flat_map(|w| {
        let adapter = w.draft_adapter.iter().flat_map(|a| [&a.down.weight, &a.up.weight]);
        adapter.chain([&w.o.weight])
    });
    matrices.map(numbers).collect()
}

#[test]
fn a_directory_states_shape_positions_and_blocks() {
    let c = files::checkpoint(true);
    assert_eq!(c.spec.architecture, Architecture::NemotronDiffusion);
    let Some(RopeScaling::Yarn(yarn)) = &c.spec.rope.scaling else { panic!("YaRN") };
    assert_eq!((yarn.factor, yarn.original_context, yarn.query_beta), (16.0, 32, 0.1));
    assert_eq!(yarn.attention_factor, 1.0, "`mscale` and `mscale_all_dim` are equal");
    assert_eq!(c.spec.context_length, 512);
    let dlm = c.dlm.as_ref().unwrap();
    assert_eq!((dlm.bd_size, dlm.mask_token_id, dlm.logit_shift), (8, Some(4), 0));
    assert!(dlm.ar_path && dlm.blocks_from_prompt && dlm.threshold_inclusive);
    assert_eq!(dlm.clean_attention, "causal");
    assert!(c.weights.head.is_some());
    // The second matrix has the scale alpha / r.
    let twice = load(with(true, ADAPTER_CONFIG, "lora_alpha", json!(32))).unwrap();
    let doubled: Vec<f32> = projections(&c)[1].iter().map(|x| 2.0 * x).collect();
    assert_eq!(projections(&twice)[1], doubled);
    assert!(c.notes.is_empty(), "{:?}", c.notes);
    let without = files::checkpoint(false);
    assert_eq!(projections(&without).len(), c.spec.layers);
}

#[test]
fn a_factor_of_yarn_below_1_is_kept() {
    let c = load(with(false, "config.json", "rope_parameters.factor", json!(0.25))).unwrap();
    let Some(RopeScaling::Yarn(yarn)) = &c.spec.rope.scaling else { panic!("YaRN") };
    assert_eq!((yarn.factor, yarn.attention_factor), (0.25, 1.0));
}

#[test]
fn a_model_that_was_trained_causally_alone_has_no_blocks() {
    let c = load(with(false, "config.json", "dlm_paradigm", json!("autoregressive"))).unwrap();
    assert!(c.dlm.is_none());
    assert!(c.notes.iter().any(|note| note.contains("autoregressive")), "{:?}", c.notes);
    let c = load(with(false, "config.json", "dlm_paradigm", Value::Null)).unwrap();
    assert!(c.dlm.is_some(), "the family's default is both directions");
}

#[test]
fn variants_are_refused_by_name() {
    let config = |field: &str, value: Value| with(false, "config.json", field, value);
    refused(
        config("dlm_paradigm", json!("sbd_block_diff")),
        &["config.json", "`dlm_paradigm` bidirectional or autoregressive", "`sbd_block_diff`"],
    );
    refused(
        config("architectures", json!(["DiffEncoderModel"])),
        &["config.json", "`DiffEncoderModel`", "research predecessor of Nemotron-Labs-Diffusion"],
    );
    for field in ["mask_token_id", "block_size"] {
        refused(config(field, Value::Null), &["config.json", field]);
    }
    refused(config("mask_token_id", json!(64)), &["a mask token id below 64"]);
    refused(config("block_size", json!(0)), &["a block size from 1"]);
    refused(
        config("rope_parameters.llama_4_scaling_beta", Value::Null),
        &["llama_4_scaling_beta of RoPE scaling yarn"],
    );
    refused(
        config("rope_parameters.rope_type", json!("default")),
        &["`llama_4_scaling_beta` next to RoPE scaling `yarn`"],
    );
    refused(config("rope_parameters.llama_4_scaling_beta", json!(-1.0)), &["config.json"]);
}

#[test]
fn an_adapter_is_used_or_refused() {
    let config = |field: &str, value: Value| with(true, ADAPTER_CONFIG, field, value);
    for (field, value) in
        [("use_dora", json!(true)), ("use_rslora", json!(true)), ("fan_in_fan_out", json!(true))]
    {
        refused(config(field, value), &[ADAPTER_CONFIG, field, "true"]);
    }
    refused(config("bias", json!("all")), &[ADAPTER_CONFIG, "`bias` none", "`all`"]);
    refused(config("r", json!(0)), &[ADAPTER_CONFIG, "r 0"]);
    refused(config("r", json!(5)), &[ADAPTER, "shape [5, 64]"]);
    let mut alone = files::files(true);
    alone.retain(|f| f.name != ADAPTER_CONFIG);
    refused(alone, &[ADAPTER, "adapter_config.json"]);
    let mut other = files::files(true);
    let weights = other.iter_mut().find(|f| f.name == ADAPTER).unwrap();
    let mut bytes = weights.bytes.whole().to_vec();
    let at = bytes.windows(8).position(|w| w == b"layers.2").unwrap();
    bytes[at + 7] = b'9';
    weights.bytes = bytes.into();
    refused(other, &[ADAPTER, "layers."]);
}

#[test]
fn packed_files_hold_the_adapter_and_directories_the_rest() {
    for adapter in [true, false] {
        let c = files::checkpoint(adapter);
        let mut bytes = Vec::new();
        write_packed(&c, None, &mut bytes).unwrap();
        let packed = load(vec![File { name: "m".into(), bytes: bytes.into() }]).unwrap();
        assert_eq!(projections(&packed), projections(&c));
        assert_eq!((&packed.spec, &packed.dlm), (&c.spec, &c.dlm));
        let gguf = GgufFile::new(&c, GgufTokenizer::default(), GgufOptions::default());
        let error = gguf.err().expect("refused").to_string();
        assert!(error.contains("Nemotron-Labs-Diffusion"), "{error}");
        let directory = HfDirectory::new(&c, None);
        if adapter {
            let error = directory.err().expect("refused").to_string();
            assert!(error.contains("linear_spec_lora"), "{error}");
            continue;
        }
        let directory = directory.unwrap();
        let mut weights = Vec::new();
        directory.write_weights(&mut weights).unwrap();
        let file = |name: &str, bytes: Vec<u8>| File { name: name.into(), bytes: bytes.into() };
        let mut files: Vec<File> =
            directory.files().iter().map(|(name, bytes)| file(name, bytes.clone())).collect();
        files.push(file(HfDirectory::WEIGHTS, weights));
        // Other programs read no `dlm_config.json`; `config.json` says the same.
        for keep in [true, false] {
            let mut files = files.clone();
            files.retain(|f| keep || f.name != "dlm_config.json");
            let found = load(files).unwrap();
            assert_eq!((&found.spec, &found.dlm), (&c.spec, &c.dlm));
            assert_eq!(projections(&found), projections(&c));
        }
    }
}

/// Damaged files are errors or models, but never panics.
#[test]
fn damaged_configurations_and_adapters_do_not_panic() {
    let mut random = 7u64;
    let mut below = |n: usize| {
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) as usize % n
    };
    let mut refused = 0;
    for round in 0..1500 {
        let mut files = files::files(true);
        let name = ["config.json", ADAPTER_CONFIG, ADAPTER][round % 3];
        let file = files.iter_mut().find(|f| f.name == name).unwrap();
        let mut bytes = file.bytes.whole().to_vec();
        let reach = bytes.len().min(900);
        for _ in 0..1 + below(3) {
            let at = below(reach);
            bytes[at] = match below(3) {
                0 => bytes[at] ^ 1 << below(8),
                1 => b"09-.e{}[]\","[below(11)],
                _ => below(256) as u8,
            };
        }
        file.bytes = bytes.into();
        refused += usize::from(load(files).is_err());
    }
    assert!(refused > 700, "only {refused} of 1500 were refused");
}
