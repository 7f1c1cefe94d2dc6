//! Base-3 blocks: a byte holds five trits as the fraction ⌈v·256/3⁵⌉/256. Multiplying by 3ⁿ modulo
//! 256 brings trit n to the top (trit 0 is the most significant).
//!
//! The bytes form stages of 32, 16 and 8, the largest first. Trit n of byte m in a stage of s bytes
//! is element s·n + m of the stage. The last bytes hold four trits each.

use super::TernaryBlockFormat;

/// 256 weights in 54 bytes: 48 bytes of five trits, 4 bytes of four, the scale.
pub const TQ1_0: TernaryBlockFormat = TernaryBlockFormat {
    name: "TQ1_0",
    weights: 256,
    bytes: 54,
    scale_at: 52,
    codes_at: 0,
    unpack: |b, c| unpack(b, c, &[32, 16], 4),
    pack: |c, b| pack(c, b, &[32, 16], 4),
    holds: |codes| codes.iter().all(|&c| c <= 2),
    lacks: "a weight of +2",
};

/// 128 weights in 28 bytes: 24 bytes of five trits, 2 bytes of four, the scale.
pub const PTQ1_0: TernaryBlockFormat = TernaryBlockFormat {
    name: "PTQ1_0",
    weights: 128,
    bytes: 28,
    scale_at: 26,
    codes_at: 0,
    unpack: |b, c| unpack(b, c, &[16, 8], 2),
    pack: |c, b| pack(c, b, &[16, 8], 2),
    holds: |codes| codes.iter().all(|&c| c <= 2),
    lacks: "a weight of +2",
};

const POWERS: [u8; 5] = [1, 3, 9, 27, 81];

/// Splits bytes and codes into stages: `(bytes, trits in a byte)`.
fn stages(fives: &[usize; 2], fours: usize) -> [(usize, usize); 3] {
    [(fives[0], 5), (fives[1], 5), (fours, 4)]
}

fn unpack(mut bytes: &[u8], mut codes: &mut [u8], fives: &[usize; 2], fours: usize) {
    for (len, trits) in stages(fives, fours) {
        let (stage, rest) = bytes.split_at(len);
        let (out, rest_codes) = codes.split_at_mut(len * trits);
        for (out, power) in out.chunks_exact_mut(len).zip(POWERS) {
            for (c, b) in out.iter_mut().zip(stage) {
                *c = ((u16::from(b.wrapping_mul(power)) * 3) >> 8) as u8;
            }
        }
        (bytes, codes) = (rest, rest_codes);
    }
}

fn pack(mut codes: &[u8], mut bytes: &mut [u8], fives: &[usize; 2], fours: usize) {
    for (len, trits) in stages(fives, fours) {
        let (stage, rest) = bytes.split_at_mut(len);
        let (input, rest_codes) = codes.split_at(len * trits);
        for (m, byte) in stage.iter_mut().enumerate() {
            let v = (0..5).fold(0u16, |v, n| {
                v * 3 + if n < trits { u16::from(input[n * len + m]) } else { 0 }
            });
            *byte = (v * 256).div_ceil(243) as u8;
        }
        (bytes, codes) = (rest, rest_codes);
    }
}
