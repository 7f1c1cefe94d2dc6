//! A row's logits have the same bits however a prompt is split, in any batch, and on any number of
//! threads. Runs on every instruction set of this machine.

use crate::batching::{bits, in_batches};
use crate::common::{Noise, bitnet, int8, odd, small_model, ternary};
use half::{bf16, f16};
use wrinklefree::cache::{KvConfig, KvPool, KvSeq};
use wrinklefree::format::{
    Activation, Activations, Architecture, AttentionWeights, Linear, Llama3Scaling, RopeScaling,
    Spec, Weights,
};
use wrinklefree::kernel::{Attention, Isa, Kernels};
use wrinklefree::matrix::{FloatMatrix, FloatType, GroupScales, Matrix, Scales, TernaryMatrix};
use wrinklefree::model::{AttentionMask, LogitRows, Model, Runtime, Span, Workspace};
use wrinklefree::par::ThreadPool;

fn float(rows: usize, cols: usize, dtype: FloatType, noise: &mut Noise) -> Linear {
    let values = (0..rows * cols).map(|_| noise.float() * 0.2);
    let bytes: Vec<u8> = match dtype {
        FloatType::F32 => values.flat_map(f32::to_le_bytes).collect(),
        FloatType::F16 => values.flat_map(|v| f16::from_f32(v).to_le_bytes()).collect(),
        FloatType::Bf16 => values.flat_map(|v| bf16::from_f32(v).to_le_bytes()).collect(),
    };
    let matrix = FloatMatrix::new(rows, cols, dtype, bytes.into()).unwrap();
    let bias = Some((0..rows).map(|_| noise.float()).collect());
    Linear { bias, activations: Activations::Int8, ..Linear::new(Matrix::Float(matrix), None) }
}

fn grouped(rows: usize, cols: usize, noise: &mut Noise) -> Linear {
    let scales = GroupScales::from_rows(rows, cols, 32, |_, s| {
        s.fill_with(|| f16::from_f32(0.1 + noise.float().abs() * 0.1));
    });
    let scales = Scales::Groups(scales.unwrap());
    let plain = ternary(rows, cols, noise);
    let weight = TernaryMatrix::from_panels(rows, cols, plain.codes().clone(), scales).unwrap();
    Linear::new(Matrix::Ternary(weight), None)
}

fn attention(weights: &mut Weights, layer: usize) -> &mut AttentionWeights {
    weights.layers[layer].mixer.attention_mut().unwrap()
}

/// Three models: one all ternary, one with every kind of layer, biases and q/k norms, and a Llama.
fn models() -> Vec<Model> {
    let mut noise = Noise(99);
    let plain = Model::new(odd(), bitnet(&odd(), 5)).unwrap();
    let mut mixed = bitnet(&odd(), 6);
    let s = odd();
    let (d, f, q, kv) = (s.hidden_size, s.intermediate_size, 84, 28);
    attention(&mut mixed, 0).q = float(q, d, FloatType::Bf16, &mut noise);
    mixed.layers[0].down = float(d, f, FloatType::F16, &mut noise);
    attention(&mut mixed, 1).v = float(kv, d, FloatType::F32, &mut noise);
    attention(&mut mixed, 1).o = grouped(d, q, &mut noise);
    mixed.layers[2].up = grouped(f, d, &mut noise);
    mixed.layers[2].gate = float(f, d, FloatType::Bf16, &mut noise);
    attention(&mut mixed, 2).k.weight = Matrix::Int8(int8(kv, d, &mut noise));
    attention(&mut mixed, 1).q_norm = Some((0..14).map(|_| noise.float()).collect());
    attention(&mut mixed, 1).k_norm = Some((0..14).map(|_| noise.float()).collect());
    mixed.head = Some(float(s.vocab_size, d, FloatType::F16, &mut noise));
    let mut llama = Spec { architecture: Architecture::Llama, activation: Activation::Silu, ..s };
    llama.rope.scaling = Some(RopeScaling::Llama3(Llama3Scaling {
        factor: 8.0,
        low_freq_factor: 1.0,
        high_freq_factor: 4.0,
        original_context: 64,
    }));
    let mut weights = bitnet(&llama, 7);
    for l in &mut weights.layers {
        l.mixer.attention_mut().unwrap().sub_norm = None;
        l.ffn_sub_norm = None;
    }
    vec![plain, Model::new(odd(), mixed).unwrap(), Model::new(llama, weights).unwrap()]
}

