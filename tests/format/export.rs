//! Models written in the formats of other programs come back bit-equal where these can hold them.

use crate::fixtures::{Gguf, Rng, file, meta_f32};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use wrinklefree::format::{
    Activations, Architecture, Checkpoint, File, GgmlType, GgufFile, GgufOptions, GgufTokenizer,
    HeadType, HfDirectory, Linear, Llama3Scaling, LoadOptions, Mixer, RopeScaling, Rotation,
    ValueOrder, codec, load, load_with, write_packed,
};
use wrinklefree::loader::WeightLoader;
use wrinklefree::matrix::{GroupScales, Matrix, Scales, TernaryMatrix};

const TERNARY: [GgmlType; 8] = [
    GgmlType::Tq1_0,
    GgmlType::Tq2_0,
    GgmlType::Q2_0,
    GgmlType::Pq2_0,
    GgmlType::Ptq1_0,
    GgmlType::I2S,
    GgmlType::Q1_0,
    GgmlType::Stq1_0,
];

/// Loads a model with its drafting block.
fn whole(files: Vec<File>) -> Checkpoint {
    load_with(files, LoadOptions { mtp: true }, &mut WeightLoader::alone()).expect("it loads")
}

/// Golden models: directories and GGUF files, each loaded.
fn golden() -> Vec<(String, Checkpoint)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/models");
    let mut models = Vec::new();
    for entry in fs::read_dir(root).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let read = |path: &Path| File {
            name: path.file_name().unwrap().to_string_lossy().into_owned(),
            bytes: fs::read(path).unwrap().into(),
        };
        let all: Vec<_> = fs::read_dir(&path).unwrap().map(|e| e.unwrap().path()).collect();
        let has = |end: &'static str| move |path: &&PathBuf| path.to_string_lossy().ends_with(end);
        for gguf in all.iter().filter(has(".gguf")) {
            let label = format!("{name}/{}", gguf.file_name().unwrap().to_string_lossy());
            models.push((label, whole(vec![read(gguf)])));
        }
        if all.iter().any(|path| path.ends_with("config.json")) {
            let parts = all.iter().filter(|p| has(".json")(p) || has(".safetensors")(p));
            models.push((name, whole(parts.map(|p| read(p)).collect())));
        }
    }
    models.sort_by(|a, b| a.0.cmp(&b.0));
    assert!(models.len() > 20, "{} models", models.len());
    models
}

fn gguf_bytes(model: &Checkpoint, options: GgufOptions) -> Result<Vec<u8>, String> {
    let file =
        GgufFile::new(model, GgufTokenizer::default(), options).map_err(|e| e.to_string())?;
    let mut bytes = Vec::new();
    file.write(&mut bytes).map_err(|e| e.to_string())?;
    assert_eq!(bytes.len() as u64, file.bytes());
    Ok(bytes)
}

fn through_gguf(model: &Checkpoint, options: GgufOptions) -> Result<Checkpoint, String> {
    let bytes = gguf_bytes(model, options)?;
    Ok(whole(vec![file("model.gguf", bytes)]))
}

fn through_hf(model: &Checkpoint) -> Result<Checkpoint, String> {
    let directory = HfDirectory::new(model, None).map_err(|e| e.to_string())?;
    let mut weights = Vec::new();
    directory.write_weights(&mut weights).map_err(|e| e.to_string())?;
    assert_eq!(weights.len() as u64, directory.weights_bytes());
    let mut files: Vec<File> =
        directory.files().iter().map(|(name, bytes)| file(name, bytes.clone())).collect();
    files.push(file(HfDirectory::WEIGHTS, weights));
    Ok(whole(files))
}

fn through_packed(model: &Checkpoint) -> Checkpoint {
    let mut bytes = Vec::new();
    write_packed(model, None, &mut bytes).expect("a vector takes all");
    whole(vec![file("model.wf.safetensors", bytes)])
}

