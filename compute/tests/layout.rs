//! The layouts of ternary matrices hold the same weights.

use bytes::Bytes;
use wrinklefree_compute::matrix::{GroupScales, Scales, TernaryMatrix};
use wrinklefree_compute::ternary::{Layout, LayoutError, one_bit, tight};

const SHAPES: [(usize, usize); 9] =
    [(1, 1), (16, 12), (16, 16), (17, 13), (5, 47), (33, 48), (48, 100), (16, 2560), (31, 333)];

fn codes(row: usize, column: usize) -> u8 {
    ((row * 7919 + column * 104_729 + (row ^ column) * 31) % 97 % 3) as u8
}

fn matrix(rows: usize, cols: usize) -> TernaryMatrix {
    TernaryMatrix::pack(rows, cols, Scales::Tensor(0.5), |row, out| {
        out.iter_mut().enumerate().for_each(|(column, c)| *c = codes(row, column));
    })
    .unwrap()
}

#[test]
fn every_code_survives_the_tight_layout_and_back() {
    for (rows, cols) in SHAPES {
        let plain = matrix(rows, cols);
        let tight = plain.in_layout(Layout::Tight).unwrap();
        assert_eq!(tight.layout(), Layout::Tight);
        assert_eq!(tight.codes().len(), rows.div_ceil(16) * cols.div_ceil(12) * 40);
        for row in 0..rows {
            let (mut found, mut want) = (vec![9; cols], vec![9; cols]);
            tight.unpack_row(row, &mut found);
            plain.unpack_row(row, &mut want);
            assert_eq!(found, want, "row {row} of {rows} × {cols}");
            let expected: Vec<u8> = (0..cols).map(|column| codes(row, column)).collect();
            assert_eq!(want, expected);
        }
        assert_eq!(tight.in_layout(Layout::TwoBit).unwrap(), plain, "{rows} × {cols}");
    }
}

#[test]
fn groups_survive_the_tight_layout_and_back() {
    for (rows, cols) in SHAPES {
        for size in [32, 48, 64, 128, 256] {
            let scales =
                GroupScales::from_rows(rows, cols, size, |_, s| s.fill(half::f16::ONE)).unwrap();
            let plain = TernaryMatrix::pack(rows, cols, Scales::Groups(scales), |row, out| {
                out.iter_mut().enumerate().for_each(|(column, c)| *c = codes(row, column));
            })
            .unwrap();
            let tight = plain.in_layout(Layout::Tight).unwrap();
            let blocks = cols.div_ceil(size) * size.div_ceil(12);
            assert_eq!(tight.codes().len(), rows.div_ceil(16) * blocks * 40);
            for row in 0..rows {
                let mut found = vec![9; cols];
                tight.unpack_row(row, &mut found);
                let expected: Vec<u8> = (0..cols).map(|column| codes(row, column)).collect();
                assert_eq!(found, expected, "row {row} of {rows} × {cols} in groups of {size}");
            }
            assert_eq!(tight.in_layout(Layout::TwoBit).unwrap(), plain, "{rows} × {cols}");
        }
    }
}

#[test]
fn the_documented_bits_are_the_ones_in_memory() {
    // Row 1, column 2: number 4 · 1 + 2 of a panel's first block; columns 6 and 10 share it.
    let w = TernaryMatrix::pack(2, 12, Scales::Tensor(1.0), |row, out| {
        out.fill(0);
        if row == 1 {
            (out[2], out[6], out[10]) = (1, 2, 2);
        }
    });
    let tight = w.unwrap().in_layout(Layout::Tight).unwrap();
    let bits = u64::from_le_bytes(tight.codes()[..8].try_into().unwrap());
    assert_eq!(bits >> 30 & 31, 1 + 3 * 2 + 9 * 2);
    assert_eq!(bits & ((1 << 40) - 1), 25 << 30);
    // Rows past the edge hold weights 0, whose code is 1.
    assert_eq!(tight.codes()[5] & 31, 1 + 3 + 9);
}

#[test]
fn any_bytes_are_codes_from_0_to_3() {
    let bytes: Vec<u8> = (0..2 * 40).map(|i| (i * 151 % 251) as u8).collect();
    let tight = TernaryMatrix::from_tight(16, 24, Bytes::from(bytes), Scales::Tensor(1.0)).unwrap();
    let plain = tight.in_layout(Layout::TwoBit).unwrap();
    for row in 0..16 {
        let (mut found, mut want) = ([9; 24], [9; 24]);
        tight.unpack_row(row, &mut found);
        plain.unpack_row(row, &mut want);
        assert_eq!(found, want);
        assert!(found.iter().all(|&c| c < 4));
    }
}