fn tokens(n: usize, seed: u64) -> Vec<u32> {
    let mut noise = Noise(seed);
    (0..n).map(|_| (noise.bits() >> 20) as u32 % 131).collect()
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
        let mut kv = KvPool::new(model.spec(), 12, KvConfig::EXACT).unwrap();
        let seq = kv.open(100).unwrap();
        Self { model, rt, kv, ws: Workspace::default(), seq }
    }

    /// Logits of all rows, as bits.
    fn pass(&mut self, start: usize, tokens: &[u32], attention_mask: AttentionMask) -> Vec<u32> {
        let seq = self.seq;
        let span = Span { seq, start, tokens, attention_mask, logits: LogitRows::All };
        bits(self.model.forward(self.rt, &mut self.kv, &[span], &mut self.ws).values())
    }
}

fn each(test: impl Fn(&Model, &Runtime)) {
    for kernels in Kernels::all() {
        println!("runs on {}", kernels.isa().name());
        let rt = Runtime { kernels, thread_pool: ThreadPool::new(1).unwrap() };
        models().iter().for_each(|model| test(model, &rt));
        for (mut model, policy) in
            models().into_iter().zip(["adaptive", "topk:0.3", "threshold:0.1@down"])
        {
            model.sparsity = policy.parse().unwrap();
            test(&model, &rt);
        }
    }
}

#[test]
fn skipping_blocks_of_zeros_changes_no_bit() {
    let prompt = tokens(12, 11);
    let mut weights = bitnet(&odd(), 8);
    for layer in &mut weights.layers {
        // Seven of the ten blocks of inputs of `down` are zero.
        layer.ffn_sub_norm.as_mut().unwrap()[32..144].fill(0.0);
    }
    let model = Model::new(odd(), weights).unwrap();
    // Only AVX2 skips blocks. Other tests compare the products of all sets with the scalar ones.
    let Some(kernels) = Kernels::for_isa(Isa::Avx2) else {
        return eprintln!("skipped: this machine has no AVX2");
    };
    let [skipping, dense] = [kernels, kernels.dense()].map(|kernels| {
        let rt = Runtime { kernels, thread_pool: ThreadPool::new(1).unwrap() };
        let mut run = Run::new(&model, &rt);
        let rows = (0..12).map(|i| run.pass(i, &prompt[i..=i], AttentionMask::Causal));
        rows.collect::<Vec<_>>()
    });
    assert!(skipping == dense);
}

#[test]
fn a_rule_that_keeps_all_changes_no_bit_and_others_do() {
    let prompt = tokens(20, 12);
    let rt = Runtime { kernels: Kernels::best(), thread_pool: ThreadPool::new(1).unwrap() };
    for mut model in models() {
        let mut with = |policy: &str| {
            model.sparsity = policy.parse().unwrap();
            Run::new(&model, &rt).pass(0, &prompt, AttentionMask::Causal)
        };
        let off = with("off");
        assert!(off == with("topk:1") && off == with("threshold:0"));
        assert!(off != with("topk:0.3") && off != with("threshold:0.1") && off != with("adaptive"));
    }
}

/// The observer sees the group sizes, widths, rows and nonzero values of a pass.
#[test]
fn inputs_can_be_observed_and_the_head_gets_all_values() {
    let rt = Runtime { kernels: Kernels::best(), thread_pool: ThreadPool::new(1).unwrap() };
    let mut model = models().remove(0);
    model.sparsity = "topk:0.25".parse().unwrap();
    let (sender, seen) = std::sync::mpsc::channel();
    let mut run = Run::new(&model, &rt);
    run.ws.observe_inputs(move |readers, x| {
        let live = x.values.iter().filter(|&&v| v != 0).count();
        sender.send((readers.len(), readers[0].weight.cols(), x.tokens(), live)).unwrap();
    });
    run.pass(0, &tokens(2, 13), AttentionMask::Causal);
    let seen: Vec<_> = seen.try_iter().collect();
    let shapes: Vec<_> = seen.iter().map(|&(readers, cols, ..)| (readers, cols)).collect();
    let layer = [(3, 90), (1, 84), (2, 90), (1, 151)];
    assert_eq!(shapes, [&layer[..], &layer, &layer, &[(1, 90)]].concat());
    let (head, layers) = seen.split_last().unwrap();
    for &(_, cols, rows, live) in layers {
        assert!(rows == 2 && live >= cols / 2 && live < cols, "{live} of 2 × {cols}");
    }
    assert!(head.2 == 2 && head.3 > 3 * 90, "two planes of two rows: {head:?}");
}

