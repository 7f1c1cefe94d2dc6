//! Cached prefixes as bytes, so that a shell can keep them in a file.

use super::prefix::{Namespace, NodeId, PageTokens};
use super::states::StateShape;
use super::{CacheFull, KvPool, KvSeq, Layer, PAGE};
use std::ops::Range;

/// Error: a cached prefix could not be saved or restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SavedError {
    /// The bytes are not those of the tokens' whole pages and of the recurrent states after them.
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
    /// The pages before the given ones are not cached any more.
    #[error("the prompt cache does not have the pages before the saved ones")]
    Unknown,
    /// All recurrent states that the prompt cache keeps are worth more.
    #[error("the prompt cache has no room for another recurrent state: erase a slot first")]
    NoState,
}

/// Keys and values of the first positions of a text, and its recurrent states.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SavedPrefix {
    /// Number of positions: whole pages.
    pub positions: usize,
    /// Positions after which recurrent states are kept, of a model that has any.
    pub states: Vec<usize>,
    /// Page by page and layer by layer: keys and values of all heads as the pool stores them, then the
    /// summaries if there are any. After the last page all recurrent states, in f32.
    pub bytes: Vec<u8>,
}

impl KvPool {
    /// Returns the cached pages that `tokens` begin with, and the recurrent states that are kept on the way. A
    /// model with such states continues only there, so its pages end with the last ones.
    pub fn save(&self, namespace: &Namespace, tokens: &[u32]) -> SavedPrefix {
        let mut states = self.continuations(namespace, tokens);
        let positions = states.last().copied().unwrap_or(0);
        let mut bytes = self.save_pages(namespace, tokens, 0..positions / PAGE).unwrap_or_default();
        states.retain(|&end| {
            let saved = self.save_states(namespace, &tokens[..end]);
            saved.inspect(|saved| bytes.extend(saved)).is_some()
        });
        SavedPrefix { positions, states, bytes }
    }

    /// Returns some of the first pages of `tokens`; `None` if the cache does not have all pages up to them.
    pub fn save_pages(
        &self,
        namespace: &Namespace,
        tokens: &[u32],
        pages: Range<usize>,
    ) -> Option<Vec<u8>> {
        let nodes = self.tree.nodes_of(namespace, tokens.as_chunks().0);
        let nodes = nodes.get(pages)?;
        let mut bytes = Vec::with_capacity(nodes.len() * self.page_bytes());
        for &node in nodes {
            self.read_page(self.tree.page(node), &mut bytes);
        }
        Some(bytes)
    }

    /// Returns the recurrent states at the end of `tokens`, in f32; `None` if none are kept there.
    pub fn save_states(&self, namespace: &Namespace, tokens: &[u32]) -> Option<Vec<u8>> {
        let node = self.last_node(namespace, tokens)?;
        let floats = self.states.as_ref()?.kept_at(&self.tree, node)?;
        let mut bytes = vec![0; size_of_val(floats)];
        for (bytes, float) in bytes.as_chunks_mut().0.iter_mut().zip(floats) {
            *bytes = float.to_le_bytes();
        }
        Some(bytes)
    }

    /// Caches the whole pages of `tokens` and recurrent states on the way, as [`save`](Self::save) returned
    /// them for the same model and configuration. Returns the number of positions.
    ///
    /// # Errors
    /// [`SavedError`] if there are other bytes than those of these pages and states, or the pool has no room.
    pub fn restore(
        &mut self,
        namespace: &Namespace,
        tokens: &[u32],
        SavedPrefix { states, bytes, .. }: &SavedPrefix,
    ) -> Result<usize, SavedError> {
        let pages = tokens.len() / PAGE;
        let each = self.state_shape().as_ref().map_or(0, StateShape::snapshot_bytes);
        let of_states = states.len().saturating_mul(each);
        let expected = pages.saturating_mul(self.page_bytes()).saturating_add(of_states);
        if bytes.len() != expected {
            return Err(SavedError::Size { pages, expected, found: bytes.len() });
        }
        let (of_pages, of_states) = bytes.split_at(bytes.len() - of_states);
        self.restore_pages(namespace, &tokens[..pages * PAGE], 0, of_pages)?;
        // The next prompt probably continues from the last one, which must find room.
        let states = states.iter().zip(of_states.chunks_exact(each.max(1))).rev();
        for (index, (&end, state)) in states.enumerate() {
            let tokens = tokens.get(..end).filter(|tokens| tokens.len() % PAGE == 0);
            match self.restore_states(namespace, tokens.ok_or(SavedError::Unknown)?, state) {
                Err(SavedError::NoState) if index > 0 => break,
                restored => restored?,
            }
        }
        Ok(pages * PAGE)
    }