/// The numbers of all matrices with their places, then of all vectors.
fn numbers(model: &Checkpoint) -> Vec<(String, Vec<f32>)> {
    let mut all = Vec::new();
    let mut put = |name: String, matrix: &Matrix| {
        let mut values = vec![0.0; matrix.rows() * matrix.cols()];
        for (row, out) in values.chunks_mut(matrix.cols()).enumerate() {
            matrix.row_f32(row, out);
        }
        all.push((name, values));
    };
    let w = &model.weights;
    put("embed".into(), &w.embed);
    w.head.iter().for_each(|head| put("head".into(), &head.weight));
    let layers = || w.layers.iter().chain(w.mtp.as_ref().map(|mtp| &mtp.layer)).enumerate();
    if let Some(mtp) = &w.mtp {
        put("drafting input".into(), &mtp.input.weight);
        mtp.embed.iter().for_each(|embed| put("drafting embedding".into(), embed));
        mtp.head.iter().for_each(|head| put("drafting head".into(), &head.weight));
    }
    for (i, layer) in layers() {
        for (n, linear) in layer.linears().enumerate() {
            put(format!("layer {i}, matrix {n}"), &linear.weight);
        }
    }
    for (i, layer) in layers() {
        let mut vectors = vec![Some(&layer.mixer_norm), Some(&layer.ffn_norm)];
        vectors.push(layer.ffn_sub_norm.as_ref());
        match &layer.mixer {
            Mixer::Attention(w) => {
                vectors.extend([w.q_norm.as_ref(), w.k_norm.as_ref(), w.sub_norm.as_ref()]);
            }
            Mixer::Linear(w) => vectors.extend([&w.conv, &w.a, &w.dt_bias, &w.norm].map(Some)),
        }
        vectors.extend(layer.linears().map(|linear| linear.bias.as_ref()));
        let vectors = vectors.into_iter().enumerate();
        all.extend(
            vectors.filter_map(|(n, v)| Some((format!("layer {i}, vector {n}"), v?.clone()))),
        );
    }
    all.push(("final norm".into(), w.final_norm.clone()));
    if let Some(mtp) = &w.mtp {
        let norms = [Some(&mtp.embed_norm), Some(&mtp.hidden_norm), mtp.head_norm.as_ref()];
        all.extend(norms.into_iter().flatten().map(|norm| ("drafting norm".into(), norm.clone())));
    }
    all
}

/// Compares two models; numbers may differ by `tolerance` of the largest of a tensor.
fn assert_same(name: &str, want: &Checkpoint, found: &Checkpoint, tolerance: f32) {
    let (all, others) = (numbers(want), numbers(found));
    assert_eq!(all.len(), others.len(), "{name}");
    for ((place, a), (_, b)) in all.into_iter().zip(others) {
        assert_eq!(a.len(), b.len(), "{name}: {place}");
        let largest = a.iter().fold(0f32, |most, x| most.max(x.abs()));
        let far = a.iter().zip(&b).find(|(x, y)| (*x - *y).abs() > tolerance * largest);
        assert_eq!(far, None, "{name}: {place}");
    }
    let spec = |model: &Checkpoint| {
        let mut spec = model.spec.clone();
        spec.rope.scaling = None;
        // GGUF holds it as f32.
        spec.rope.theta = f64::from(spec.rope.theta as f32);
        spec
    };
    assert_eq!(spec(want), spec(found), "{name}");
    assert_eq!(want.weights.embed_rotation, found.weights.embed_rotation, "{name}");
    let linears = |model: &Checkpoint| -> Vec<Linear> {
        model.weights.layers.iter().flat_map(|layer| layer.linears().cloned()).collect()
    };
    for (a, b) in linears(want).iter().zip(&linears(found)) {
        assert_eq!(a.rotation, b.rotation, "{name}");
        assert!(matches!(b.weight, Matrix::Float(_)) || a.activations == b.activations, "{name}");
    }
    assert_eq!(want.dlm, found.dlm, "{name}");
}

