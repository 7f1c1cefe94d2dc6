//! Products with activations that have a scale per row and group of columns.

use super::int8::{int8_equals_scalar, random_int8, random_six};
use super::{Activations, Noise, product, sets, ternary_equals_scalar};
use half::f16;
use wrinklefree_compute::kernel::Kernels;
use wrinklefree_compute::matrix::{GroupScales, Scales, TernaryMatrix};
use wrinklefree_compute::ternary::Layout;

/// The last one has more panels than share a table.
const SHAPES: [(usize, usize); 6] =
    [(1, 1), (17, 33), (48, 161), (31, 512), (33, 1000), (1025, 97)];

fn random_ternary(
    noise: &mut Noise,
    (rows, cols, group): (usize, usize, usize),
    kinds: u64,
) -> TernaryMatrix {
    let scales = GroupScales::from_rows(rows, cols, group, |_, scales| {
        scales.fill_with(|| f16::from_f32(noise.float()));
    });
    TernaryMatrix::pack(rows, cols, Scales::Groups(scales.unwrap()), |_, codes| {
        codes.fill_with(|| noise.below(kinds) as u8);
    })
    .unwrap()
}

fn random_activations(
    noise: &mut Noise,
    batch: usize,
    (cols, columns): (usize, usize),
) -> Activations {
    Activations::new(batch, cols, 1, || noise.next() as i8).with_group_steps(cols, columns, noise)
}

pub fn ternary_products_with_group_steps_equal_scalar() {
    let mut noise = Noise(0x1357_2468_fdb9_eca8);
    for k in sets("ternary with steps of groups") {
        for (rows, cols) in SHAPES {
            for (group, kinds, columns) in
                [(16, 3, 64), (64, 3, 128), (64, 4, 64), (128, 3, 128), (128, 4, 256)]
            {
                let w = random_ternary(&mut noise, (rows, cols, group), kinds);
                let tight = w.in_layout(Layout::Tight);
                for batch in [1, 2, 3, 4, 5, 6, 8, 13, 33, 70] {
                    let x = random_activations(&mut noise, batch, (cols, columns));
                    let what = format!("group {group} codes {kinds} steps of {columns}");
                    for w in std::iter::once(&w).chain(&tight) {
                        ternary_equals_scalar(&k, (w, &x), rows.div_ceil(16) / 3, &what);
                    }
                }
            }
        }
    }
}

pub fn int8_products_with_group_steps_equal_scalar() {
    let mut noise = Noise(0x2468_1357_eca8_fdb9);
    for k in sets("int8 with steps of groups") {
        for (rows, cols) in [(1, 1), (17, 33), (48, 161), (31, 512), (33, 64), (16, 1000)] {
            for (group, columns) in [(16, 128), (32, 128), (64, 64), (128, 256)] {
                let w = random_int8(&mut noise, (rows, cols, group), |noise| noise.next() as i8);
                let six = (group <= 32).then(|| random_six(&mut noise, (rows, cols, group)).0);
                for batch in [1, 2, 3, 4, 6, 9, 17] {
                    let x = random_activations(&mut noise, batch, (cols, columns));
                    int8_equals_scalar(&k, w.view(), &x, "whole");
                    if let Some(six) = &six {
                        int8_equals_scalar(&k, six.view(), &x, "six bits");
                    }
                }
            }
        }
        // One group of weights, as wide as the matrix.
        let w = random_int8(&mut noise, (48, 128, 128), |noise| noise.next() as i8);
        for batch in [1, 20] {
            let x = random_activations(&mut noise, batch, (128, 128));
            int8_equals_scalar(&k, w.view(), &x, "one group");
        }
    }
}

/// The scalar products, which define all others, are those of the numbers that the activations stand
/// for.
pub fn group_steps_scale_their_columns() {
    let (mut noise, rows, cols, batch) = (Noise(0x1122_3344_5566_7788), 20, 300, 3);
    let x = random_activations(&mut noise, batch, (cols, 128));
    let (columns, steps) = x.groups.clone().unwrap();
    let number = |token: usize, col: usize| {
        let step = steps[token * cols.div_ceil(columns) + col / columns] * x.steps[token];
        f64::from(x.values[token * x.stride + col]) * f64::from(step)
    };
    let ternary = random_ternary(&mut noise, (rows, cols, 64), 3);
    let int8 = random_int8(&mut noise, (rows, cols, 32), |noise| noise.next() as i8);
    let k = Kernels::SCALAR;
    let mut row = vec![0.0; cols];
    let mut check = |got: &[u32], row_f32: &dyn Fn(usize, &mut [f32])| {
        for r in 0..rows {
            row_f32(r, &mut row);
            for token in 0..batch {
                let products =
                    row.iter().enumerate().map(|(c, w)| f64::from(*w) * number(token, c));
                let (want, size) =
                    products.fold((0.0, 0.0), |(sum, size), p| (sum + p, size + p.abs()));
                let got = f64::from(f32::from_bits(got[token * (rows + 5) + r]));
                assert!((got - want).abs() <= 1e-6 * size, "[{token}][{r}]: {got} for {want}");
            }
        }
    };
    let got = product(batch, rows, 0, |p, y, s| k.ternary(&ternary, p, &x.view(), y, s));
    check(&got, &|r, out| ternary.row_f32(r, out));
    let got = product(batch, rows, 0, |p, y, s| (k.int8)(int8.view(), p, &x.view(), y, s));
    check(&got, &|r, out| int8.row_f32(r, out));
}
