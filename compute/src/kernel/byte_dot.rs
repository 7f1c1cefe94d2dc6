//! Ternary × int8 by instructions that multiply bytes and add the products of each row.

use super::simd::Simd;
use super::ternary::TernaryDot;
use crate::ternary::{BLOCK_BYTES, BLOCK_COLS};

/// Most chains of sums that hide the latency of [`ByteDot::add_quads`].
const CHAINS: usize = 4;

/// Products of four bytes of each row by one instruction, or two.
pub trait ByteDot: Simd {
    /// Most blocks whose products fit a chain of sums.
    const CHUNK: usize;
    /// Prefetch distance in bytes.
    const AHEAD: usize;
    /// Number of chains that hide the latency and fit the registers, by number of activation rows.
    const ROW_CHAINS: [usize; 9];

    /// Loads a block of codes.
    fn block(x: &[u8; BLOCK_BYTES]) -> Self::IntPanel;
    /// Returns a vector of equal bytes.
    fn splat_byte(self, x: u8) -> Self::Ints;
    /// Returns a & b.
    fn and(self, a: Self::Ints, b: Self::Ints) -> Self::Ints;
    /// Shifts 16-bit lanes right by two bits, so a byte may get bits of its neighbor.
    fn right2(self, x: Self::Ints) -> Self::Ints;
    /// Adds the products of bytes, of which those of `w` are not negative, to sums.
    fn add_quads(self, sum: Self::Ints, w: Self::Ints, x: Self::Ints) -> Self::Ints;
    /// Returns each row's sum in 32 bits.
    fn widen(self, sum: Self::Ints) -> Self::Ints;
}

/// Implements [`ByteDot`] by the functions of a module. `unsafe` stands in front of calls, as in
/// [`simd`](super::simd::simd).
macro_rules! byte_dot {
    ($token:ty, $ops:path, chunk: $chunk:expr, ahead: $ahead:expr, chains: $chains:expr $(, $unsafe:tt)?) => {
        impl $crate::kernel::byte_dot::ByteDot for $token {
            const CHUNK: usize = $chunk;
            const AHEAD: usize = $ahead;
            const ROW_CHAINS: [usize; 9] = $chains;

            #[inline(always)]
            fn block(x: &[u8; $crate::ternary::BLOCK_BYTES]) -> Self::IntPanel {
                bytemuck::must_cast(*x)
            }

            $crate::kernel::simd::simd!(@each [$ops] [$($unsafe)?] {
                splat_byte(x: u8) -> Self::Ints;
                and(a: Self::Ints, b: Self::Ints) -> Self::Ints;
                right2(x: Self::Ints) -> Self::Ints;
                add_quads(sum: Self::Ints, w: Self::Ints, x: Self::Ints) -> Self::Ints;
                widen(sum: Self::Ints) -> Self::Ints;
            });
        }
    };
}
pub(super) use byte_dot;

/// Sums of a panel and an activation row, in chains.
pub type Chains<S> = [<S as Simd>::IntPanel; CHAINS];

/// Adds the products of a packed block with 16 activations of each row.
#[inline(always)]
pub fn multiply<S: ByteDot, const N: usize>(
    s: S,
    block: &[u8; BLOCK_BYTES],
    xs: &[&[i8; BLOCK_COLS]; N],
    sums: &mut [Chains<S>; N],
) {
    let (mut codes, mask) = (S::block(block), s.splat_byte(3));
    for field in 0..4 {
        let mut w = codes;
        for w in w.as_mut() {
            *w = s.and(*w, mask);
        }
        for n in 0..N {
            let quads: &[[i8; 4]; 4] = bytemuck::must_cast_ref(xs[n]);
            let x = s.splat_int(bytemuck::must_cast(quads[field]));
            add_quads(s, &mut sums[n][field % S::ROW_CHAINS[N]], &w, x);
        }
        // After the products: otherwise both vectors would be held during them.
        for codes in codes.as_mut() {
            *codes = s.right2(*codes);
        }
    }
}

/// Adds the products of 16 rows × 4 columns with four activations.
#[inline(always)]
pub fn add_quads<S: ByteDot>(s: S, sums: &mut S::IntPanel, w: &S::IntPanel, x: S::Ints) {
    for (sum, w) in sums.as_mut().iter_mut().zip(w.as_ref()) {
        *sum = s.add_quads(*sum, *w, x);
    }
}

/// Returns the sums of all chains of a row in 32 bits.
#[inline(always)]
pub fn widen<S: ByteDot>(s: S, chains: &[S::IntPanel]) -> S::IntPanel {
    let mut exact = s.int_panel(s.splat_int(0));
    for chain in chains {
        for (exact, sum) in exact.as_mut().iter_mut().zip(chain.as_ref()) {
            *exact = s.add_ints(*exact, s.widen(*sum));
        }
    }
    exact
}

impl<S: ByteDot> TernaryDot for S {
    type Block = [i8; BLOCK_COLS];
    const CHUNK: usize = <S as ByteDot>::CHUNK;

    #[inline(always)]
    fn dot<const P: usize, const N: usize>(
        self,
        codes: [&[[u8; BLOCK_BYTES]]; P],
        xs: [&[[i8; BLOCK_COLS]]; N],
    ) -> [[S::IntPanel; N]; P] {
        let blocks = codes[0].len();
        let (mut codes, mut rows) = (codes, xs);
        for codes in &mut codes {
            *codes = &codes[..blocks];
        }
        for row in &mut rows {
            *row = &row[..blocks];
        }
        let zero = self.int_panel(self.splat_int(0));
        let mut sums = [[[zero; CHAINS]; N]; P];
        for b in 0..blocks {
            let mut x: [&[i8; BLOCK_COLS]; N] = [&[0; BLOCK_COLS]; N];
            for n in 0..N {
                x[n] = &rows[n][b];
            }
            for p in 0..P {
                self.prefetch(codes[p][b].as_ptr(), S::AHEAD);
                multiply(self, &codes[p][b], &x, &mut sums[p]);
            }
        }
        let mut exact = [[zero; N]; P];
        for p in 0..P {
            for n in 0..N {
                exact[p][n] = widen(self, &sums[p][n][..S::ROW_CHAINS[N]]);
            }
        }
        exact
    }
}