#[test]
fn matrices_that_do_not_fit_stay_in_two_bits() {
    let fourth = TernaryMatrix::pack(16, 16, Scales::Tensor(1.0), |row, c| {
        c.fill(if row == 9 { 3 } else { 2 });
    });
    assert!(fourth.unwrap().in_layout(Layout::Tight).is_none());
    let groups = GroupScales::from_rows(16, 32, 16, |_, s| s.fill(half::f16::ONE)).unwrap();
    let grouped = TernaryMatrix::pack(16, 32, Scales::Groups(groups), |_, c| c.fill(0)).unwrap();
    assert!(grouped.in_layout(Layout::Tight).is_none());
}

#[test]
fn wrong_sizes_are_refused() {
    let take = |cols, bytes| {
        TernaryMatrix::from_tight(16, cols, Bytes::from(vec![0; bytes]), Scales::Tensor(1.0))
    };
    let expected =
        LayoutError::Size { what: "ternary codes", want: 80, found: 64, rows: 16, cols: 13 };
    assert_eq!(take(13, 64), Err(expected));
    let wide = tight::MOST_COLS + 1;
    assert_eq!(take(wide, 64), Err(LayoutError::TooLarge(16, wide)));
}

#[test]
fn an_empty_matrix_has_no_codes() {
    let none = TernaryMatrix::pack(0, 16, Scales::Tensor(1.0), |_, _| ()).unwrap();
    assert_eq!(none.in_layout(Layout::Tight).unwrap().codes().len(), 0);
}

fn signs(rows: usize, cols: usize, code: impl Fn(usize, usize) -> u8) -> TernaryMatrix {
    let one = |_: usize, s: &mut [half::f16]| s.fill(half::f16::ONE);
    let scales = GroupScales::from_rows(rows, cols, one_bit::GROUP, one).unwrap();
    TernaryMatrix::pack(rows, cols, Scales::Groups(scales), |row, out| {
        out.iter_mut().enumerate().for_each(|(column, c)| *c = code(row, column));
    })
    .unwrap()
}

fn sign(row: usize, column: usize) -> u8 {
    codes(row, column) / 2 * 2
}

#[test]
fn signs_survive_the_one_bit_layout_and_back() {
    for (rows, cols) in [(1, 128), (16, 256), (17, 640), (33, 896), (48, 1024), (5, 2048 + 384)] {
        let plain = signs(rows, cols, sign);
        let single = plain.in_layout(Layout::OneBit).unwrap();
        assert_eq!(single.layout(), Layout::OneBit);
        assert_eq!(single.codes().len(), rows.div_ceil(16) * 16 * cols / 8);
        for row in 0..rows {
            let mut found = vec![9; cols];
            single.unpack_row(row, &mut found);
            let expected: Vec<u8> = (0..cols).map(|column| sign(row, column)).collect();
            assert_eq!(found, expected, "row {row} of {rows} × {cols}");
        }
        assert_eq!(single.in_layout(Layout::TwoBit).unwrap(), plain, "{rows} × {cols}");
        let tight = plain.in_layout(Layout::Tight).unwrap();
        assert_eq!(tight.in_layout(Layout::OneBit).unwrap(), single, "{rows} × {cols}");
        assert_eq!(single.in_layout(Layout::Tight).unwrap(), tight, "{rows} × {cols}");
    }
}

#[test]
fn the_documented_signs_are_the_ones_in_memory() {
    // 1024 columns and 256: the spans have 32 and 8 blocks.
    let w = signs(3, 1280, |row, column| {
        2 * u8::from(row == 2 && [5, 3 * 128 + 9, 1024 + 7 * 32 + 30].contains(&column))
    });
    let single = w.in_layout(Layout::OneBit).unwrap();
    let mut expected = vec![0; 40 * 64];
    expected[64 + 4 * 2 + 1] = 1;
    expected[2 * 64 + 4 * 2 + 1] = 1 << 3;
    expected[(32 + 7) * 64 + 4 * 2 + 2] = 1 << 7;
    assert_eq!(single.codes()[..], expected);
}

#[test]
fn matrices_with_zeros_or_other_groups_do_not_take_one_bit() {
    let zero = signs(20, 256, |row, column| if (row, column) == (19, 200) { 1 } else { 2 });
    assert!(zero.in_layout(Layout::OneBit).is_none());
    let fourth = signs(20, 256, |row, column| if (row, column) == (19, 200) { 3 } else { 2 });
    assert!(fourth.in_layout(Layout::OneBit).is_none());
    let one_scale = TernaryMatrix::pack(16, 128, Scales::Tensor(1.0), |_, c| c.fill(2)).unwrap();
    assert!(one_scale.in_layout(Layout::OneBit).is_none());
    let odd = signs(16, 192, |_, _| 2);
    assert!(odd.in_layout(Layout::OneBit).is_none());
    let codes = Bytes::from(vec![0; 16 * 128 / 8]);
    let refused = TernaryMatrix::from_one_bit(16, 128, codes, Scales::Tensor(1.0));
    assert_eq!(refused, Err(LayoutError::OneBit { cols: 128, found: 128 }));
}
