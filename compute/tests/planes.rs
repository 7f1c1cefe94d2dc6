//! int8 matrices in planes: the layout of bits, and errors.

use bytes::Bytes;
use wrinklefree_compute::matrix::{Int8Matrix, Packing, SplitMatrix, SplitParts};
use wrinklefree_compute::ternary::LayoutError;

/// A matrix of 16 rows × 32 columns in two groups, with one value that is not zero.
fn six(row: usize, column: usize, value: i8) -> SplitMatrix {
    SplitMatrix::pack_six(
        (16, 32, 16),
        |r, out| {
            out.fill(0);
            if r == row {
                out[column] = value;
            }
        },
        |r, parts, factors| {
            parts.copy_from_slice(&[r as i8, -(r as i8)]);
            factors.fill(8.0);
        },
    )
    .unwrap()
}

#[test]
fn the_documented_bits_are_the_ones_in_memory() {
    // Row 5, column 27: the second strip's third block, byte 4 · 5 + 3.
    let w = six(5, 27, 0b01_1101);
    let SplitParts { packing, high, low, scales, factors } = w.parts();
    assert_eq!(*packing, Packing::Six);
    assert_eq!((high.len(), low.len()), (4 * 64, 2 * 64));
    // The upper four bits are in the lower halves of the strip's second line, which has its third and
    // fourth block. The two bits below are in bits 4 and 5 of its line.
    assert_eq!(high[3 * 64 + 23], 0b0111);
    assert_eq!(low[64 + 23], 0b01 << 4);
    for plane in [high, low] {
        assert_eq!(plane.iter().filter(|&&byte| byte != 0).count(), 1);
    }
    let want: Vec<u8> = (0..16).chain((0..16).map(|r: i8| -r)).map(|part| part as u8).collect();
    assert_eq!(scales[..], want);
    // Factors are divided by four, because values are shifted up by two bits.
    assert!(factors.as_chunks().0.iter().all(|b| f32::from_le_bytes(*b) == 2.0));
    let mut row = [0f32; 32];
    w.row_f32(5, &mut row);
    assert_eq!((row[27], row[26]), (29.0 * -5.0 * 8.0, 0.0));
}

#[test]
fn four_bits_need_one_plane() {
    let value = |row: usize, column: usize| ((row * 5 + column * 3) % 16) as i8 - 8;
    let w = SplitMatrix::pack_four(
        (17, 40, 32),
        |row, out| (0..).zip(out).for_each(|(column, v)| *v = value(row, column)),
        |row, out| out.copy_from_slice(&[row as f32, 0.5]),
    )
    .unwrap();
    assert!(w.is_exact());
    assert_eq!(w.bytes(), (2 * 3 * 128 + 2 * 2 * 64, 2 * 3 * 128 + 2 * 2 * 64));
    let mut found = [0f32; 40];
    for row in 0..17 {
        w.row_f32(row, &mut found);
        for (column, found) in found.iter().enumerate() {
            let scale = if column < 32 { row as f32 } else { 0.5 };
            assert_eq!(*found, f32::from(value(row, column)) * scale);
        }
    }
}

#[test]
fn planes_hold_as_many_bits_as_values_have() {
    for (bits, want) in [(8, Packing::Split), (7, Packing::Split), (6, Packing::Six)]
        .into_iter()
        .chain([(5, Packing::Six), (4, Packing::Upper), (1, Packing::Upper)])
    {
        let w = Int8Matrix::pack(3, 50, 16, |row, values, scales| {
            let value = |i: usize| ((i * 37 + row * 11) as u8 as i8) >> (8 - bits);
            (0..).zip(values).for_each(|(i, v)| *v = value(i));
            scales.fill(0.75);
        });
        let (whole, split) = (w.as_ref().unwrap(), SplitMatrix::new(w.as_ref().unwrap()));
        assert_eq!(split.parts().packing, want, "{bits} bits");
        let (mut found, mut expected) = ([0f32; 50], [0f32; 50]);
        for row in 0..3 {
            split.row_f32(row, &mut found);
            whole.row_f32(row, &mut expected);
            assert_eq!(found, expected, "{bits} bits");
        }
        let again = SplitMatrix::from_parts((3, 50, 16), split.parts().clone()).unwrap();
        assert_eq!(again, split);
    }
}

#[test]
fn wrong_parts_are_refused() {
    let good = six(0, 0, 1).parts().clone();
    let take = |shape, change: &dyn Fn(&mut SplitParts)| {
        let mut parts = good.clone();
        change(&mut parts);
        SplitMatrix::from_parts(shape, parts).expect_err("a wrong part")
    };
    let shape = (16, 32, 16);
    let size = |what, want, found| LayoutError::Size { what, want, found, rows: 16, cols: 32 };
    let short = |bytes: &mut Bytes| bytes.truncate(bytes.len() - 1);
    for (part, want) in [
        (0, size("upper bits", 256, 255)),
        (1, size("lower bits", 128, 127)),
        (2, size("parts of scales", 32, 31)),
        (3, size("factors of scales", 64, 63)),
    ] {
        let change = |p: &mut SplitParts| {
            short([&mut p.high, &mut p.low, &mut p.scales, &mut p.factors][part]);
        };
        assert_eq!(take(shape, &change), want);
    }
    // Without factors these bytes would have to be floats.
    assert_eq!(take(shape, &|p| p.factors = Bytes::new()), size("int8 scales", 128, 32));
    assert_eq!(take((16, 32, 24), &|_| ()), LayoutError::Group(24, 16));
    let infinite = |p: &mut SplitParts| p.factors = f32::MAX.to_le_bytes().repeat(16).into();
    assert_eq!(take(shape, &infinite), LayoutError::Scale { value: f32::MAX, row: 0, col: 0 });
    let huge = (usize::MAX, 32, 16);
    assert_eq!(take(huge, &|_| ()), LayoutError::TooLarge(usize::MAX, 32));
}
