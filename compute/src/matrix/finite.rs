//! Checks of floats while they are loaded. NaN and infinity are refused. Subnormal numbers become zero:
//! they are smaller than 1.2e-38, and on many processors a product with them takes many times as long.

use super::{FloatMatrix, FloatType};
use crate::loader::WeightLoader;
use crate::mem::WeightVec;
use half::bf16;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// A number of a matrix that is NaN or infinite.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NotFinite {
    /// Row of the number.
    pub row: usize,
    /// Column of the number.
    pub col: usize,
    /// The number.
    pub value: f32,
}

impl fmt::Display for NotFinite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in row {}, column {}", self.value, self.row, self.col)
    }
}

/// The kinds of numbers that some floats contain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Kinds {
    not_finite: bool,
    subnormal: bool,
}

impl FloatType {
    /// Returns the kinds of numbers that little-endian elements contain. A subnormal f16 is a normal
    /// f32, in which kernels compute.
    fn kinds(self, bytes: &[u8]) -> Kinds {
        match self {
            Self::F32 => kinds32(bytes),
            Self::F16 => kinds16(bytes, 0x7c00, 0),
            Self::Bf16 => kinds16(bytes, 0x7f80, 0x80),
        }
    }

    /// Sets subnormal elements to zero, with their sign, and returns their number.
    fn flush(self, bytes: &mut [u8]) -> usize {
        let mut flushed = 0;
        match self {
            Self::F32 => {
                for b in bytes.as_chunks_mut::<4>().0 {
                    let subnormal = f32::from_le_bytes(*b).is_subnormal();
                    flushed += usize::from(subnormal);
                    *b = if subnormal { [0, 0, 0, b[3] & 0x80] } else { *b };
                }
            }
            Self::Bf16 => {
                for b in bytes.as_chunks_mut::<2>().0 {
                    let subnormal = bf16::from_le_bytes(*b).to_f32().is_subnormal();
                    flushed += usize::from(subnormal);
                    *b = if subnormal { [0, b[1] & 0x80] } else { *b };
                }
            }
            Self::F16 => {}
        }
        flushed
    }
}

/// As [`FloatType::kinds`], of a 16-bit type. `infinite` are the bits of infinity, and `least` those of
/// the smallest number that is not subnormal. Signed minima and maxima exist on every instruction set.
fn kinds16(bytes: &[u8], infinite: i16, least: i16) -> Kinds {
    let (mut largest, mut smallest) = (0, i16::MAX);
    for b in bytes.as_chunks::<2>().0 {
        let magnitude = i16::from_le_bytes(*b) & i16::MAX;
        largest = largest.max(magnitude);
        // Zero becomes the largest number.
        smallest = smallest.min(magnitude.wrapping_sub(1) & i16::MAX);
    }
    Kinds { not_finite: largest >= infinite, subnormal: smallest < least - 1 }
}

/// As [`kinds16`], of f32.
fn kinds32(bytes: &[u8]) -> Kinds {
    const INFINITE: i32 = 0x7f80_0000;
    const LEAST: i32 = 0x0080_0000;
    let (mut largest, mut smallest) = (0, i32::MAX);
    for b in bytes.as_chunks::<4>().0 {
        let magnitude = i32::from_le_bytes(*b) & i32::MAX;
        largest = largest.max(magnitude);
        smallest = smallest.min(magnitude.wrapping_sub(1) & i32::MAX);
    }
    Kinds { not_finite: largest >= INFINITE, subnormal: smallest < LEAST - 1 }
}

impl FloatMatrix {
    /// Loads the matrix with subnormal numbers set to zero, and returns their number. All workers scan
    /// it, each part when it has been copied. A matrix that may stay is copied only if it has any.
    ///
    /// # Errors
    /// [`NotFinite`] for the first number that is NaN or infinite.
    pub fn relocate_finite(
        &self,
        loader: &mut WeightLoader<'_, '_>,
    ) -> Result<(Self, usize), NotFinite> {
        let (dtype, size) = (self.dtype, self.dtype.size());
        let (bad, subnormal, flushed) =
            (AtomicBool::new(false), AtomicBool::new(false), AtomicUsize::new(0));
        let scan = |part: &[u8]| {
            let kinds = dtype.kinds(part);
            bad.fetch_or(kinds.not_finite, Ordering::Relaxed);
            subnormal.fetch_or(kinds.subnormal, Ordering::Relaxed);
            kinds.subnormal
        };
        let moved = loader.relocate_with(&self.data, size, |part| {
            if scan(part) {
                flushed.fetch_add(dtype.flush(part), Ordering::Relaxed);
            }
        });
        let mut data = moved.unwrap_or_else(|| {
            loader.visit(&self.data, size, |part| {
                scan(part);
            });
            self.data.clone()
        });
        if bad.into_inner() {
            return Err(self.first_not_finite().expect("a part has one"));
        }
        let mut flushed = flushed.into_inner();
        // Without memory for a copy they stay, which only costs time.
        if subnormal.into_inner()
            && flushed == 0
            && let Some(mut copy) = WeightVec::<u8>::try_zeroed(data.len())
        {
            copy.copy_from_slice(&data);
            flushed = dtype.flush(&mut copy);
            data = copy.into_bytes();
        }
        Ok((Self { data, ..*self }, flushed))
    }

