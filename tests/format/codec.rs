//! Foreign layouts survive a round trip byte for byte. Packing and unpacking work at every shape.

use crate::fixtures::Rng;
use half::f16;
use proptest::prelude::*;
use wrinklefree::format::codec::{self, RowOrder, TernaryBlockFormat};
use wrinklefree::matrix::{FloatMatrix, FloatType, Scales, TernaryMatrix};

const BLOCKS: [TernaryBlockFormat; 5] =
    [codec::TQ1_0, codec::TQ2_0, codec::Q2_0, codec::PQ2_0, codec::PTQ1_0];

fn codes(m: &TernaryMatrix) -> Vec<u8> {
    let mut out = vec![0; m.rows() * m.cols()];
    out.chunks_exact_mut(m.cols()).enumerate().for_each(|(r, row)| m.unpack_row(r, row));
    out
}

/// Encoded random matrix. With `alike` all its scales are equal, and one block is zero.
fn foreign(
    t: &TernaryBlockFormat,
    rows: usize,
    cols: usize,
    rng: &mut Rng,
    alike: bool,
) -> Vec<u8> {
    let m = if alike {
        let all = rng.codes(rows * cols, 2);
        let scale = f16::from_f32(0.3 + rng.float().abs()).to_f32();
        TernaryMatrix::pack(rows, cols, Scales::Tensor(scale), |r, out| {
            out.copy_from_slice(&all[r * cols..(r + 1) * cols]);
            if r == 0 {
                out[..t.weights].fill(1);
            }
        })
        .unwrap()
    } else {
        rng.ternary(rows, cols, Some(t.weights))
    };
    t.encode(&m).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn unpack_undoes_pack(rows in 1usize..70, cols in 1usize..70, seed in 1u64..) {
        let all = Rng(seed).codes(rows * cols, 3);
        let m = TernaryMatrix::pack(rows, cols, Scales::Tensor(1.0), |r, out| {
            out.copy_from_slice(&all[r * cols..(r + 1) * cols]);
        }).unwrap();
        prop_assert_eq!(codes(&m), all);
    }

    #[test]
    fn block_types_survive_the_round_trip(
        which in 0..BLOCKS.len(), rows in 1usize..40, n in 1usize..4, seed in 1u64.., alike: bool,
    ) {
        let t = BLOCKS[which];
        let cols = n * t.weights;
        let bytes = foreign(&t, rows, cols, &mut Rng(seed), alike);
        let m = t.decode(&bytes, rows, cols, RowOrder::Same).unwrap();
        prop_assert_eq!(matches!(m.scales(), Scales::Tensor(_)), alike || rows * n == 1);
        prop_assert_eq!(t.encode(&m).unwrap(), bytes);
    }

    #[test]
    fn two_bit_types_keep_any_bytes(which in 1..4usize, rows in 1usize..20, seed in 1u64..) {
        let t = BLOCKS[which];
        let mut rng = Rng(seed);
        let mut bytes = vec![0; t.size(rows, 2 * t.weights).unwrap()];
        for block in bytes.chunks_exact_mut(t.bytes) {
            block.fill_with(|| rng.next() as u8);
            let at = if which == 1 { t.bytes - 2 } else { 0 };
            block[at..at + 2].copy_from_slice(&f16::from_f32(rng.float()).to_le_bytes());
        }
        let m = t.decode(&bytes, rows, 2 * t.weights, RowOrder::Same).unwrap();
        prop_assert_eq!(t.encode(&m).unwrap(), bytes);
    }

    #[test]
    fn one_bit_types_keep_any_bytes(which in 0..2usize, rows in 1usize..20, seed in 1u64.., alike: bool) {
        let t = [codec::Q1_0, codec::STQ1_0][which];
        let (cols, rng) = (2 * t.weights, &mut Rng(seed));
        let bytes = crate::fixtures::random_blocks(&t, rows * cols, rng, alike.then_some(0.5));
        let m = t.decode(&bytes, rows, cols, RowOrder::Same).unwrap();
        prop_assert_eq!(matches!(m.scales(), Scales::Tensor(_)), alike);
        prop_assert_eq!(t.encode(&m).unwrap(), bytes);
    }

    #[test]
    fn hf_packing_survives_the_round_trip(quarter in 1usize..20, cols in 1usize..70, seed in 1u64..) {
        let mut rng = Rng(seed);
        let bytes: Vec<u8> = (0..quarter * cols).map(|_| rng.next() as u8).collect();
        let m = codec::decode_hf_packed(&bytes, 4 * quarter, cols, 0.5).unwrap();
        prop_assert_eq!(codes(&m)[cols * quarter], bytes[0] >> 2 & 3);
        prop_assert_eq!(codec::encode_hf_packed(&m).unwrap(), bytes);
    }

    #[test]
    fn i2s_survives_the_round_trip(rows in 1usize..40, n in 1usize..4, seed in 1u64..) {
        let m = Rng(seed).ternary(rows, 128 * n, None);
        let bytes = codec::encode_i2s(&m).unwrap();
        let back = codec::decode_i2s(&bytes, rows, 128 * n, RowOrder::Same).unwrap();
        prop_assert_eq!(&back, &m);
        prop_assert_eq!(codec::encode_i2s(&back).unwrap(), bytes);
    }

    #[test]
    fn masters_quantize_as_the_definition_says(rows in 1usize..20, cols in 1usize..70, seed in 1u64..) {
        let w = Rng(seed).floats(rows * cols);
        let master = FloatMatrix::new(rows, cols, FloatType::F32, crate::fixtures::f32_bytes(&w).into()).unwrap();
        let m = codec::quantize_absmean(&master, RowOrder::Same).unwrap();
        // arXiv 2402.17764, §2: round(w / mean |w|), clipped to ±1.
        let scale = w.iter().map(|w| w.abs()).sum::<f32>() / w.len() as f32;
        let Scales::Tensor(found) = *m.scales() else { panic!("one scale") };
        prop_assert!((found - scale).abs() <= 1e-5 * scale);
        let code = |w: &f32| ((w * (1.0 / found)).round_ties_even().clamp(-1.0, 1.0) + 1.0) as u8;
        let want: Vec<u8> = w.iter().map(code).collect();
        prop_assert_eq!(codes(&m), want);
    }
}

