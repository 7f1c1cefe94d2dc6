//! Products of int8 matrices, whole and in two planes.

use super::{Activations, Noise, SHAPES, product, sets};
use wrinklefree_compute::kernel::Kernels;
use wrinklefree_compute::matrix::{Int8Matrix, Int8View, PARTS, SplitMatrix};

/// Numbers of tokens and planes: every width of a tile and some beyond. There are few for large matrices,
/// where the scalar definition is slow.
fn int8_batches(weights: usize) -> impl Iterator<Item = (usize, usize)> {
    let batches: &[usize] = match weights {
        ..20_000 => &[1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 17, 33],
        _ => &[1, 3, 4, 7],
    };
    batches.iter().flat_map(|&batch| [(batch, 1), (batch, 2)])
}

pub fn int8_products_equal_scalar() {
    let mut noise = Noise(0xfeed_beef_1357_9bdf);
    for k in sets("int8") {
        for (rows, cols) in SHAPES {
            for group in [cols, 16, 32] {
                for extreme in [None, Some((-128i8, -128i8)), Some((-128, 127)), Some((127, 127))] {
                    let weight = |noise: &mut Noise| extreme.map_or(noise.next() as i8, |e| e.0);
                    let w = random_int8(&mut noise, (rows, cols, group), weight);
                    for (batch, planes) in int8_batches(rows * cols) {
                        let x = Activations::new(batch * planes, cols, planes, || {
                            extreme.map_or(noise.next() as i8, |e| e.1)
                        });
                        int8_equals_scalar(&k, w.view(), &x, "whole");
                    }
                }
            }
        }
    }
}

pub(super) fn random_int8(
    noise: &mut Noise,
    (rows, cols, group): (usize, usize, usize),
    weight: impl Fn(&mut Noise) -> i8,
) -> Int8Matrix {
    Int8Matrix::pack(rows, cols, group, |_, values, scales| {
        values.fill_with(|| weight(noise));
        scales.fill_with(|| noise.float());
    })
    .unwrap()
}

/// Compares the product of a set with the scalar one, and returns it.
pub(super) fn int8_equals_scalar(
    k: &Kernels,
    w: Int8View<'_>,
    x: &Activations,
    what: &str,
) -> Vec<u32> {
    let batch = x.view().tokens();
    let run = |k: &Kernels| product(batch, w.rows(), 0, |p, y, s| (k.int8)(w, p, &x.view(), y, s));
    let want = run(&Kernels::SCALAR);
    let (rows, cols, group) = (w.rows(), w.cols(), w.group());
    let planes = x.view().planes;
    let what = format!("{:?} {what} {rows}×{cols} group {group} batch {batch}×{planes}", k.isa());
    assert_eq!(run(k), want, "{what}");
    want
}

/// Both planes give the same as the int8 matrix, and the upper plane gives the same on every set.
pub fn split_products_equal_int8() {
    let mut noise = Noise(0x0123_4567_89ab_cdef);
    for k in sets("split int8") {
        for (rows, cols) in SHAPES {
            // Eight bits, six, and four, which need no lower plane.
            for (group, bits) in [(cols, 8), (16, 8), (cols, 6), (16, 6), (32, 4)] {
                let w = random_int8(&mut noise, (rows, cols, group), |noise| {
                    noise.next() as i8 >> (8 - bits)
                });
                let split = SplitMatrix::new(&w);
                assert_eq!(SplitMatrix::new(&split.joined()), split);
                for (batch, planes) in int8_batches(rows * cols) {
                    let x = Activations::new(batch * planes, cols, planes, || noise.next() as i8);
                    let whole = int8_equals_scalar(&k, w.view(), &x, "whole");
                    assert_eq!(int8_equals_scalar(&k, split.view(), &x, "split"), whole);
                    let upper = int8_equals_scalar(&k, split.upper(), &x, "upper");
                    assert!(bits > 4 || upper == whole);
                }
            }
        }
    }
}

/// Scales made of parts and factors equal their products, and the planes hold the packed values.
pub fn products_with_parts_of_scales_equal_int8() {
    let mut noise = Noise(0xabad_1dea_0000_0001);
    for k in sets("parts of scales") {
        for (rows, cols) in SHAPES {
            for group in [16, 32] {
                let (w, values) = random_six(&mut noise, (rows, cols, group));
                let mut row = vec![0; cols];
                for (r, values) in values.chunks(cols).enumerate() {
                    w.view().unpack_row(r, &mut row);
                    assert!(row.iter().zip(values).all(|(found, packed)| *found == packed << 2));
                }
                let joined = w.joined();
                for (batch, planes) in int8_batches(rows * cols) {
                    let x = Activations::new(batch * planes, cols, planes, || noise.next() as i8);
                    let whole = int8_equals_scalar(&k, joined.view(), &x, "joined");
                    assert_eq!(int8_equals_scalar(&k, w.view(), &x, "six bits"), whole);
                    int8_equals_scalar(&k, w.upper(), &x, "upper of six bits");
                }
            }
        }
    }
}

/// Returns a matrix of six-bit noise and its values, `[rows][cols]`.
pub(super) fn random_six(
    noise: &mut Noise,
    shape: (usize, usize, usize),
) -> (SplitMatrix, Vec<i8>) {
    let (rows, cols, group) = shape;
    let values: Vec<i8> = (0..rows * cols).map(|_| noise.next() as i8 >> 2).collect();
    let groups = cols.div_ceil(group);
    let parts: Vec<i8> = (0..rows * groups).map(|_| noise.next() as i8).collect();
    let spans = groups.div_ceil(PARTS);
    let factors: Vec<f32> = (0..rows * spans).map(|_| noise.float()).collect();
    let w = SplitMatrix::pack_six(
        shape,
        |row, out| out.copy_from_slice(&values[row * cols..][..cols]),
        |row, of_groups, of_spans| {
            of_groups.copy_from_slice(&parts[row * groups..][..groups]);
            of_spans.copy_from_slice(&factors[row * spans..][..spans]);
        },
    );
    (w.unwrap(), values)
}

pub fn int8_products_are_exact_beyond_32_bits() {
    let (rows, cols) = (17, 20_011);
    let mut noise = Noise(0x2468_ace0_1357_9bdf);
    for k in sets("wide int8") {
        // All products have the same sign, all are positive, or every second one is.
        for kind in 0..4 {
            let signs: Vec<bool> = (0..cols).map(|_| kind < 2 || noise.below(2) == 0).collect();
            let w = Int8Matrix::pack(rows, cols, cols, |_, values, scales| {
                let extreme = |plus| if plus == (kind != 1) { 127 } else { -128 };
                values.iter_mut().zip(&signs).for_each(|(v, &plus)| *v = extreme(plus));
                scales[0] = 1.0;
            });
            let w = w.unwrap();
            for (batch, planes) in [(1, 1), (1, 2), (2, 2), (7, 2), (9, 2)] {
                let mut at = 0;
                let x = Activations::new(batch * planes, cols, planes, || {
                    at += 1;
                    let plus = if kind == 3 { at % 2 == 0 } else { signs[(at - 1) % cols] };
                    if plus { 127 } else { -128 }
                });
                let run = |k: &Kernels| {
                    product(batch, rows, 0, |p, y, s| (k.int8)(w.view(), p, &x.view(), y, s))
                };
                assert!(run(&k) == run(&Kernels::SCALAR), "{:?} {kind} {batch}×{planes}", k.isa());
            }
        }
    }
}
