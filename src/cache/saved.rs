//! Cached prefixes as bytes, so that a shell can keep them in a file.

use super::prefix::Namespace;
use super::{CacheFull, KvPool, KvSeq, Layer, PAGE};
use std::ops::Range;

/// Error: a cached prefix could not be saved or restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SavedError {
    /// The model keeps recurrent states, which pages do not hold.
    #[error("the prompt cache of a model with linear attention cannot be saved")]
    Recurrent,
    /// The bytes are not those of the tokens' whole pages.
    #[error(
        "the saved prompt cache has {found} bytes, but {pages} pages of this model have {expected}"
    )]
    Size {
        /// Number of whole pages of the tokens.
        pages: usize,
        /// Size of these pages in bytes.
        expected: usize,
        /// Size of the given bytes.
        found: usize,
    },
    /// The pool has no room for the pages.
    #[error(transparent)]
    Full(#[from] CacheFull),
}

/// Keys and values of the first positions of a text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SavedPrefix {
    /// Number of positions: whole pages.
    pub positions: usize,
    /// Page by page and layer by layer: keys and values of all heads as the pool stores them, then the
    /// summaries if there are any.
    pub bytes: Vec<u8>,
}

impl KvPool {
    /// Returns the cached pages that `tokens` begin with.
    ///
    /// # Errors
    /// [`SavedError::Recurrent`].
    pub fn save(
        &mut self,
        namespace: &Namespace,
        tokens: &[u32],
    ) -> Result<SavedPrefix, SavedError> {
        if self.states.is_some() {
            return Err(SavedError::Recurrent);
        }
        let (seq, positions) = self.open_shared(namespace, tokens);
        let mut bytes = Vec::with_capacity(positions / PAGE * self.page_bytes());
        for &page in self.table(seq) {
            for layer in &self.layers {
                for range in layer.key_ranges(self.pages, self.layout.bytes(), page) {
                    bytes.extend_from_slice(&layer.pages[range]);
                }
                for range in layer.summary_ranges(self.pages, self.layout.bytes(), page) {
                    let floats = &layer.summaries[range];
                    bytes.extend(floats.iter().flat_map(|float| float.to_le_bytes()));
                }
            }
        }
        self.close(seq);
        Ok(SavedPrefix { positions, bytes })
    }

    /// Caches the whole pages of `tokens`, whose keys and values are `bytes` as [`save`](Self::save)
    /// returned them for the same model and configuration. Returns the number of positions.
    ///
    /// # Errors
    /// [`SavedError`] if the bytes have another length, or the pool has no room.
    pub fn restore(
        &mut self,
        namespace: &Namespace,
        tokens: &[u32],
        bytes: &[u8],
    ) -> Result<usize, SavedError> {
        if self.states.is_some() {
            return Err(SavedError::Recurrent);
        }
        let (pages, page_bytes) = (tokens.len() / PAGE, self.page_bytes());
        let expected = pages.saturating_mul(page_bytes);
        if bytes.len() != expected {
            return Err(SavedError::Size { pages, expected, found: bytes.len() });
        }
        let (positions, tokens) = (pages * PAGE, &tokens[..pages * PAGE]);
        let (seq, cached) = self.open_shared(namespace, tokens);
        if let Err(error) = self.grow(seq, positions) {
            self.close(seq);
            return Err(error.into());
        }
        for index in cached / PAGE..pages {
            let page = self.table(seq)[index];
            self.write_page(page, &bytes[index * page_bytes..][..page_bytes]);
        }
        self.mark_written(seq, positions);
        self.commit(seq, positions);
        self.publish(seq, tokens);
        self.close(seq);
        Ok(positions)
    }

    /// Fills a sequence with copies of its written pages, up to the last whole page of `positions`: keys
    /// and values that take as long to read as those of a text. Recurrent states stay. It measures long
    /// contexts without computing them.
    ///
    /// # Panics
    /// If the sequence has no whole written page, or no room.
    pub fn repeat_pages(&mut self, seq: KvSeq, positions: usize) {
        let (known, end) = (self.written(seq) / PAGE, positions / PAGE);
        assert!(known > 0, "a page to copy");
        let (pages, size) = (self.pages, self.layout.bytes());
        for index in known..end {
            let table = self.table(seq);
            let (from, to) = (table[index % known], table[index]);
            for layer in &mut self.layers {
                let keys = [from, to].map(|page| layer.key_ranges(pages, size, page));
                let summaries = [from, to].map(|page| layer.summary_ranges(pages, size, page));
                let [from, to] = keys;
                for (from, to) in from.zip(to) {
                    layer.pages.copy_within(from, to.start);
                }
                let [from, to] = summaries;
                for (from, to) in from.zip(to) {
                    layer.summaries.copy_within(from, to.start);
                }
            }
        }
        self.mark_written(seq, end * PAGE);
    }

    /// Drops the cached pages that `tokens` begin with, unless other sequences use them. Returns the
    /// number of positions that are dropped.
    pub fn forget(&mut self, namespace: &Namespace, tokens: &[u32]) -> usize {
        let mut dropped = 0;
        for (page, snapshot) in self.tree.forget(namespace, tokens.as_chunks().0) {
            dropped += PAGE;
            self.free.push(page);
            if let (Some(states), Some(id)) = (&mut self.states, snapshot) {
                states.free_snapshot(id);
            }
        }
        dropped
    }

    /// Bytes of a page in all layers.
    fn page_bytes(&self) -> usize {
        let layer = |layer: &Layer| {
            let pages = self.pages.max(1);
            layer.pages.len() / pages + layer.summaries.len() / pages * size_of::<f32>()
        };
        self.layers.iter().map(layer).sum()
    }

    fn write_page(&mut self, page: u32, mut bytes: &[u8]) {
        let (pages, size) = (self.pages, self.layout.bytes());
        for layer in &mut self.layers {
            for range in layer.key_ranges(pages, size, page) {
                let (own, rest) = bytes.split_at(size);
                layer.pages[range].copy_from_slice(own);
                bytes = rest;
            }
            for range in layer.summary_ranges(pages, size, page) {
                for float in &mut layer.summaries[range] {
                    let (own, rest) = bytes.split_at(size_of::<f32>());
                    *float = f32::from_le_bytes(own.try_into().expect("four bytes"));
                    bytes = rest;
                }
            }
        }
    }
}

impl Layer {
    /// Number of heads in a pool of so many pages of `size` bytes.
    fn heads(&self, pages: usize, size: usize) -> usize {
        self.pages.len() / (pages * size).max(1)
    }

    /// Places of a page's keys and values, one for each head.
    fn key_ranges(
        &self,
        pages: usize,
        size: usize,
        page: u32,
    ) -> impl Iterator<Item = Range<usize>> + use<> {
        ranges(self.heads(pages, size), pages, size, page)
    }

    /// Places of a page's summaries, one for each head.
    fn summary_ranges(
        &self,
        pages: usize,
        size: usize,
        page: u32,
    ) -> impl Iterator<Item = Range<usize>> + use<> {
        let heads = self.heads(pages, size);
        ranges(heads, pages, self.summaries.len() / (heads * pages).max(1), page)
    }
}

fn ranges(
    heads: usize,
    pages: usize,
    size: usize,
    page: u32,
) -> impl Iterator<Item = Range<usize>> {
    (0..heads).map(move |head| {
        let start = (head * pages + page as usize) * size;
        start..start + size
    })
}