#[test]
fn golden_models_come_back_from_gguf_bit_equal() {
    let (mut held, mut drafting) = (0, 0);
    for (name, model) in golden() {
        let model = model.with_value_order(ValueOrder::Tiled).unwrap();
        match through_gguf(&model, GgufOptions::default()) {
            Ok(found) => {
                assert_same(&name, &model, &found, 0.0);
                held += 1;
                drafting += usize::from(model.weights.mtp.is_some());
            }
            // These are too narrow for any type, or have a scaling without keys.
            Err(error) => assert!(
                error.contains("whole blocks")
                    || error.contains("`truncate` false")
                    || error.contains("found Nemotron-Labs-Diffusion"),
                "{name}: {error}"
            ),
        }
    }
    assert!(held > 15 && drafting > 0, "{held} models, {drafting} of them draft");
}

/// 21544346.900318846 of a Hunyuan came back as the next number.
#[test]
fn golden_models_come_back_from_packed_files() {
    for (name, model) in golden() {
        let found = through_packed(&model);
        assert_same(&name, &model, &found, 0.0);
        assert_eq!(model.spec, found.spec, "{name}");
        assert_eq!(model.generation, found.generation, "{name}");
    }
}

#[test]
fn golden_models_come_back_from_directories() {
    let mut refused = Vec::new();
    for (name, model) in golden() {
        let model = model.with_value_order(ValueOrder::Grouped);
        let Ok(model) = model else { continue };
        let tolerance = match (&model.weights.embed, model.spec.architecture) {
            // Integers become f16.
            (Matrix::Int8(_) | Matrix::Split(_), _) => 5e-4,
            // Norms and decays are stored as other numbers, which rounds them.
            (_, Architecture::Qwen35) => 1e-6,
            _ => 0.0,
        };
        match through_hf(&model) {
            Ok(found) => {
                assert_same(&name, &model, &found, tolerance);
                assert_eq!(model.spec.rope.theta, found.spec.rope.theta, "{name}");
            }
            Err(error) => refused.push((name, error)),
        }
    }
    for (name, error) in refused {
        assert!(name.contains("-gguf-") && error.contains("a rotated one"), "{name}: {error}");
    }
}

/// A small BitNet whose scales are no f16.
/// The other format states what the authors state, and nothing else.
#[test]
fn sampling_defaults_come_back_as_they_are_and_nothing_stays_nothing() {
    let mut families = vec![("bitnet", bitnet())];
    families.push(("qwen35", Gguf::qwen35().load().expect("it loads")));
    for (name, mut model) in families {
        for (temperature, top_p, top_k, penalty) in [
            (None, None, None, None),
            (Some(0.0), None, None, None),
            (Some(0.5), None, Some(7), None),
            (None, Some(0.75), None, Some(1.25)),
            (Some(1.0), Some(0.5), Some(0), Some(1.0)),
        ] {
            model.generation.temperature = temperature;
            (model.generation.top_p, model.generation.top_k) = (top_p, top_k);
            model.generation.repetition_penalty = penalty;
            let want = model.generation.clone();
            let gguf = through_gguf(&model, GgufOptions::default()).expect("written");
            assert_eq!(gguf.generation, want, "{name}");
            if name != "bitnet" {
                continue;
            }
            assert_eq!(through_hf(&gguf).expect("written").generation, want, "{name}");
        }
    }
    let mut greedy = bitnet();
    greedy.generation.temperature = Some(0.0);
    let directory = HfDirectory::new(&greedy, None).expect("written");
    let files = directory.files();
    let (_, config) = files.iter().find(|(n, _)| *n == "generation_config.json").expect("there");
    let config: serde_json::Value = serde_json::from_slice(config).expect("JSON");
    assert_eq!((&config["do_sample"], config.get("temperature")), (&false.into(), None));
}