#[test]
fn halves_round_to_even() {
    // mean |w| = 1, so ±0.5 lies exactly between two codes and goes to the even one, 0.
    let w = [0.5f32, -0.5, 0.500_000_06, -0.500_000_06, 1.0, -1.0, 2.0, 2.0];
    let mean = w.iter().map(|w| w.abs()).sum::<f32>() / w.len() as f32;
    assert_eq!(mean, 1.0);
    let m = FloatMatrix::new(1, w.len(), FloatType::F32, crate::fixtures::f32_bytes(&w).into())
        .unwrap();
    let m = codec::quantize_absmean(&m, RowOrder::Same).unwrap();
    assert_eq!(codes(&m), [1, 1, 2, 0, 2, 0, 2, 2]);
}

#[test]
fn interleaved_rows_are_restored() {
    // A converter moves row i of a head's first half to 2i, and of the second half to 2i + 1.
    let order = RowOrder::Interleaved { head_dim: 6 };
    let sources: Vec<usize> = (0..12).map(|r| order.source(r)).collect();
    assert_eq!(sources, [0, 2, 4, 1, 3, 5, 6, 8, 10, 7, 9, 11]);
}

#[test]
fn encoding_fails_where_a_format_cannot_hold_a_matrix() {
    let mut rng = Rng(5);
    assert!(
        codec::TQ1_0.encode(&rng.ternary(2, 100, None)).is_none(),
        "rows that are not whole blocks"
    );
    assert!(codec::TQ1_0.encode(&rng.ternary(2, 256, Some(128))).is_none(), "finer groups");
    let plus_two = TernaryMatrix::pack(1, 256, Scales::Tensor(1.0), |_, c| c.fill(3)).unwrap();
    assert!(codec::TQ1_0.encode(&plus_two).is_none(), "+2 in base 3");
    assert!(codec::TQ2_0.encode(&plus_two).is_some());
    let odd = TernaryMatrix::pack(1, 256, Scales::Tensor(0.1), |_, c| c.fill(2)).unwrap();
    assert!(codec::TQ2_0.encode(&odd).is_none(), "a scale that is not an f16");
    let zero = TernaryMatrix::pack(1, 256, Scales::Tensor(1.0), |_, c| c.fill(1)).unwrap();
    assert!(codec::Q1_0.encode(&zero).is_none(), "a weight of 0 in signs");
    assert!(codec::STQ1_0.encode(&zero).is_none(), "four zeros in a group");
    let fours = TernaryMatrix::pack(1, 256, Scales::Tensor(1.0), |_, c| {
        (0..).zip(c).for_each(|(j, c)| *c = if j % 4 == 0 { 1 } else { 2 });
    });
    assert!(codec::STQ1_0.encode(&fours.unwrap()).is_none(), "neighbors are no group");
    assert!(codec::encode_i2s(&rng.ternary(2, 192, None)).is_none());
    assert!(codec::encode_hf_packed(&rng.ternary(6, 8, None)).is_none());
}

