//! Two-pass logits of a screened head: the largest are exact, the others close, and none depends on
//! the batch.

use crate::common::{Noise, bitnet, odd};
use wrinklefree::cache::{KvConfig, KvPool};
use wrinklefree::format::{Linear, Spec, Weights};
use wrinklefree::kernel::Kernels;
use wrinklefree::matrix::{Int8Matrix, Matrix, SplitMatrix};
use wrinklefree::model::{AttentionMask, LogitRows, Model, Runtime, Span, Workspace};
use wrinklefree::par::ThreadPool;

/// Not a multiple of 16.
const VOCAB: usize = 5003;

fn spec() -> Spec {
    Spec { vocab_size: VOCAB, layers: 1, ..odd() }
}

/// A head like trained ones: normally distributed, with largest weights at about four times the spread.
fn head(noise: &mut Noise) -> Matrix {
    let matrix = Int8Matrix::quantize_rows(VOCAB, spec().hidden_size, |_, row| {
        row.fill_with(|| (0..12).map(|_| noise.float()).sum());
    });
    Matrix::Int8(matrix.unwrap())
}

/// The head in six bits, as in GGUF files.
fn in_six_bits(head: &Matrix) -> Matrix {
    let Matrix::Int8(head) = head else { panic!("int8") };
    let cols = spec().hidden_size;
    let six = Int8Matrix::pack(VOCAB, cols, cols, |row, values, scales| {
        head.unpack_row(row, values);
        values.iter_mut().for_each(|v| *v >>= 2);
        scales[0] = 4.0 * head.scale(row, 0);
    });
    Matrix::Split(SplitMatrix::new(&six.unwrap()))
}

/// Three models: with a tied head, with a separate head and bias, and with a head of six bits.
fn models() -> [Weights; 3] {
    let mut noise = Noise(11);
    let mut tied = bitnet(&spec(), 12);
    tied.embed = head(&mut noise);
    let mut own = tied.clone();
    let bias = Some((0..VOCAB).map(|_| noise.float()).collect());
    let weight = head(&mut noise);
    let mut six = own.clone();
    let weight_six = in_six_bits(&weight);
    assert_eq!(weight_six.kind(), "int6");
    six.head = Some(Linear::new(weight_six, None));
    own.head = Some(Linear::new(weight, bias));
    [tied, own, six]
}

fn runtime(kernels: Kernels, threads: usize) -> Runtime {
    Runtime { kernels, thread_pool: ThreadPool::new(threads).unwrap() }
}

/// Logits of sequences of one token each, in passes of `batch` sequences.
fn logits(model: &Model, rt: &Runtime, tokens: &[u32], batch: usize) -> Vec<f32> {
    let mut kv = KvPool::new(model.spec(), batch, KvConfig::EXACT).unwrap();
    let (mut ws, mut out) = (Workspace::default(), Vec::new());
    for tokens in tokens.chunks(batch) {
        let seqs: Vec<_> = tokens.iter().map(|_| kv.open(1).unwrap()).collect();
        let span = |(&seq, token)| Span {
            seq,
            start: 0,
            tokens: std::slice::from_ref(token),
            attention_mask: AttentionMask::Causal,
            logits: LogitRows::All,
        };
        let spans: Vec<_> = seqs.iter().zip(tokens).map(span).collect();
        out.extend_from_slice(model.forward(rt, &mut kv, &spans, &mut ws).values());
        seqs.into_iter().for_each(|seq| kv.close(seq));
    }
    out
}

fn top(row: &[f32]) -> usize {
    (0..row.len()).max_by(|&a, &b| row[a].total_cmp(&row[b]).then(b.cmp(&a))).unwrap()
}

fn spread(row: &[f32]) -> f32 {
    (row.iter().map(|x| x * x).sum::<f32>() / row.len() as f32).sqrt()
}

#[test]
fn the_largest_logits_are_exact_and_all_others_close() {
    let rt = runtime(Kernels::best(), 2);
    let tokens: Vec<u32> = (0..VOCAB as u32).step_by(3).collect();
    for weights in models() {
        let exact = Model::new(spec(), weights.clone()).unwrap();
        let screened = Model::new(spec(), weights).unwrap().with_screened_head();
        assert!(screened.is_screened() && !exact.is_screened());
        let (a, b) = (logits(&exact, &rt, &tokens, 64), logits(&screened, &rt, &tokens, 64));
        for (a, b) in a.chunks(VOCAB).zip(b.chunks(VOCAB)) {
            assert_eq!(top(a), top(b));
            let same = a.iter().zip(b).filter(|(a, b)| a.to_bits() == b.to_bits()).count();
            assert!((64 * 16 - 5..VOCAB / 3).contains(&same), "{same} are exact");
            let mut order: Vec<usize> = (0..VOCAB).collect();
            order.sort_by(|&x, &y| a[y].total_cmp(&a[x]));
            assert!(order[..10].iter().all(|&i| a[i].to_bits() == b[i].to_bits()));
            let far = a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0f32, f32::max);
            assert!(far < spread(a), "{far} of {}", spread(a));
        }
    }
}

#[test]
fn a_row_gets_the_same_alone_in_any_batch_and_on_any_set() {
    let tokens: Vec<u32> = (7..VOCAB as u32).step_by(271).collect();
    for weights in models() {
        let model = Model::new(spec(), weights).unwrap().with_screened_head();
        let want = logits(&model, &runtime(Kernels::SCALAR, 1), &tokens, 1);
        for kernels in Kernels::all() {
            println!("runs on {}", kernels.isa().name());
            for (batch, threads) in [(1, 1), (3, 1), (tokens.len(), 3)] {
                let found = logits(&model, &runtime(kernels, threads), &tokens, batch);
                // Float steps before the head differ in the last bit between instruction sets, which
                // may choose other panels.
                let far = 0.02 * spread(&want);
                let other = want.iter().zip(&found).filter(|(a, b)| (*a - *b).abs() > far).count();
                assert!(other * 100 < want.len(), "{:?}: {other} of {}", kernels.isa(), want.len());
                let alone = logits(&model, &runtime(kernels, 1), &tokens, 1);
                let bits = |x: &[f32]| x.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
                assert!(bits(&alone) == bits(&found), "{:?} {batch}", kernels.isa());
            }
        }
    }
}

#[test]
fn fewer_bytes_are_read_and_embeddings_do_not_change() {
    for weights in models() {
        let exact = Model::new(spec(), weights.clone()).unwrap();
        let screened = Model::new(spec(), weights).unwrap().with_screened_head();
        assert!(screened.bytes_per_token() < exact.bytes_per_token());
        assert_eq!(screened.parameters(), exact.parameters());
        let row = |model: &Model, row: usize| {
            let mut out = vec![0f32; spec().hidden_size];
            model.weights().embed.row_f32(row, &mut out);
            out
        };
        for i in [0, 1, 77, VOCAB - 1] {
            assert_eq!(row(&screened, i), row(&exact, i));
        }
    }
}

#[test]
fn small_heads_stay_exact() {
    let model = Model::new(odd(), bitnet(&odd(), 3)).unwrap().with_screened_head();
    assert!(!model.is_screened());
}
