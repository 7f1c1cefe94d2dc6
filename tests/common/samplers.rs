//! Random settings of filters, penalties and samplers with a state.

use wrinklefree::decode::{Dry, Mirostat, MirostatVersion, SamplingParams};

/// Returns settings by dice: `below` gives a number below another one. At temperature 0, where `warm` is
/// false, some samplers are off.
pub fn some(mut below: impl FnMut(usize) -> usize, warm: bool) -> SamplingParams {
    let mut one_in_three = || below(3) == 0;
    let off = SamplingParams::default();
    let version = if one_in_three() { MirostatVersion::One } else { MirostatVersion::Two };
    let mirostat = Mirostat { version, target: 2.0, rate: 0.3 };
    SamplingParams {
        typical_p: if warm && one_in_three() { 0.8 } else { off.typical_p },
        top_n_sigma: if one_in_three() { 1.5 } else { off.top_n_sigma },
        xtc_probability: if warm && one_in_three() { 0.5 } else { off.xtc_probability },
        mirostat: (warm && one_in_three()).then_some(mirostat),
        dry: one_in_three().then(|| Dry { breakers: vec![vec![3]], ..Dry::default() }),
        bad_words: if one_in_three() { vec![vec![5], vec![1, 2]] } else { Vec::new() },
        min_tokens: [0, 3, 40][below(3)],
        min_p: [0.0, 0.1, 1.0][below(3)],
        repetition_penalty: [1.0, 1.3][below(2)],
        presence_penalty: [0.0, 1.0, -1e38][below(3)],
        ..off
    }
}
