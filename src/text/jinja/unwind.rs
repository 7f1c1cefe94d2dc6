//! Finds the blocks that `break` and `continue` leave.
//!
//! minijinja jumps out of `{% with %}`, `{% set %}…{% endset %}`, `{% filter %}` and `{% autoescape %}`
//! without closing them: the loop then pops the frame of the `with` as its own, and panics.

use super::budget::refused;
use minijinja::Error;
use minijinja::machinery::{Instruction, Instructions};
use std::collections::HashMap;

/// A block that is open while its instructions run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Block {
    /// `for`
    Loop,
    /// `with`
    Frame,
    /// A block whose output is kept in a variable or filtered.
    Capture,
    /// `autoescape`
    Escape,
}

/// The blocks that each jump leaves.
pub(super) struct Exits(HashMap<u32, Vec<Block>>);

impl Exits {
    /// Finds them in compiled instructions, whose blocks are properly nested.
    ///
    /// # Errors
    /// When a jump leaves the loop that it belongs to, which the compiler does not produce.
    pub(super) fn of(code: &Instructions<'_>) -> Result<Self, Error> {
        let mut open: Vec<Block> = Vec::new();
        // Number of open blocks before each instruction, and the open ones at each jump.
        let mut depths = Vec::new();
        let mut jumps = Vec::new();
        for at in 0.. {
            depths.push(open.len());
            let Some(instruction) = code.get(at) else { break };
            match instruction {
                Instruction::PushLoop(_) => open.push(Block::Loop),
                Instruction::PushWith => open.push(Block::Frame),
                Instruction::BeginCapture(_) => open.push(Block::Capture),
                Instruction::PushAutoEscape => open.push(Block::Escape),
                Instruction::PopLoopFrame
                | Instruction::PopFrame
                | Instruction::EndCapture
                | Instruction::PopAutoEscape => drop(open.pop()),
                Instruction::Jump(to) if !open.is_empty() => jumps.push((at, *to, open.clone())),
                _ => {}
            }
        }
        let mut exits = HashMap::new();
        for (at, to, mut open) in jumps {
            let depth = depths.get(to as usize).copied().unwrap_or(0);
            let left: Vec<Block> = open.drain(depth.min(open.len())..).rev().collect();
            if left.contains(&Block::Loop) {
                return Err(refused("`break` or `continue` outside of its loop"));
            }
            if !left.is_empty() {
                exits.insert(at, left);
            }
        }
        Ok(Self(exits))
    }

    /// The blocks that the jump at this position leaves, the innermost first.
    pub(super) fn left_by(&self, at: u32) -> &[Block] {
        self.0.get(&at).map_or(&[], Vec::as_slice)
    }
}
