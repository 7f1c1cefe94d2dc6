//! Ternary × int8 by instructions that multiply bytes and add the products of each row.

use super::byte_ops::{ByteOps, add_quads};
use super::simd::Simd;
use super::ternary::TernaryDot;
use crate::ternary::{BLOCK_BYTES, BLOCK_COLS};

/// Most chains of sums that hide the latency of [`ByteDot::add_quads`].
const CHAINS: usize = 4;

/// Products of four bytes of each row by one instruction, or two.
pub trait ByteDot: ByteOps {
    /// Most blocks whose products fit a chain of sums.
    const CHUNK: usize;
    /// Prefetch distance in bytes.
    const AHEAD: usize;
    /// Number of chains that hide the latency and fit the registers, by number of activation rows.
    const ROW_CHAINS: [usize; 9];
}

/// Implements [`ByteDot`] and [`ByteOps`] by the functions of a module. `unsafe` stands in front of calls, as in
/// [`simd`](super::simd::simd).
macro_rules! byte_dot {
    ($token:ty, $ops:path, chunk: $chunk:expr, ahead: $ahead:expr, chains: $chains:expr $(, $unsafe:tt)?) => {
        impl $crate::kernel::byte_dot::ByteDot for $token {
            const CHUNK: usize = $chunk;
            const AHEAD: usize = $ahead;
            const ROW_CHAINS: [usize; 9] = $chains;
        }

        $crate::kernel::byte_ops::byte_ops!($token, $ops $(, $unsafe)?);
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