    /// Caches the whole pages of `tokens` from page `first` on, whose keys and values are `bytes` as
    /// [`save_pages`](Self::save_pages) returned them.
    ///
    /// # Errors
    /// [`SavedError`] if the bytes have another length, the cache lacks pages before `first`, or the pool
    /// has no room.
    pub fn restore_pages(
        &mut self,
        namespace: &Namespace,
        tokens: &[u32],
        first: usize,
        bytes: &[u8],
    ) -> Result<(), SavedError> {
        let pages: &[PageTokens] = tokens.as_chunks().0;
        let (given, page_bytes) = (pages.len().saturating_sub(first), self.page_bytes());
        let expected = given.saturating_mul(page_bytes);
        if bytes.len() != expected {
            return Err(SavedError::Size { pages: given, expected, found: bytes.len() });
        }
        if !namespace.shares_pages() {
            return Ok(());
        }
        let (mut node, known) = self.tree.enter_path(namespace, pages);
        let fresh = match self.take_pages(pages.len() - known) {
            Ok(fresh) if known >= first => fresh,
            taken => {
                self.tree.release(node);
                self.free.extend(taken.as_deref().unwrap_or_default());
                return Err(taken.map_or_else(SavedError::from, |_| SavedError::Unknown));
            }
        };
        for (index, page) in (known..).zip(fresh) {
            self.write_page(page, &bytes[(index - first) * page_bytes..][..page_bytes]);
            node = self.tree.insert(node, &pages[index], page);
        }
        self.tree.release(node);
        Ok(())
    }

    /// Keeps recurrent states at the end of `tokens`, as [`save_states`](Self::save_states) returned them.
    ///
    /// # Errors
    /// [`SavedError`] if the bytes have another length, the cache lacks pages of `tokens`, or all states
    /// that it keeps are worth more.
    pub fn restore_states(
        &mut self,
        namespace: &Namespace,
        tokens: &[u32],
        bytes: &[u8],
    ) -> Result<(), SavedError> {
        let expected = self.state_shape().as_ref().map_or(0, StateShape::snapshot_bytes);
        if bytes.len() != expected {
            return Err(SavedError::Size { pages: 0, expected, found: bytes.len() });
        }
        let node = self.last_node(namespace, tokens).ok_or(SavedError::Unknown)?;
        let Self { states: Some(states), tree, .. } = self else { return Ok(()) };
        states.restore(tree, node, tokens.len() / PAGE, bytes).ok_or(SavedError::NoState)
    }

    /// Returns the node of the last whole page of `tokens`, if the cache has all of them.
    fn last_node(&self, namespace: &Namespace, tokens: &[u32]) -> Option<NodeId> {
        let pages = tokens.as_chunks().0;
        let nodes = self.tree.nodes_of(namespace, pages);
        nodes.last().copied().filter(|_| nodes.len() == pages.len())
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
        let pages = self.pages;
        for index in known..end {
            let table = self.table(seq);
            let (from, to) = (table[index % known], table[index]);
            for layer in &mut self.layers {
                let keys = [from, to].map(|page| layer.key_ranges(pages, page));
                let summaries = [from, to].map(|page| layer.summary_ranges(pages, page));
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

    fn read_page(&self, page: u32, bytes: &mut Vec<u8>) {
        for layer in &self.layers {
            for range in layer.key_ranges(self.pages, page) {
                bytes.extend_from_slice(&layer.pages[range]);
            }
            for range in layer.summary_ranges(self.pages, page) {
                let floats = &layer.summaries[range];
                bytes.extend(floats.iter().flat_map(|float| float.to_le_bytes()));
            }
        }
    }

    fn write_page(&mut self, page: u32, mut bytes: &[u8]) {
        let pages = self.pages;
        for layer in &mut self.layers {
            for range in layer.key_ranges(pages, page) {
                let (own, rest) = bytes.split_at(layer.layout.bytes());
                layer.pages[range].copy_from_slice(own);
                bytes = rest;
            }
            for range in layer.summary_ranges(pages, page) {
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
    /// Number of heads in a pool of so many pages.
    fn heads(&self, pages: usize) -> usize {
        self.pages.len() / (pages * self.layout.bytes()).max(1)
    }

    /// Places of a page's keys and values, one for each head.
    fn key_ranges(&self, pages: usize, page: u32) -> impl Iterator<Item = Range<usize>> + use<> {
        ranges(self.heads(pages), pages, self.layout.bytes(), page)
    }

    /// Places of a page's summaries, one for each head.
    fn summary_ranges(
        &self,
        pages: usize,
        page: u32,
    ) -> impl Iterator<Item = Range<usize>> + use<> {
        let heads = self.heads(pages);
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