fn bitnet() -> Checkpoint {
    let mut model = Gguf::model("bitnet-b1.58", 256, 35, |rng, rows, cols| {
        codec::TQ2_0.encode(&rng.ternary(rows, cols, None).with_scale(0.5).unwrap()).unwrap()
    });
    model.set("bitnet-b1.58.rope.freq_base", meta_f32(500_000.0));
    let mut model = model.load().unwrap();
    for (i, linear) in model.weights.linears_mut().enumerate() {
        let Matrix::Ternary(m) = &linear.weight else { panic!("ternary") };
        linear.weight = Matrix::Ternary(m.with_scale(0.1 + i as f32 / 7.0).unwrap());
    }
    model
}

#[test]
fn every_type_keeps_scales_in_f32() {
    let model = bitnet();
    // Random weights have codes in these.
    let any = TERNARY.into_iter().filter(|t| !matches!(t, GgmlType::Q1_0 | GgmlType::Stq1_0));
    for kind in any {
        let options = GgufOptions { ternary: Some(kind), head: None };
        let bytes = gguf_bytes(&model, options).unwrap();
        let found = load(vec![file("model.gguf", bytes.clone())]).unwrap();
        assert_same(kind.name(), &model, &found, 0.0);
        assert_eq!(gguf_bytes(&found, options).unwrap(), bytes, "{}", kind.name());
    }
}

#[test]
fn types_with_finer_blocks_keep_scales_of_groups() {
    let model = Gguf::model("qwen3", 256, 142, |rng, rows, cols| {
        codec::PQ2_0.encode(&rng.ternary(rows, cols, Some(128))).unwrap()
    });
    let model = model.load().unwrap();
    for kind in [GgmlType::Pq2_0, GgmlType::Ptq1_0, GgmlType::Q2_0] {
        let options = GgufOptions { ternary: Some(kind), head: None };
        assert_same(kind.name(), &model, &through_gguf(&model, options).unwrap(), 0.0);
    }
    for kind in [GgmlType::Tq1_0, GgmlType::Tq2_0, GgmlType::I2S] {
        let options = GgufOptions { ternary: Some(kind), head: None };
        let error = through_gguf(&model, options).map(|_| ()).unwrap_err();
        for part in ["blk.0.attn_q.weight", "a scale for each 128", "PQ2_0 holds it", kind.name()] {
            assert!(error.contains(part), "{part}: {error}");
        }
    }
}

fn with_matrix(m: TernaryMatrix) -> Checkpoint {
    let mut model = bitnet();
    model.weights.layers[0].down.weight = Matrix::Ternary(m);
    model
}

#[test]
fn a_weight_without_a_code_is_refused() {
    let plus_two = TernaryMatrix::pack(256, 256, Scales::Tensor(1.0), |row, codes| {
        codes.fill(if row == 7 { 3 } else { 1 });
    });
    let model = with_matrix(plus_two.unwrap());
    for kind in TERNARY {
        let found = through_gguf(&model, GgufOptions { ternary: Some(kind), head: None });
        match kind {
            GgmlType::Tq1_0 | GgmlType::Ptq1_0 | GgmlType::I2S => {
                let error = found.map(|_| ()).unwrap_err();
                assert!(error.contains("blk.0.ffn_down.weight"), "{error}");
                assert!(error.contains("a weight of +2"), "{error}");
            }
            // The first matrix has weights without a code already.
            GgmlType::Q1_0 => {
                let error = found.map(|_| ()).unwrap_err();
                assert!(error.contains("attn_q.weight: expected weights that"), "{error}");
                assert!(error.contains("a weight of 0 or +2"), "{error}");
            }
            GgmlType::Stq1_0 => {
                let error = found.map(|_| ()).unwrap_err();
                assert!(error.contains("without exactly one 0"), "{error}");
            }
            _ => assert_same(kind.name(), &model, &found.unwrap(), 0.0),
        }
    }
}

