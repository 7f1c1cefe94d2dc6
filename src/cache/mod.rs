//! Pages of keys and values. Of a sequence's positions, `committed` ≤ `written` ≤ its pages: what
//! is written past `committed` is a draft, which only the decoder that asked for it may look at and
//! which later passes overwrite.
//!
//! Sequences of a [`Realm`] share whole committed pages ([`KvPool::publish`], [`KvPool::join`]).
//! Nothing is ever written before `committed`, so a shared page never changes.

mod prefix;
mod selection;

pub use crate::kernel::{KvType, PAGE};
pub use prefix::Realm;
pub(crate) use selection::Sighted;
pub use selection::{PageSelection, SelectionError};

use crate::format::Spec;
use crate::kernel::PageLayout;
use crate::mem::AlignedVec;
use prefix::{NodeId, PageTokens, Tree};
use slab::Slab;
use std::sync::atomic::{AtomicU64, Ordering};

/// Handle of a sequence in a [`KvPool`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KvSeq(usize);

/// What a pool keeps of keys and values, and what is read of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KvConfig {
    /// Type of the keys.
    pub keys: KvType,
    /// Type of the values.
    pub values: KvType,
    /// Which pages a row reads.
    pub selection: PageSelection,
}

impl KvConfig {
    /// Keys and values as they were computed, in f32, and all of them read: for comparing.
    pub const EXACT: Self =
        Self { keys: KvType::F32, values: KvType::F32, selection: PageSelection::Dense };
}

impl Default for KvConfig {
    /// bf16, the type that models are published in: half of the memory of f32, and read faster on
    /// every instruction set (`docs/kv-cache.md`). All pages are read.
    fn default() -> Self {
        Self { keys: KvType::Bf16, values: KvType::Bf16, selection: PageSelection::Dense }
    }
}

/// The pages of all sequences.
pub struct KvPool {
    config: KvConfig,
    layout: PageLayout,
    layers: Vec<Layer>,
    pages: usize,
    reads: Reads,
    free: Vec<u32>,
    sequences: Slab<Sequence>,
    tree: Tree,
}

/// One layer's keys and values.
struct Layer {
    /// `[kv_heads][pages]` of [`PageLayout`].
    pages: AlignedVec<u8>,
    /// `[kv_heads][pages][2 · head_dim]`, see [`Kernels::summarize`](crate::kernel::Kernels); none
    /// where nobody looks at them.
    summaries: AlignedVec<f32>,
}

/// How many pages were read, counted by row and KV head.
#[derive(Default)]
struct Reads {
    read: AtomicU64,
    seen: AtomicU64,
}

/// Stands in a table for a page that was given back.
const GONE: u32 = u32::MAX;

#[derive(Default)]
struct Sequence {
    /// Pages in order of position.
    table: Vec<u32>,
    /// The first page that may still be there of those that a window passes.
    passed: usize,
    /// Where it stands in the tree of shared pages, if it shares any.
    place: Option<Place>,
    /// Positions whose keys and values are final.
    committed: usize,
    /// Positions that some pass has written.
    written: usize,
}

#[derive(Clone, Copy)]
struct Place {
    /// Its last shared page, or the root of its realm.
    node: NodeId,
    /// Its shared pages: the first of its table.
    pages: usize,
}

/// The pool has not enough free pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the KV cache is full: {needed} pages of {PAGE} positions needed, {free} free")]
pub struct CacheFull {
    /// Pages asked for.
    pub needed: usize,
    /// Pages that can be had.
    pub free: usize,
}

/// The pool could not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "no memory for a KV cache of {} positions, {bytes} bytes: ask for a shorter context or fewer \
     tokens",
    pages.saturating_mul(PAGE)
)]
pub struct NoMemory {
    /// Pages asked for.
    pub pages: usize,
    /// Bytes that they take.
    pub bytes: usize,
}

impl KvPool {
    /// `pages` pages for a model of this shape. Memory is touched when it is first written.
    ///
    /// # Errors
    /// When there is no memory for them.
    pub fn new(spec: &Spec, pages: usize, config: KvConfig) -> Result<Self, NoMemory> {
        let no_memory = NoMemory { pages, bytes: Self::bytes(spec, pages, &config) };
        // One number less than there are: that one means that a page is gone.
        let last = u32::try_from(pages).map_err(|_| no_memory)?;
        let (layout, summary) = (layout(spec, &config), summary_floats(spec, &config));
        let all = spec.kv_heads.checked_mul(pages);
        let layer = || {
            let (bytes, floats) = (all?.checked_mul(layout.bytes())?, all?.checked_mul(summary)?);
            let pages = AlignedVec::try_zeroed(bytes)?;
            Some(Layer { pages, summaries: AlignedVec::try_zeroed(floats)? })
        };
        let layers = (0..spec.layers).map(|_| layer()).collect::<Option<_>>().ok_or(no_memory)?;
        Ok(Self {
            config,
            layout,
            layers,
            pages,
            reads: Reads::default(),
            free: (0..last).rev().collect(),
            sequences: Slab::new(),
            tree: Tree::default(),
        })
    }