#[test]
fn a_prompt_in_chunks_equals_the_whole() {
    let prompt = tokens(75, 1);
    each(|model, rt| {
        let whole = Run::new(model, rt).pass(0, &prompt, AttentionMask::Causal);
        for sizes in [vec![1; 75], vec![32, 32, 11], vec![7, 1, 60, 7], vec![74, 1]] {
            let mut run = Run::new(model, rt);
            let (mut start, mut parts) = (0, Vec::new());
            for size in sizes {
                parts.extend(run.pass(start, &prompt[start..start + size], AttentionMask::Causal));
                start += size;
            }
            assert!(parts == whole, "{:?}", rt.kernels.isa());
        }
        let whole = Run::new(model, rt).pass(0, &prompt, AttentionMask::BlockCausal(8));
        let mut run = Run::new(model, rt);
        let mut parts = run.pass(0, &prompt[..40], AttentionMask::BlockCausal(8));
        parts.extend(run.pass(40, &prompt[40..], AttentionMask::BlockCausal(8)));
        assert!(parts == whole);
    });
}

#[test]
fn a_sequence_in_a_batch_equals_the_same_alone() {
    let (a, b, c) = (tokens(40, 2), tokens(9, 3), tokens(64, 4));
    each(|model, rt| {
        let alone = [&a, &b, &c].map(|t| Run::new(model, rt).pass(0, t, AttentionMask::Causal));
        let mut kv = KvPool::new(model.spec(), 12, KvConfig::EXACT).unwrap();
        // Closing these two gives the pages another order than the positions.
        let seqs = [kv.open(64).unwrap(), kv.open(9).unwrap()];
        kv.close(seqs[0]);
        kv.close(seqs[1]);
        // First parts of a and c together, then the rest of both around b.
        let cuts = [[0..33, 0..0, 0..1], [33..40, 0..9, 1..64]];
        let got = in_batches(model, rt, &mut kv, [&a, &b, &c], &cuts);
        assert!(got == alone, "{:?}", rt.kernels.isa());
    });
}

#[test]
fn any_number_of_threads_gives_the_same() {
    let prompt = tokens(50, 5);
    each(|model, rt| {
        let run = |rt: &Runtime| {
            let mut run = Run::new(model, rt);
            let mut out = run.pass(0, &prompt[..47], AttentionMask::Causal);
            (47..50).for_each(|i| out.extend(run.pass(i, &prompt[i..=i], AttentionMask::Causal)));
            out
        };
        let one = run(rt);
        for threads in [2, 3, 7] {
            let thread_pool = ThreadPool::new(threads).unwrap();
            assert!(run(&Runtime { kernels: rt.kernels, thread_pool }) == one, "{threads} threads");
        }
    });
}

#[test]
fn workers_that_share_a_long_text_change_no_bit() {
    // So large a head that a row is worth waking threads for.
    let model = small_model(400_000, 3, 1.0);
    let text = tokens(2 * Attention::PART + 70, 9);
    let (prompt, rest) = text.split_at(text.len() - 2);
    for kernels in Kernels::all().filter(|k| k.isa() != Isa::Scalar) {
        let logits = |threads, whole: bool| {
            let rt = Runtime { kernels, thread_pool: ThreadPool::new(threads).unwrap() };
            let mut kv = KvPool::new(model.spec(), 80, KvConfig::default()).unwrap();
            let (seq, mut ws) = (kv.open(text.len()).unwrap(), Workspace::default());
            let mut pass = |start, tokens, rows| {
                let (attention_mask, logits) = (AttentionMask::Causal, rows);
                let span = Span { seq, start, tokens, attention_mask, logits };
                bits(model.forward(&rt, &mut kv, &[span], &mut ws).values())
            };
            if whole {
                return pass(0, &text, LogitRows::Only(&[prompt.len(), prompt.len() + 1]));
            }
            pass(0, prompt, LogitRows::None);
            let first = pass(prompt.len(), &rest[..1], LogitRows::All);
            [first, pass(prompt.len() + 1, &rest[1..], LogitRows::All)].concat()
        };
        let expected = logits(1, false);
        for (threads, whole) in [(3, false), (1, true), (3, true)] {
            assert!(logits(threads, whole) == expected, "{threads} {whole} {:?}", kernels.isa());
        }
    }
}

