//! Two-bit blocks: a weight is (code − 1) · scale, with an f16 scale. The code 3 (+2) is valid.

use super::TernaryBlockFormat;

/// 256 weights in 66 bytes, the scale last. Each half of 32 bytes holds 128 weights: bits 2n and
/// 2n + 1 of byte m are element 32·n + m.
pub const TQ2_0: TernaryBlockFormat = TernaryBlockFormat {
    name: "TQ2_0",
    weights: 256,
    bytes: 66,
    scale_at: 64,
    codes_at: 0,
    unpack: |bytes, codes| {
        for (b, c) in bytes.chunks_exact(32).zip(codes.chunks_exact_mut(128)) {
            for (n, c) in c.chunks_exact_mut(32).enumerate() {
                for (c, b) in c.iter_mut().zip(b) {
                    *c = b >> (2 * n) & 3;
                }
            }
        }
    },
    pack: |codes, bytes| {
        for (b, c) in bytes.chunks_exact_mut(32).zip(codes.chunks_exact(128)) {
            for (n, c) in c.chunks_exact(32).enumerate() {
                for (c, b) in c.iter().zip(&mut *b) {
                    *b |= c << (2 * n);
                }
            }
        }
    },
    holds: |_| true,
    lacks: "",
};

const fn in_order(name: &'static str, weights: usize) -> TernaryBlockFormat {
    TernaryBlockFormat {
        name,
        weights,
        bytes: 2 + weights / 4,
        scale_at: 0,
        codes_at: 2,
        unpack: |bytes, codes| {
            // Four copies of the byte, each shifted so that its code is in the low bits.
            for (b, c) in bytes.iter().zip(codes.chunks_exact_mut(4)) {
                let b = u32::from(*b);
                let spread = (b | b << 6 | b << 12 | b << 18) & 0x0303_0303;
                c.copy_from_slice(&spread.to_le_bytes());
            }
        },
        pack: |codes, bytes| {
            for (b, c) in bytes.iter_mut().zip(codes.chunks_exact(4)) {
                *b = c[0] | c[1] << 2 | c[2] << 4 | c[3] << 6;
            }
        },
        holds: |_| true,
        lacks: "",
    }
}

/// 64 weights in 18 bytes, the scale first, then the codes in order from the low bits up.
pub const Q2_0: TernaryBlockFormat = in_order("Q2_0", 64);

/// 128 weights in 34 bytes, in the layout of [`Q2_0`]. Older files also call it `Q2_0`.
pub const PQ2_0: TernaryBlockFormat = in_order("PQ2_0", 128);
