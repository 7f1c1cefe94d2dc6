//! Random changes to the bytes of a body.

use fastrand::Rng;

/// Changes bytes of one body in four: flips, cuts, copies and nests.
pub fn bytes(mut body: Vec<u8>, rng: &mut Rng) -> Vec<u8> {
    if rng.u32(..4) > 0 || body.is_empty() {
        return body;
    }
    for _ in 0..rng.u32(1..4) {
        let place = rng.usize(..body.len().max(1)).min(body.len().saturating_sub(1));
        match rng.u32(..6) {
            0 => body.iter_mut().skip(place).take(1).for_each(|byte| *byte = rng.u8(..)),
            1 => body.truncate(place),
            2 => body.extend_from_within(place..),
            3 => body.splice(place..place, b"[".repeat(rng.usize(..200))).for_each(drop),
            4 => body.splice(place..place, *b"\\ud800").for_each(drop),
            _ => drop(body.splice(place..place, *b"\"a\":1,")),
        }
    }
    body
}