#[test]
fn groups_that_no_type_has_are_refused() {
    let scales = |_: usize, out: &mut [half::f16]| {
        (1u8..).zip(out).for_each(|(i, s)| *s = half::f16::from_f32(f32::from(i)));
    };
    let groups = GroupScales::from_rows(256, 256, 16, scales).unwrap();
    let model = TernaryMatrix::pack(256, 256, Scales::Groups(groups), |_, codes| codes.fill(2));
    let error = through_gguf(&with_matrix(model.unwrap()), GgufOptions::default());
    let error = error.map(|_| ()).unwrap_err();
    assert!(error.contains("blk.0.ffn_down.weight"), "{error}");
    assert!(error.contains("a scale for each 16"), "{error}");
}

#[test]
fn a_head_in_int8_is_rounded_as_asked() {
    let model = bitnet().with_head(HeadType::Q8).unwrap();
    for (head, tolerance) in [(None, 5e-4), (Some(HeadType::F16), 5e-4), (Some(HeadType::Q8), 5e-3)]
    {
        let found = through_gguf(&model, GgufOptions { ternary: None, head }).unwrap();
        assert_same("head", &model, &found, tolerance);
        let kind = found.weights.embed.kind();
        assert_eq!(kind, if head == Some(HeadType::Q8) { "int8/g32" } else { "f16" });
    }
}

#[test]
fn value_heads_move_there_and_back() {
    for (name, model) in golden() {
        let Some(shape) = &model.spec.linear_attention else { continue };
        if shape.value_order == ValueOrder::Tiled {
            continue;
        }
        let tiled = model.clone().with_value_order(ValueOrder::Tiled).unwrap();
        if shape.values_per_key() > 1 {
            assert_ne!(numbers(&tiled), numbers(&model), "{name}");
        }
        let back = tiled.with_value_order(ValueOrder::Grouped).unwrap();
        assert_same(&name, &model, &back, 0.0);
    }
}

#[test]
fn llama_3_is_recognized_by_its_divisors() {
    let mut model = Gguf::model("llama", 256, 35, |rng, rows, cols| {
        codec::TQ2_0.encode(&rng.ternary(rows, cols, None).with_scale(0.5).unwrap()).unwrap()
    });
    model.set("llama.rope.freq_base", meta_f32(500_000.0));
    let mut model = model.load().unwrap();
    let rule = Llama3Scaling {
        factor: 8.0,
        low_freq_factor: 1.0,
        high_freq_factor: 4.0,
        original_context: 8192,
    };
    model.spec.rope.scaling = Some(RopeScaling::Llama3(rule.clone()));
    let divided = through_gguf(&model, GgufOptions::default()).unwrap();
    assert!(matches!(&divided.spec.rope.scaling, Some(RopeScaling::Divisors(_))));
    let back = through_hf(&divided).unwrap();
    assert_eq!(back.spec.rope.scaling, Some(RopeScaling::Llama3(rule)));

    let mut odd = divided;
    odd.spec.rope.scaling = Some(RopeScaling::Divisors(vec![3.0; 64]));
    let error = through_hf(&odd).map(|_| ()).unwrap_err();
    assert!(error.contains("divisors that are not Llama 3's"), "{error}");
}

#[test]
fn rotations_that_a_declaration_cannot_say_are_refused() {
    let model = crate::fixtures::hybrid::rotated().load().unwrap();
    assert_same("rotated", &model, &through_gguf(&model, GgufOptions::default()).unwrap(), 0.0);
    let mut other = model;
    let out = &mut other.weights.layers[1].down;
    let signs = vec![1.0; out.weight.cols()];
    out.rotation = Some(Arc::new(Rotation { block: 4, signs: Some(signs) }));
    let error = through_gguf(&other, GgufOptions::default()).map(|_| ()).unwrap_err();
    assert!(error.contains("blk.1.ffn_down.weight") && error.contains("block size"), "{error}");
}

