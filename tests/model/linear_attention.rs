//! Hybrid models: a row's logits have the same bits however a prompt is cut, in any batch, on any number
//! of threads and after rejected drafts; and they are those of the formulas in f64. Runs on every
//! instruction set of this machine.

use crate::batching::{bits, in_batches};
use crate::common::Noise;
use crate::hybrid::Kind;
use wrinklefree::cache::{KvConfig, KvPool, KvSeq, Namespace, SaltHash, StatePlace};
use wrinklefree::format::{Rotation, Spec};
use wrinklefree::kernel::Kernels;
use wrinklefree::model::{AttentionMask, LogitRows, Model, Runtime, Span, Workspace};
use wrinklefree::par::ThreadPool;

fn tokens(n: usize, seed: u64) -> Vec<u32> {
    let mut noise = Noise(seed);
    (0..n).map(|_| (noise.bits() >> 20) as u32 % 131).collect()
}

fn models(kind: Kind) -> [Model; 3] {
    let shapes = [
        (crate::hybrid::plain(), false),
        (crate::hybrid::rotated(), true),
        (crate::hybrid::tiled(), false),
    ];
    let model = |(spec, rotated): (Spec, bool)| {
        let weights = crate::hybrid::weights(&spec, kind, rotated, 31);
        Model::new(spec, weights).unwrap()
    };
    shapes.map(model)
}

fn runtime(threads: usize, kernels: Kernels) -> Runtime {
    Runtime { kernels, thread_pool: ThreadPool::new(threads).unwrap() }
}

/// A sequence in its own pool.
struct Run<'a> {
    model: &'a Model,
    rt: &'a Runtime,
    kv: KvPool,
    ws: Workspace,
    seq: KvSeq,
}

impl<'a> Run<'a> {
    fn new(model: &'a Model, rt: &'a Runtime) -> Self {
        let mut kv = KvPool::new(model.spec(), 20, KvConfig::EXACT).unwrap();
        let seq = kv.open(300).unwrap();
        Self { model, rt, kv, ws: Workspace::default(), seq }
    }

    /// Logits of some rows, as bits.
    fn rows(&mut self, start: usize, tokens: &[u32], logits: LogitRows<'_>) -> Vec<u32> {
        let (seq, attention_mask) = (self.seq, AttentionMask::Causal);
        let span = Span { seq, start, tokens, attention_mask, logits };
        bits(self.model.forward(self.rt, &mut self.kv, &[span], &mut self.ws).values())
    }

    fn pass(&mut self, start: usize, tokens: &[u32]) -> Vec<u32> {
        self.rows(start, tokens, LogitRows::All)
    }
}

fn each(test: impl Fn(&Model, &Runtime)) {
    for kernels in Kernels::all() {
        println!("runs on {}", kernels.isa().name());
        let rt = runtime(1, kernels);
        models(Kind::Ternary).iter().for_each(|model| test(model, &rt));
        // With a scale per row and group of columns.
        let [_, rotated, _] = models(Kind::Ternary);
        test(&rotated.with_int8_activations(), &rt);
    }
}

#[test]
fn a_prompt_in_any_chunks_equals_the_whole() {
    let prompt = tokens(230, 1);
    each(|model, rt| {
        let whole = Run::new(model, rt).pass(0, &prompt);
        for size in [1, 7, 31, 32, 33, 63, 64, 65, 200] {
            let (mut run, mut parts) = (Run::new(model, rt), Vec::new());
            for start in (0..prompt.len()).step_by(size) {
                let end = prompt.len().min(start + size);
                parts.extend(run.pass(start, &prompt[start..end]));
            }
            assert!(parts == whole, "{:?}, chunks of {size}", rt.kernels.isa());
        }
        // The last layer computes only the rows that are asked for.
        let vocab = model.spec().vocab_size;
        let row = |i: usize| &whole[i * vocab..(i + 1) * vocab];
        let some = Run::new(model, rt).rows(0, &prompt, LogitRows::Only(&[3, 3, 64, 229]));
        assert!(some == [row(3), row(3), row(64), row(229)].concat());
        let mut run = Run::new(model, rt);
        assert!(run.rows(0, &prompt[..100], LogitRows::None).is_empty());
        assert!(run.rows(100, &prompt[100..], LogitRows::Last) == row(229));
    });
}

