//! Ternary block formats of GGUF: `weights` consecutive columns share an f16 scale.

use super::{RowOrder, size_in_blocks};
use crate::ternary::expect_bytes;
use crate::ternary::{GroupScales, Layout, LayoutError, Scales, TernaryMatrix, ZERO_CODE};
use half::f16;

/// Description of a ternary block format.
#[derive(Clone, Copy, Debug)]
pub struct TernaryBlockFormat {
    /// Name of the format in GGUF.
    pub name: &'static str,
    /// Number of weights in a block.
    pub weights: usize,
    /// Bytes of a block.
    pub bytes: usize,
    /// Offset of the scale in a block.
    pub(super) scale_at: usize,
    /// Offset of the codes in a block.
    pub(super) codes_at: usize,
    /// Unpacks bytes to `weights` codes.
    pub(super) unpack: fn(&[u8], &mut [u8]),
    /// Packs codes to bytes.
    pub(super) pack: fn(&[u8], &mut [u8]),
    /// Returns true if the format has a code for each weight of a block.
    pub(super) holds: fn(&[u8]) -> bool,
    /// Property of a block of weights that the format cannot hold, for messages.
    pub(in crate::format) lacks: &'static str,
}

impl TernaryBlockFormat {
    /// Bytes of a matrix; `None` if it is too large or its rows are not whole blocks.
    pub fn size(&self, rows: usize, cols: usize) -> Option<usize> {
        size_in_blocks((self.weights, self.bytes), rows, cols)
    }

    fn code_bytes<'a>(&self, block: &'a [u8]) -> &'a [u8] {
        &block[self.codes_at..self.codes_at + self.bytes - 2]
    }

    fn scale(&self, block: &[u8]) -> f16 {
        f16::from_le_bytes([block[self.scale_at], block[self.scale_at + 1]])
    }

    /// Decodes rows of blocks. Where all scales are equal, the matrix gets one scale.
    ///
    /// # Errors
    /// When the byte count does not match the shape or a scale is not finite.
    pub fn decode(
        &self,
        data: &[u8],
        rows: usize,
        cols: usize,
        order: RowOrder,
    ) -> Result<TernaryMatrix, LayoutError> {
        expect_bytes(self.name, data, self.size(rows, cols), rows, cols)?;
        let row_bytes = cols / self.weights * self.bytes;
        let source = |row| {
            let at = order.source(row) * row_bytes;
            data[at..at + row_bytes].chunks_exact(self.bytes)
        };
        let scales = match self.common_scale(data) {
            Some(s) => Scales::Tensor(s.to_f32()),
            None => Scales::Groups(GroupScales::from_rows(
                rows,
                cols,
                self.weights,
                |row, out: &mut [f16]| {
                    for (s, block) in out.iter_mut().zip(source(row)) {
                        *s = self.scale(block);
                    }
                },
            )?),
        };
        let mut matrix = TernaryMatrix::pack(rows, cols, scales, |row, codes| {
            for (c, block) in codes.chunks_exact_mut(self.weights).zip(source(row)) {
                (self.unpack)(self.code_bytes(block), c);
            }
        })?;
        // Half of the memory. Kernels that are faster with two bits get these when a model is loaded.
        if self.has_single_bits() {
            matrix.set_layout(Layout::OneBit);
        }
        Ok(matrix)
    }

    /// Returns true if a weight takes one bit.
    fn has_single_bits(&self) -> bool {
        8 * (self.bytes - 2) == self.weights
    }

    /// Returns true if the format has a code for every weight of a matrix of whole blocks.
    pub(in crate::format) fn has_codes(&self, matrix: &TernaryMatrix) -> bool {
        let mut codes = vec![0; matrix.cols()];
        (0..matrix.rows()).all(|row| {
            matrix.unpack_row(row, &mut codes);
            codes.chunks_exact(self.weights).all(self.holds)
        })
    }

    /// The scale that all blocks share, if they do. A block of zeros may have the scale 0, because
    /// these formats' quantizers scale by the largest |w| of the block.
    fn common_scale(&self, data: &[u8]) -> Option<f16> {
        let mut common = f16::ZERO;
        let mut codes = vec![0; self.weights];
        for block in data.chunks_exact(self.bytes) {
            let scale = self.scale(block);
            if scale.to_bits() == common.to_bits() {
                continue;
            }
            let mut all_zero = |block| {
                (self.unpack)(self.code_bytes(block), &mut codes);
                codes.iter().all(|&c| c == ZERO_CODE)
            };
            if common.to_bits() == 0 {
                // Everything before had the scale 0: it must also have been zero.
                let before =
                    data.chunks_exact(self.bytes).take_while(|b| self.scale(b).to_bits() == 0);
                if !before.into_iter().all(&mut all_zero) {
                    return None;
                }
                common = scale;
            } else if scale.to_bits() != 0 || !all_zero(block) {
                return None;
            }
        }
        Some(common)
    }

    /// Encodes a matrix, with its rows in the same order. Returns `None` if the format cannot hold it:
    /// rows that are not whole blocks, weights without a code, finer or odd groups, or a scale that is not
    /// an f16.
    pub fn encode(&self, matrix: &TernaryMatrix) -> Option<Vec<u8>> {
        let (rows, cols) = (matrix.rows(), matrix.cols());
        let mut out = vec![0; self.size(rows, cols)?];
        let mut codes = vec![0; cols];
        let blocks = cols / self.weights;
        for (n, block) in out.chunks_exact_mut(self.bytes).enumerate() {
            let (row, b) = (n / blocks, n % blocks);
            if b == 0 {
                matrix.unpack_row(row, &mut codes);
            }
            let c = &codes[b * self.weights..(b + 1) * self.weights];
            (self.holds)(c).then_some(())?;
            let scale = match matrix.scales() {
                Scales::Tensor(_) if c.iter().all(|&c| c == ZERO_CODE) => f16::ZERO,
                Scales::Tensor(s) => {
                    let half = f16::from_f32(*s);
                    (half.to_f32().to_bits() == s.to_bits()).then_some(half)?
                }
                Scales::Groups(g) => {
                    g.size().is_multiple_of(self.weights).then_some(())?;
                    g.get(row, b * self.weights / g.size())
                }
            };
            block[self.scale_at..self.scale_at + 2].copy_from_slice(&scale.to_le_bytes());
            let at = self.codes_at;
            (self.pack)(c, &mut block[at..at + self.bytes - 2]);
        }
        Some(out)
    }
}