    /// Bytes that `pages` pages take for a model of this shape; the largest number where they are
    /// more than that.
    pub fn bytes(spec: &Spec, pages: usize, config: &KvConfig) -> usize {
        let summary = summary_floats(spec, config) * size_of::<f32>();
        [spec.layers, spec.kv_heads, layout(spec, config).bytes() + summary]
            .into_iter()
            .fold(pages, usize::saturating_mul)
    }

    /// What is kept, and what is read of it.
    pub fn config(&self) -> &KvConfig {
        &self.config
    }

    /// Pages that rows have read so far and pages that they saw, counted by row and KV head.
    pub fn reads(&self) -> (u64, u64) {
        (self.reads.read.load(Ordering::Relaxed), self.reads.seen.load(Ordering::Relaxed))
    }

    /// Pages that hold nothing.
    pub fn free_pages(&self) -> usize {
        self.free.len()
    }

    /// Pages of texts that no open sequence has; they are given up when their room is needed.
    pub fn idle_pages(&self) -> usize {
        self.tree.idle()
    }

    /// All pages.
    pub fn pages(&self) -> usize {
        self.pages
    }

    /// Starts a sequence of its own with room for `positions`.
    ///
    /// # Errors
    /// When there are not enough pages; there is no sequence then.
    pub fn open(&mut self, positions: usize) -> Result<KvSeq, CacheFull> {
        let seq = KvSeq(self.sequences.insert(Sequence::default()));
        self.grow(seq, positions).inspect_err(|_| self.close(seq))?;
        Ok(seq)
    }

    /// Starts a sequence that shares pages with others of its realm, and has those of the longest
    /// known beginning of `tokens`; also returns how many positions that are, all committed.
    ///
    /// Where blocks reach over the end of a page, its keys and values depend on what follows, and
    /// nothing is shared.
    pub fn join(&mut self, realm: &Realm, tokens: &[u32]) -> (KvSeq, usize) {
        let mut sequence = Sequence::default();
        if realm.block > 0 && PAGE.is_multiple_of(realm.block) {
            let mut node = self.tree.enter_realm(realm);
            for page in tokens.as_chunks().0 {
                let Some(next) = self.tree.enter(node, page) else { break };
                sequence.table.push(self.tree.page(next));
                node = next;
            }
            let pages = sequence.table.len();
            sequence.place = Some(Place { node, pages });
            (sequence.committed, sequence.written) = (pages * PAGE, pages * PAGE);
        }
        let known = sequence.committed;
        (KvSeq(self.sequences.insert(sequence)), known)
    }

    /// Whether a sequence can have room for `positions`.
    pub fn has_room(&self, seq: KvSeq, positions: usize) -> bool {
        self.missing(seq, positions).is_ok()
    }

    /// Gives a sequence room for `positions`, if it has not.
    ///
    /// # Errors
    /// When there are not enough pages; nothing is taken then.
    pub fn grow(&mut self, seq: KvSeq, positions: usize) -> Result<(), CacheFull> {
        let missing = self.missing(seq, positions)?;
        while self.free.len() < missing {
            self.free.extend(self.tree.evict());
        }
        let pages = self.free.split_off(self.free.len() - missing);
        self.sequence_mut(seq).table.extend(pages);
        Ok(())
    }

    /// Pages that a sequence still needs for `positions`.
    fn missing(&self, seq: KvSeq, positions: usize) -> Result<usize, CacheFull> {
        let needed = positions.div_ceil(PAGE).saturating_sub(self.sequence(seq).table.len());
        let free = self.free.len() + self.tree.idle();
        if needed > free { Err(CacheFull { needed, free }) } else { Ok(needed) }
    }

    /// Lets others use the whole committed pages of a sequence, whose text begins with `tokens`.
    /// Pages that some other sequence has computed as well are kept once.
    ///
    /// # Panics
    /// When `tokens` are fewer than the committed positions.
    pub fn publish(&mut self, seq: KvSeq, tokens: &[u32]) {
        let sequence = &mut self.sequences[seq.0];
        let Some(place) = &mut sequence.place else { return };
        let pages: &[PageTokens] = tokens[..sequence.committed].as_chunks().0;
        for tokens in &pages[place.pages..] {
            let own = &mut sequence.table[place.pages];
            let node = match self.tree.enter(place.node, tokens) {
                Some(node) => {
                    self.free.push(std::mem::replace(own, self.tree.page(node)));
                    node
                }
                None => self.tree.insert(place.node, tokens, *own),
            };
            *place = Place { node, pages: place.pages + 1 };
        }
    }