#[test]
fn a_sequence_in_a_batch_equals_the_same_alone() {
    let texts = [tokens(70, 2), tokens(9, 3), tokens(100, 4)];
    each(|model, rt| {
        let alone = texts.each_ref().map(|t| Run::new(model, rt).pass(0, t));
        let mut kv = KvPool::new(model.spec(), 12, KvConfig::EXACT).unwrap();
        // Closed sequences leave their states behind.
        let first = kv.open(70).unwrap();
        let (attention_mask, logits) = (AttentionMask::Causal, LogitRows::All);
        let span = Span { seq: first, start: 0, tokens: &texts[2][..70], attention_mask, logits };
        let mut ws = Workspace::default();
        model.forward(rt, &mut kv, &[span], &mut ws);
        kv.close(first);
        let cuts = [[0..33, 0..0, 0..1], [33..70, 0..9, 1..64], [70..70, 9..9, 64..100]];
        let got = in_batches(model, rt, &mut kv, texts.each_ref().map(|t| &t[..]), &cuts);
        assert!(got == alone, "{:?}", rt.kernels.isa());
    });
}

#[test]
fn two_threads_give_the_same() {
    let prompt = tokens(75, 5);
    each(|model, rt| {
        let run = |rt: &Runtime| {
            let mut run = Run::new(model, rt);
            let mut out = run.pass(0, &prompt[..61]);
            (61..75).for_each(|i| out.extend(run.pass(i, &prompt[i..=i])));
            out
        };
        let one = run(rt);
        for threads in [2, 3] {
            assert!(run(&runtime(threads, rt.kernels)) == one, "{threads} threads");
        }
    });
}

#[test]
fn a_draft_that_is_rejected_leaves_no_trace() {
    let (prompt, draft) = (tokens(100, 6), tokens(100, 7));
    each(|model, rt| {
        let whole = Run::new(model, rt).pass(0, &prompt);
        let (mut run, mut out) = (Run::new(model, rt), Vec::new());
        out.extend(run.pass(0, &prompt[..20]));
        for i in 20..100 {
            // The known token and as many drafted ones as may be rejected: none completes a page.
            let end = if i % 32 == 31 { i + 14 } else { (i + 14).min(i / 32 * 32 + 31) };
            let drafted: Vec<u32> = [&prompt[i..=i], &draft[i + 1..end.clamp(i + 1, 100)]].concat();
            let rows = run.pass(i, &drafted);
            out.extend(&rows[..model.spec().vocab_size]);
        }
        assert!(out == whole, "{:?}", rt.kernels.isa());
    });
}

/// A snapshot continues at the last page of a text, as if the text before had been computed again.
#[test]
fn a_kept_state_continues_a_text() {
    let (prompt, namespace) = (tokens(120, 8), Namespace { salt: SaltHash::new(""), block: 1 });
    each(|model, rt| {
        let whole = Run::new(model, rt).pass(0, &prompt);
        let mut run = Run::new(model, rt);
        let (seq, cached) = run.kv.open_shared(&namespace, &prompt);
        assert_eq!(cached, 0);
        run.kv.close(std::mem::replace(&mut run.seq, seq));
        run.kv.grow(seq, 120).unwrap();
        run.pass(0, &prompt[..64]);
        run.kv.commit(seq, 63);
        run.kv.publish(seq, &prompt[..63]);
        run.kv.keep_states(seq, StatePlace::OnTheWay);
        assert_eq!(run.kv.snapshots(), 0, "the states are ahead of the committed pages");
        run.pass(64, &prompt[64..90]);
        run.kv.commit(seq, 90);
        run.kv.publish(seq, &prompt[..90]);
        assert_eq!(run.kv.snapshots(), 0, "pages alone continue nothing");
        let (other, cached) = run.kv.open_shared(&namespace, &prompt);
        assert_eq!(cached, 0);
        run.kv.close(other);

        run.kv.keep_states(seq, StatePlace::OnTheWay);
        run.kv.keep_states(seq, StatePlace::OnTheWay);
        assert_eq!(run.kv.snapshots(), 1);
        let (again, cached) = run.kv.open_shared(&namespace, &prompt);
        assert_eq!(cached, 64, "the last whole page of 90 positions");
        run.kv.close(std::mem::replace(&mut run.seq, again));
        run.kv.grow(again, 120).unwrap();
        let rest = run.pass(64, &prompt[64..]);
        assert!(rest == whole[64 * model.spec().vocab_size..], "{:?}", rt.kernels.isa());
    });
}

