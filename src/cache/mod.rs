//! Paged KV cache.

use crate::format::Spec;

pub use crate::kernel::PAGE;

/// Handle of a sequence in a [`KvPool`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SeqId(pub u32);

/// All pages of all sequences.
pub struct KvPool {}

/// The pool has no free page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the KV cache is full: {needed} more pages of {PAGE} positions needed, {free} free")]
pub struct CacheFull {
    /// Pages asked for.
    pub needed: usize,
    /// Pages free.
    pub free: usize,
}

impl KvPool {
    /// `pages` pages for a model of this shape.
    pub fn new(_spec: &Spec, _pages: usize) -> Self {
        todo!()
    }
    /// Bytes that `pages` pages take for a model of this shape.
    pub fn bytes(_spec: &Spec, _pages: usize) -> usize {
        todo!()
    }
    /// Starts a sequence with room for `positions`.
    ///
    /// # Errors
    /// When there are not enough free pages.
    pub fn open(&mut self, _positions: usize) -> Result<SeqId, CacheFull> {
        todo!()
    }
    /// Ends a sequence and returns its pages.
    pub fn close(&mut self, _seq: SeqId) {
        todo!()
    }
}
