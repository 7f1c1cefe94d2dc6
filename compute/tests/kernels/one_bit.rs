//! Products of matrices in the one-bit layout.

use super::{Activations, Noise, product, sets, ternary_equals_scalar};
use half::f16;
use wrinklefree_compute::kernel::Kernels;
use wrinklefree_compute::matrix::{GroupScales, Scales, TernaryMatrix};
use wrinklefree_compute::ternary::{Layout, one_bit::GROUP};

/// Rows and columns: spans of all sizes, alone and one after the other. The last but one has more panels
/// than share a table.
const SHAPES: [(usize, usize); 9] = [
    (1, 128),
    (17, 256),
    (31, 512),
    (48, 384),
    (33, 1024),
    (16, 1920),
    (37, 2048 + 640),
    (2065, 128),
    (64, 4096),
];

fn signs(
    noise: &mut Noise,
    (rows, cols): (usize, usize),
    mut code: impl FnMut(&mut Noise) -> u8,
) -> TernaryMatrix {
    let scales = GroupScales::from_rows(rows, cols, GROUP, |_, scales| {
        scales.fill_with(|| f16::from_f32(noise.float()));
    });
    TernaryMatrix::pack(rows, cols, Scales::Groups(scales.unwrap()), |_, codes| {
        codes.fill_with(|| code(noise));
    })
    .unwrap()
}

/// The one-bit layout has the products of the two-bit layout, bit for bit.
pub fn one_bit_products_equal_scalar() {
    let mut noise = Noise(0x0f1e_2d3c_4b5a_6978);
    for (rows, cols) in SHAPES {
        let plain = signs(&mut noise, (rows, cols), |noise| 2 * noise.below(2) as u8);
        let w = plain.in_layout(Layout::OneBit).unwrap();
        for (batch, planes) in [(1, 1), (2, 1), (3, 1), (4, 1), (5, 1), (6, 1), (7, 1), (8, 1)]
            .into_iter()
            .chain([(13, 1), (24, 1), (33, 1), (70, 1), (1, 2), (2, 2), (3, 2), (16, 2)])
        {
            let x = Activations::new(batch * planes, cols, planes, || noise.next() as i8);
            let scalar = |w: &TernaryMatrix| {
                product(batch, rows, 0, |p, y, s| Kernels::SCALAR.ternary(w, p, &x.view(), y, s))
            };
            assert!(scalar(&w) == scalar(&plain), "{rows}×{cols}, batch {batch}×{planes}");
            for k in sets("one bit") {
                for from in [0, rows.div_ceil(16) / 2] {
                    ternary_equals_scalar(&k, (&w, &x), from, "one bit");
                }
            }
        }
        for (batch, columns) in [(1, 128), (2, 256), (9, 128), (40, 128)] {
            let x = Activations::new(batch, cols, 1, || noise.next() as i8);
            let x = x.with_group_steps(cols, columns, &mut noise);
            for k in sets("one bit with steps of groups") {
                ternary_equals_scalar(&k, (&w, &x), 0, "one bit, steps");
            }
        }
    }
}

pub fn one_bit_products_do_not_overflow_at_the_extremes() {
    let mut noise = Noise(0x1029_3847_5665_7483);
    for code in [0, 2] {
        for value in [-128i8, 127] {
            let w =
                signs(&mut noise, (16, 4096 + 896), |_| code).in_layout(Layout::OneBit).unwrap();
            for batch in [1, 2, 3, 4, 8, 70] {
                let x = Activations::new(batch, w.cols(), 1, || value);
                for k in sets("one-bit extremes") {
                    ternary_equals_scalar(&k, (&w, &x), 0, "one-bit extremes");
                }
            }
        }
    }
}