#[test]
fn a_draft_that_is_not_kept_leaves_no_trace() {
    let (prompt, draft) = (tokens(20, 6), tokens(12, 7));
    each(|model, rt| {
        let mut plain = Run::new(model, rt);
        plain.pass(0, &prompt, AttentionMask::Causal);
        let want = plain.pass(20, &draft[..1], AttentionMask::Causal);
        let mut run = Run::new(model, rt);
        run.pass(0, &prompt, AttentionMask::Causal);
        let seq = run.seq;
        let span = Span {
            seq,
            start: 20,
            tokens: &draft,
            attention_mask: AttentionMask::Prefix(32),
            logits: LogitRows::Last,
        };
        assert_eq!(model.forward(rt, &mut run.kv, &[span], &mut run.ws).len(), 1);
        assert!(run.pass(20, &draft[..1], AttentionMask::Causal) == want);
    });
}

#[test]
fn a_block_sees_itself_and_what_came_before() {
    let prompt = tokens(24, 8);
    each(|model, rt| {
        let base = Run::new(model, rt).pass(0, &prompt, AttentionMask::BlockCausal(8));
        let vocab = model.spec().vocab_size;
        for changed in [0, 7, 8, 15, 23] {
            let mut other = prompt.clone();
            other[changed] = (other[changed] + 1) % vocab as u32;
            let got = Run::new(model, rt).pass(0, &other, AttentionMask::BlockCausal(8));
            for row in 0..24 {
                let same = got[row * vocab..][..vocab] == base[row * vocab..][..vocab];
                assert_eq!(same, row / 8 < changed / 8, "token {changed}, row {row}");
            }
        }
    });
}

#[test]
fn a_cache_that_does_not_fit_in_memory_is_an_error() {
    let spec = Spec { head_dim: 1 << 12, ..odd() };
    for pages in [u32::MAX as usize, 1 << 40, usize::MAX] {
        let error =
            KvPool::new(&spec, pages, KvConfig::EXACT).err().expect("more than an address space");
        assert!(error.to_string().starts_with("not enough memory for a KV cache of "), "{error}");
    }
}

#[test]
fn logits_do_not_depend_on_which_rows_ask_for_them() {
    let (prompt, other) = (tokens(40, 9), tokens(11, 10));
    each(|model, rt| {
        let all = Run::new(model, rt).pass(0, &prompt, AttentionMask::BlockCausal(8));
        let next_to = Run::new(model, rt).pass(0, &other, AttentionMask::Causal);
        let row = |bits: &[u32], i: usize| {
            let vocab = model.spec().vocab_size;
            bits[i * vocab..(i + 1) * vocab].to_vec()
        };
        for wanted in [&[39][..], &[0, 1, 2], &[7, 7, 8, 31], &[]] {
            let mut kv = KvPool::new(model.spec(), 12, KvConfig::EXACT).unwrap();
            let seqs = [kv.open(64).unwrap(), kv.open(64).unwrap()];
            let (mut ws, start) = (Workspace::default(), 0);
            let spans = [
                Span {
                    seq: seqs[0],
                    start,
                    tokens: &prompt,
                    attention_mask: AttentionMask::BlockCausal(8),
                    logits: LogitRows::Only(wanted),
                },
                Span {
                    seq: seqs[1],
                    start,
                    tokens: &other,
                    attention_mask: AttentionMask::Causal,
                    logits: LogitRows::Last,
                },
            ];
            let got = bits(model.forward(rt, &mut kv, &spans, &mut ws).values());
            let mut want: Vec<u32> = wanted.iter().flat_map(|&i| row(&all, i)).collect();
            want.extend(row(&next_to, 10));
            assert!(got == want, "{wanted:?}");
            // Rows without logits are in the cache, too.
            let span = Span { logits: LogitRows::None, start: 11, tokens: &other[..3], ..spans[1] };
            assert!(model.forward(rt, &mut kv, &[span], &mut ws).is_empty());
            let span =
                Span { logits: LogitRows::Last, start: 14, tokens: &other[3..4], ..spans[1] };
            let got = bits(model.forward(rt, &mut kv, &[span], &mut ws).values());
            let longer = [&other[..], &other[..4]].concat();
            let want = Run::new(model, rt).pass(0, &longer, AttentionMask::Causal);
            assert!(got == row(&want, 14));
        }
    });
}
