//! Ternary products of batches of every width.

use super::*;

/// Batches from a few rows to whole tiles and beyond, with enough panels for tables, and with bytes that
/// packing never writes.
pub fn every_width_equals_scalar() {
    let (mut noise, rows, cols) = (Noise(0x7766_5544_3322_1101), 67 * 16 + 5, 203);
    for group in [None, Some(64), Some(128)] {
        let scales = match group {
            None => Scales::Tensor(0.61),
            Some(size) => group_scales(rows, cols, size, &mut noise),
        };
        let w = TernaryMatrix::pack(rows, cols, scales, |_, codes| {
            codes.fill_with(|| noise.below(3) as u8);
        });
        let w = w.unwrap();
        let tight = w.in_layout(Layout::Tight).unwrap();
        let stray = |positions: &mut dyn Iterator<Item = usize>| {
            let mut bytes = tight.codes().to_vec();
            positions.for_each(|at| bytes[at] = 255);
            TernaryMatrix::from_tight(rows, cols, bytes.into(), tight.scales().clone()).unwrap()
        };
        let last = tight.codes().len() - 1;
        let forms = [
            ("two bits", &w),
            ("tight", &tight),
            ("tight, the last numbers stray", &stray(&mut [last].into_iter())),
            ("tight, stray numbers everywhere", &stray(&mut (0..=last).step_by(7))),
        ];
        every_batch(cols, &forms, &mut noise);
    }
}

fn group_scales(rows: usize, cols: usize, size: usize, noise: &mut Noise) -> Scales {
    let scales = GroupScales::from_rows(rows, cols, size, |_, s| {
        s.fill_with(|| f16::from_f32(noise.float()));
    });
    Scales::Groups(scales.unwrap())
}

fn every_batch(cols: usize, forms: &[(&str, &TernaryMatrix)], noise: &mut Noise) {
    for batch in (4..=36).chain([40, 46, 48, 54, 60, 64]) {
        let x = Activations::new(batch, cols, 1, || noise.next() as i8);
        for k in sets("widths") {
            for (form, w) in forms {
                ternary_equals_scalar(&k, (w, &x), 0, form);
            }
        }
    }
}

/// Batches, matrices and rows that are so large that kernels split all three into blocks.
pub fn large_products_equal_scalar() {
    let mut noise = Noise(0x1212_3434_5656_7878);
    let (rows, cols) = (21 * 16 + 5, 1700);
    for group in [None, Some(128)] {
        let scales = match group {
            None => Scales::Tensor(0.7),
            Some(size) => group_scales(rows, cols, size, &mut noise),
        };
        let w = TernaryMatrix::pack(rows, cols, scales, |_, codes| {
            codes.fill_with(|| noise.below(3) as u8);
        });
        let w = w.unwrap();
        let tight = w.in_layout(Layout::Tight);
        for batch in [32, 33, 62, 530] {
            let x = Activations::new(batch, cols, 1, || noise.next() as i8);
            for k in sets("large products") {
                ternary_equals_scalar(&k, (&w, &x), 0, "large");
                if let Some(w) = &tight {
                    ternary_equals_scalar(&k, (w, &x), 0, "large, tight");
                }
            }
        }
    }
    let w = Int8Matrix::quantize_rows(rows, cols, |_, row| row.fill_with(|| noise.float()));
    let (w, x) = (w.unwrap(), Activations::new(530, cols, 2, || noise.next() as i8));
    for k in sets("large products") {
        let run =
            |k: &Kernels| product(265, rows, 0, |p, y, s| (k.int8)(w.view(), p, &x.view(), y, s));
        assert_eq!(run(&k), run(&Kernels::SCALAR), "{:?} int8", k.isa());
    }
}