#[test]
fn directories_pack_what_has_eight_bit_activations() {
    let mut rng = Rng(3);
    let model = with_matrix(rng.ternary(256, 256, Some(64)));
    let found = through_hf(&model).unwrap();
    assert_same("mixed", &model, &found, 0.0);
    let layer = &found.weights.layers[0];
    assert!(matches!(layer.down.weight, Matrix::Float(_)));
    assert!(matches!(layer.up.weight, Matrix::Ternary(_)));
    assert_eq!(layer.up.activations, Activations::Int8);
}

/// A model in blocks of random bytes with scales of their own, or with one scale.
fn in_blocks(arch: &str, id: u32, t: &codec::TernaryBlockFormat, scale: Option<f32>) -> Gguf {
    Gguf::model(arch, 256, id, |rng, rows, cols| {
        crate::fixtures::random_blocks(t, rows * cols, rng, scale)
    })
}

#[test]
fn one_bit_types_come_back_under_their_own_ids() {
    for (id, t, found_id) in
        [(41, codec::Q1_0, 41u32), (42, codec::STQ1_0, 43), (43, codec::STQ1_0, 43)]
    {
        let model = in_blocks("qwen3", id, &t, None).load().unwrap();
        let bytes = gguf_bytes(&model, GgufOptions::default()).unwrap();
        let name = b"blk.0.attn_q.weight";
        let at = bytes.windows(name.len()).position(|part| part == name).unwrap() + name.len();
        // The number of dimensions, both dimensions, then the id.
        assert_eq!(bytes[at + 20..at + 24], found_id.to_le_bytes(), "{}", t.name);
        assert_same(t.name, &model, &whole(vec![file("model.gguf", bytes)]), 0.0);
        let other = if id == 41 { GgmlType::Stq1_0 } else { GgmlType::Q1_0 };
        let error = gguf_bytes(&model, GgufOptions { ternary: Some(other), head: None });
        let error = error.unwrap_err();
        assert!(error.contains("blk.0.") && error.contains("found"), "{error}");
    }
}

#[test]
fn one_scale_does_not_decide_the_activations() {
    use Activations::{Int8, Int16};
    let one_scale = |arch, id, t: &codec::TernaryBlockFormat| in_blocks(arch, id, t, Some(0.5));
    let i2s = Gguf::model("llama", 256, 36, |rng, rows, cols| {
        codec::encode_i2s(&rng.ternary(rows, cols, None)).unwrap()
    });
    for (name, model, want) in [
        ("BitCPM 1B and 3B", one_scale("llama", 35, &codec::TQ2_0), Int16),
        ("BitCPM 0.5B and 8B", one_scale("minicpm", 35, &codec::TQ2_0), Int16),
        ("Bonsai", one_scale("qwen3", 41, &codec::Q1_0), Int16),
        ("Hy-MT2", one_scale("hunyuan-dense", 42, &codec::STQ1_0), Int16),
        ("BitNet", one_scale("bitnet-b1.58", 35, &codec::TQ2_0), Int8),
        ("Falcon-E of bitnet.cpp", i2s, Int8),
    ] {
        let mut model = model.load().unwrap_or_else(|e| panic!("{name}: {e}"));
        let up = |model: &Checkpoint| {
            let up = &model.weights.layers[1].up;
            assert_eq!(up.weight.kind(), "ternary", "{name}");
            up.activations
        };
        assert_eq!(up(&model), want, "{name}");
        for activations in [Int8, Int16] {
            model.weights.linears_mut().for_each(|linear| linear.activations = activations);
            let mut packed = Vec::new();
            write_packed(&model, None, &mut packed).unwrap();
            assert_eq!(up(&load(vec![file("m", packed)]).unwrap()), activations, "{name}, packed");
            let found = through_gguf(&model, GgufOptions::default()).unwrap();
            assert_eq!(up(&found), activations, "{name}, GGUF");
        }
    }
}
