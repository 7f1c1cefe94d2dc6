//! Parameters of block diffusion.

use wrinklefree::decode::{Commit, DiffusionParams, Inside, Unmask};

/// Parameters of the tests: token 0 is the mask, and each block is committed clean.
pub fn params(block: usize, sub_block: usize, unmask: Unmask) -> DiffusionParams {
    DiffusionParams {
        block,
        sub_block,
        mask: 0,
        unmask,
        inside: Inside::Bidirectional,
        clean_causal: true,
        shift: true,
        sub_cache: false,
        commit: Commit::Clean,
        suffix: Vec::new(),
        from_prompt: false,
    }
}