fn weights(t: &TernaryBlockFormat, block: &[u8]) -> Vec<f32> {
    let m = t.decode(block, 1, t.weights, RowOrder::Same).unwrap();
    let mut out = vec![0.0; t.weights];
    m.row_f32(0, &mut out);
    out
}

#[test]
fn q1_0_as_in_its_description() {
    let mut block = [0u8; 18];
    block[..4].copy_from_slice(&[0x00, 0x38, 0x0d, 0x80]);
    let found = weights(&codec::Q1_0, &block);
    let plus = [0, 2, 3, 15];
    for (j, w) in found.into_iter().enumerate() {
        assert_eq!(w, if plus.contains(&j) { 0.5 } else { -0.5 }, "{j}");
    }
}

#[test]
fn stq1_0_as_in_its_description() {
    let mut block = [0u8; 42];
    (block[0], block[32], block[8]) = (0x69, 0b10, 0x0c);
    block[40..].copy_from_slice(&f16::from_f32(0.25).to_le_bytes());
    let found = weights(&codec::STQ1_0, &block);
    for group in 0..64 {
        let first = 64 * (group / 16) + group % 16;
        let want = match group {
            0 => [1.0, -1.0, 0.0, 1.0],
            1 => [-1.0, 0.0, -1.0, 1.0],
            16 => [1.0, 1.0, 1.0, 0.0],
            _ => [0.0, 1.0, 1.0, 1.0],
        };
        assert_eq!([0, 16, 32, 48].map(|p| found[first + p] / 0.25), want, "group {group}");
    }
}

#[test]
fn tq2_0_as_in_its_description() {
    let mut block = [0u8; 66];
    block[0] = 0x91;
    block[64..].copy_from_slice(&f16::ONE.to_le_bytes());
    for (j, w) in weights(&codec::TQ2_0, &block).into_iter().enumerate() {
        assert_eq!(
            w,
            [0.0, -1.0, 0.0, 1.0].get(j / 32).filter(|_| j % 32 == 0).copied().unwrap_or(-1.0),
            "{j}"
        );
    }
}

#[test]
fn a_block_of_signs_with_the_scale_zero_keeps_its_signs() {
    let mut bytes = vec![0xff; 36];
    bytes[..2].copy_from_slice(&f16::ZERO.to_le_bytes());
    bytes[18..20].copy_from_slice(&f16::ONE.to_le_bytes());
    let m = codec::Q1_0.decode(&bytes, 1, 256, RowOrder::Same).unwrap();
    assert!(matches!(m.scales(), Scales::Groups(_)));
    assert_eq!((m.scale_at(0, 0), m.scale_at(0, 128)), (0.0, 1.0));
    assert_eq!(codec::Q1_0.encode(&m).unwrap(), bytes);
}