    /// Returns the first number that is NaN or infinite.
    pub fn first_not_finite(&self) -> Option<NotFinite> {
        let mut values = vec![0f32; self.cols];
        (0..self.rows).find_map(|row| {
            self.row_f32(row, &mut values);
            let col = values.iter().position(|value| !value.is_finite())?;
            Some(NotFinite { row, col, value: values[col] })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loader::WeightSource;

    /// A source that copies.
    struct Copied;

    impl WeightSource for Copied {
        fn must_copy(&self, _: &[u8]) -> bool {
            true
        }

        fn read(&self, bytes: &[u8], to: &mut [u8]) {
            to.copy_from_slice(bytes);
        }
    }

    fn bytes(dtype: FloatType, values: &[f32]) -> Vec<u8> {
        let write = |v: &f32| match dtype {
            FloatType::F32 => v.to_le_bytes().to_vec(),
            FloatType::F16 => half::f16::from_f32(*v).to_le_bytes().to_vec(),
            FloatType::Bf16 => bf16::from_f32(*v).to_le_bytes().to_vec(),
        };
        values.iter().flat_map(write).collect()
    }

    /// Runs `check` with a loader that leaves bytes where they are, and with one that copies.
    fn by_loaders(mut check: impl FnMut(&mut WeightLoader<'_, '_>)) {
        check(&mut WeightLoader::alone());
        check(&mut WeightLoader::alone_from(&Copied));
    }

    const TYPES: [FloatType; 3] = [FloatType::F32, FloatType::F16, FloatType::Bf16];

    #[test]
    fn every_place_of_a_number_that_is_not_finite_is_found() {
        for dtype in TYPES {
            for (at, value) in
                (0..77).zip([f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY].iter().cycle())
            {
                let mut values = [1.5f32; 77];
                values[at] = *value;
                let w = FloatMatrix::new(7, 11, dtype, bytes(dtype, &values).into()).unwrap();
                by_loaders(|loader| {
                    let error = w.relocate_finite(loader).expect_err("not finite");
                    assert_eq!((error.row, error.col), (at / 11, at % 11));
                    assert_eq!(error.value.is_nan(), value.is_nan());
                    assert!(error.to_string().contains(&format!("row {}", at / 11)), "{error}");
                });
            }
        }
    }

    #[test]
    fn the_largest_and_the_smallest_normal_numbers_stay() {
        for (dtype, most, least) in [
            (FloatType::F32, f32::MAX, f32::MIN_POSITIVE),
            (FloatType::F16, 65504.0, 6e-8),
            (FloatType::Bf16, 3.38e38, f32::MIN_POSITIVE),
        ] {
            let values = [most, -most, least, -least, 0.0, -0.0].repeat(9);
            let w = FloatMatrix::new(6, 9, dtype, bytes(dtype, &values).into()).unwrap();
            by_loaders(|loader| assert_eq!(w.relocate_finite(loader), Ok((w.clone(), 0))));
        }
    }

    #[test]
    fn subnormal_numbers_become_zero_and_are_counted() {
        let tiny = f32::MIN_POSITIVE / 2.0;
        for dtype in [FloatType::F32, FloatType::Bf16] {
            for at in 0..40 {
                let mut values = [1.0f32; 40];
                (values[at], values[39 - at]) = (-tiny, tiny);
                let w = FloatMatrix::new(4, 10, dtype, bytes(dtype, &values).into()).unwrap();
                (values[at], values[39 - at]) = (-0.0, 0.0);
                by_loaders(|loader| {
                    let (found, flushed) = w.relocate_finite(loader).expect("finite");
                    assert_eq!(found.data()[..], bytes(dtype, &values)[..]);
                    assert_eq!(flushed, 2);
                });
            }
        }
    }
}
