//! Rotated bases: matrices that were folded with a blockwise Hadamard transform.

/// The rotation of a matrix's inputs: it multiplies x' = H(s ⊙ x) instead of x. H transforms each block
/// of inputs by the normalized Walsh–Hadamard matrix in Sylvester order, which is its own inverse.
#[derive(Clone, Debug, PartialEq)]
pub struct Rotation {
    /// Number of inputs in a block: a power of two that divides the width.
    pub block: usize,
    /// Signs s, each 1 or −1, `[width]`; `None` where all are 1.
    pub signs: Option<Vec<f32>>,
}

impl Rotation {
    /// Returns true if rows of `width` values can be rotated: the blocks and the signs fit them.
    #[must_use]
    pub fn fits(&self, width: usize) -> bool {
        self.block.is_power_of_two()
            && width.is_multiple_of(self.block)
            && self.signs.as_ref().is_none_or(|s| s.len() == width)
    }

    /// Computes out = H(s ⊙ x) of one row, `[width]`. `hadamard` is a kernel: it transforms each block
    /// of a row in place.
    pub fn apply(&self, hadamard: fn(&mut [f32], usize), x: &[f32], out: &mut [f32]) {
        match &self.signs {
            Some(signs) => {
                out.iter_mut().zip(x).zip(signs).for_each(|((out, x), sign)| *out = x * sign)
            }
            None => out.copy_from_slice(x),
        }
        hadamard(out, self.block);
    }

    /// Computes x = s ⊙ H(x) of one row: the inverse of [`Self::apply`], in place.
    pub fn invert(&self, hadamard: fn(&mut [f32], usize), x: &mut [f32]) {
        hadamard(x, self.block);
        if let Some(signs) = &self.signs {
            x.iter_mut().zip(signs).for_each(|(x, sign)| *x *= sign);
        }
    }
}