    /// Ends a sequence and returns its pages.
    ///
    /// # Panics
    /// When the sequence is not open.
    pub fn close(&mut self, seq: KvSeq) {
        let sequence = self.sequences.remove(seq.0);
        let shared = sequence.place.map_or(0, |place| place.pages);
        self.free.extend(sequence.table[shared..].iter().filter(|&&page| page != GONE));
        if let Some(place) = sequence.place {
            self.tree.leave(place.node);
        }
    }

    /// Positions of `seq` whose keys and values are final.
    pub fn committed(&self, seq: KvSeq) -> usize {
        self.sequence(seq).committed
    }

    /// Positions that `seq` has pages for.
    pub fn capacity(&self, seq: KvSeq) -> usize {
        self.sequence(seq).table.len() * PAGE
    }

    /// Positions of `seq` that have keys and values, final or not.
    pub fn written(&self, seq: KvSeq) -> usize {
        self.sequence(seq).written
    }

    /// Makes the first `positions` of `seq` final, as they were written last.
    ///
    /// # Panics
    /// When not so many are written.
    pub fn commit(&mut self, seq: KvSeq, positions: usize) {
        let sequence = self.sequence_mut(seq);
        let range = sequence.committed..=sequence.written;
        assert!(range.contains(&positions), "what is final has been written, and stays so");
        sequence.committed = positions;
        // Pages that others may want stay.
        if sequence.place.is_none() {
            let passed = self.config.selection.passed(positions);
            let sequence = &mut self.sequences[seq.0];
            let start = passed.start.max(sequence.passed);
            for page in sequence.table.iter_mut().take(passed.end).skip(start) {
                self.free.push(std::mem::replace(page, GONE));
            }
            sequence.passed = passed.end.max(start);
        }
    }

    /// Notes that a pass has written the positions up to `end`.
    pub(crate) fn wrote(&mut self, seq: KvSeq, end: usize) {
        let sequence = self.sequence_mut(seq);
        sequence.written = sequence.written.max(end);
    }

    /// The pages of `seq`, in order of position.
    pub fn table(&self, seq: KvSeq) -> &[u32] {
        &self.sequence(seq).table
    }

    /// A layer's pages, its summaries, and the books that go with them.
    pub(crate) fn layer(&mut self, layer: usize) -> LayerPages<'_> {
        let Self { config, layout, layers, sequences, reads, .. } = self;
        let Layer { pages, summaries } = &mut layers[layer];
        LayerPages { pages, summaries, books: Books { config, layout, sequences, reads } }
    }

    fn sequence(&self, seq: KvSeq) -> &Sequence {
        &self.sequences[seq.0]
    }

    fn sequence_mut(&mut self, seq: KvSeq) -> &mut Sequence {
        &mut self.sequences[seq.0]
    }
}

/// One layer's keys and values, for a pass.
pub(crate) struct LayerPages<'a> {
    /// `[kv_heads][pages]` of [`PageLayout`].
    pub pages: &'a mut [u8],
    /// `[kv_heads][pages][2 · head_dim]`; none where nobody looks at them.
    pub summaries: &'a mut [f32],
    /// What stands where.
    pub books: Books<'a>,
}

/// What stands where, for all sequences.
#[derive(Clone, Copy)]
pub(crate) struct Books<'a> {
    config: &'a KvConfig,
    layout: &'a PageLayout,
    sequences: &'a Slab<Sequence>,
    reads: &'a Reads,
}

impl<'a> Books<'a> {
    /// The pages of `seq`, in order of position.
    pub fn table(&self, seq: KvSeq) -> &'a [u32] {
        &self.sequences[seq.0].table
    }

    /// Positions of `seq` that some earlier pass has written.
    pub fn written(&self, seq: KvSeq) -> usize {
        self.sequences[seq.0].written
    }

    /// How a page is laid out.
    pub fn layout(&self) -> PageLayout {
        *self.layout
    }

    /// Which pages a row reads.
    pub fn selection(&self) -> &'a PageSelection {
        &self.config.selection
    }

    /// Counts pages that were read, and those that could have been, where they may differ.
    pub fn count(&self, read: usize, seen: usize) {
        if self.config.selection == PageSelection::Dense {
            return;
        }
        self.reads.read.fetch_add(read as u64, Ordering::Relaxed);
        self.reads.seen.fetch_add(seen as u64, Ordering::Relaxed);
    }
}

fn layout(spec: &Spec, config: &KvConfig) -> PageLayout {
    PageLayout { head_dim: spec.head_dim, keys: config.keys, values: config.values }
}

/// f32 numbers of a summary.
fn summary_floats(spec: &Spec, config: &KvConfig) -> usize {
    if config.selection.needs_summaries() { 2 * spec.head_dim } else { 0 }
}