/// The whole model against its formulas in f64: mixers, both orders of value heads, gate, partial
/// rotary, rotated inputs, table and head.
#[test]
fn logits_are_those_of_the_formulas() {
    let prompt = tokens(80, 9);
    for kernels in Kernels::all() {
        let rt = runtime(1, kernels);
        for model in models(Kind::Exact) {
            let want = crate::reference::logits(model.spec(), model.weights(), &prompt);
            let got = Run::new(&model, &rt).pass(0, &prompt);
            let largest = want.iter().fold(0f64, |m, x| m.max(x.abs()));
            for (i, (got, want)) in got.iter().zip(&want).enumerate() {
                let off = (f64::from(f32::from_bits(*got)) - want).abs() / largest;
                assert!(off < 1e-4, "{:?}: {want} at {i} is off by {off}", kernels.isa());
            }
        }
    }
}

#[test]
fn shapes_that_do_not_fit_are_refused_by_name() {
    let weights = |spec: &Spec| crate::hybrid::weights(spec, Kind::Ternary, true, 3);
    let refused = |spec: Spec, weights, want: &str| {
        let error = Model::new(spec, weights).err().expect(want).to_string();
        assert!(error.contains(want), "{error}");
    };
    let spec = crate::hybrid::rotated();
    let mut changed = weights(&spec);
    changed.layers[2].gate.rotation = None;
    assert!(Model::new(spec.clone(), changed.clone()).is_ok(), "one of two may be folded");
    let other = Rotation { block: 16, signs: None };
    changed.layers[2].gate.rotation = Some(other.clone().into());
    refused(spec.clone(), changed.clone(), "layer 2 gate and up: expected one rotation");
    changed = weights(&spec);
    changed.embed_rotation = Some(Rotation { block: 64, ..other.clone() }.into());
    refused(spec.clone(), changed, "embedding: expected rotated blocks and signs for 96 inputs");
    changed = weights(&spec);
    changed.layers[0].down.rotation = Some(Rotation { signs: Some(vec![1.0; 96]), ..other }.into());
    refused(spec.clone(), changed, "layer 0 down: expected rotated blocks and signs for 160");
    let mut lie = spec.clone();
    lie.mixers.reverse();
    assert!(Model::new(lie.clone(), weights(&spec)).is_ok());
    lie.mixers[0] = wrinklefree::format::MixerKind::Attention;
    refused(lie.clone(), weights(&spec), "layer 0 mixer: expected Attention");
    lie.mixers.pop();
    refused(lie, weights(&spec), "mixers: expected 3, one per layer");
    for (key_heads, taps) in [(0, 4), (4, 4), (3, 9)] {
        let (mut lie, of) = (spec.clone(), weights(&spec));
        let shape = lie.linear_attention.as_mut().unwrap();
        (shape.key_heads, shape.conv_kernel) = (key_heads, taps);
        refused(lie, of, "linear attention: expected value heads divisible by key heads");
    }
    let (mut lie, of) = (spec.clone(), weights(&spec));
    lie.rotary_dim = Some(18);
    refused(lie, of, "rotary_dim: expected an even number from 2 to 16");
}
