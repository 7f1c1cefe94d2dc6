//! The paged KV cache: keys and values of all sequences, in pages of [`PAGE`] positions.
//!
//! A sequence has `committed` ≤ `written` positions, and at least `written` positions of pages. Keys
//! and values past `committed` belong to a draft: only the decoder that asked for them reads them, and
//! later passes overwrite them.
//!
//! Sequences of one [`Namespace`] share whole committed pages ([`KvPool::publish`],
//! [`KvPool::open_shared`]). Nothing is written before `committed`, so a shared page never changes.

mod prefix;
mod saved;
mod selection;
mod states;
mod worth;

pub use crate::kernel::{KvType, PAGE};
pub use prefix::{Namespace, SaltHash};
pub use saved::{SavedError, SavedPrefix};
pub(crate) use selection::QueryContext;
pub use selection::{PageSelection, SelectionError};
pub(crate) use states::LayerStates;
pub(crate) use states::delta_shape;
pub use states::{StateLimits, StateShape};
pub use worth::StatePlace;

use crate::format::{MixerKind, Spec};
use crate::kernel::PageLayout;
use crate::mem::LazyVec;
use prefix::{NodeId, PageTokens, Tree};
use slab::Slab;
use states::States;
use std::sync::atomic::{AtomicU64, Ordering};

/// Handle of a sequence in a [`KvPool`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KvSeq(usize);

/// Storage types of keys and values, the rule for the pages that attention reads, and numbers of
/// recurrent states.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KvConfig {
    /// Type of the keys.
    pub keys: KvType,
    /// Type of the values.
    pub values: KvType,
    /// Rule for the pages that a row reads.
    pub selection: PageSelection,
    /// Numbers of recurrent states, for models with linear attention.
    pub states: StateLimits,
    /// Layers of a drafter next to the model ([`Model::draft_layers`](crate::model::Model::draft_layers)).
    pub drafter: Option<DraftLayers>,
}

/// Shape of the layers of a drafter, whose keys and values are kept in the pages of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DraftLayers {
    /// Number of layers.
    pub layers: usize,
    /// Number of key and value heads in a layer.
    pub kv_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
}

impl DraftLayers {
    /// The layers of a block for multi-token prediction, which are like those of the model.
    fn of_mtp(spec: &Spec) -> Option<Self> {
        let Spec { mtp_layers: layers, kv_heads, head_dim, .. } = *spec;
        (layers > 0).then_some(Self { layers, kv_heads, head_dim })
    }
}

impl KvConfig {
    /// Keys and values in f32, as they were computed, with dense attention: the reference for tests.
    pub const EXACT: Self = Self {
        keys: KvType::F32,
        values: KvType::F32,
        selection: PageSelection::Dense,
        states: StateLimits { sequences: 16, snapshots: 8 },
        drafter: None,
    };

    /// The layers that draft: those of a drafter, or of the model's own block.
    fn draft_layers(&self, spec: &Spec) -> Option<DraftLayers> {
        self.drafter.or_else(|| DraftLayers::of_mtp(spec))
    }
}

impl Default for KvConfig {
    /// bf16 with dense attention. bf16 is the type that models are published in. It takes half of
    /// the memory of f32 and is read faster on every instruction set (`docs/kv-cache.md`).
    fn default() -> Self {
        Self { keys: KvType::Bf16, values: KvType::Bf16, ..Self::EXACT }
    }
}

/// The KV pages of all sequences.
///
/// ```
/// use wrinklefree::cache::{KvConfig, KvPool, Namespace, PAGE, SaltHash};
/// # use wrinklefree::format::{Activation, Architecture, Rope, Spec};
/// # let spec = Spec {
/// #     architecture: Architecture::BitNet,
/// #     vocab_size: 40,
/// #     hidden_size: 64,
/// #     intermediate_size: 96,
/// #     layers: 2,
/// #     heads: 4,
/// #     kv_heads: 2,
/// #     head_dim: 16,
/// #     context_length: 256,
/// #     norm_eps: 1e-5,
/// #     activation: Activation::Relu2,
/// #     rope: Rope { theta: 1e4, scaling: None },
/// #     rotary_dim: None,
/// #     attention_gate: false,
/// #     linear_attention: None,
/// #     mixers: Vec::new(),
/// #     factors: None,
/// #     mtp_layers: 0,
/// # };
/// // `spec` is the shape of a model.
/// let mut pool = KvPool::new(&spec, 4, KvConfig::default())?;
/// let seq = pool.open(PAGE + 1)?;
/// assert_eq!((pool.capacity(seq), pool.free_pages()), (2 * PAGE, 2));
/// pool.close(seq);
/// assert_eq!(pool.free_pages(), 4);
///
/// // A sequence that shares pages starts with the longest prefix that is cached: nothing yet.
/// let namespace = Namespace { salt: SaltHash::new(""), block: 1 };
/// let (seq, cached) = pool.open_shared(&namespace, &[7; 2 * PAGE]);
/// assert_eq!((cached, pool.capacity(seq)), (0, 0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct KvPool {
    config: KvConfig,
    /// Layers of the model, then those that draft.
    layers: Vec<Layer>,
    /// Recurrent states; `None` for models without linear attention.
    states: Option<States>,
    /// Number of layers of the model; the others draft.
    model_layers: usize,
    pages: usize,
    reads: Reads,
    free: Vec<u32>,
    sequences: Slab<Sequence>,
    tree: Tree,
}

/// Cache of one layer.
struct Layer {
    /// Layout of a page of one KV head.
    layout: PageLayout,
    /// Keys and values, `[kv_heads][pages]` of [`PageLayout`]; empty with linear attention.
    pages: LazyVec<u8>,
    /// `[kv_heads][pages][2 · head_dim]`, see [`Kernels::summarize`](crate::kernel::Kernels). Empty
    /// unless the page selection needs summaries.
    summaries: LazyVec<f32>,
    /// Recurrent states, `[key_heads][slots][state_floats]`; empty without linear attention.
    states: LazyVec<f32>,
}

/// Number of pages that were read, and of those that were visible, counted by row and KV head.
#[derive(Default)]
struct Reads {
    read: AtomicU64,
    visible: AtomicU64,
}

/// Table entry of a page that has been returned to the pool.
const FREED: u32 = u32::MAX;

#[derive(Default)]
struct Sequence {
    /// Pages in order of position.
    table: Vec<u32>,
    /// First page that the sliding window has not freed; pages of the sinks come before it.
    window_start: usize,
    /// Its shared pages; `None` for a sequence that shares nothing.
    shared: Option<SharedPrefix>,
    /// Positions whose keys and values are final.
    committed: usize,
    /// Positions that some pass has written.
    written: usize,
    /// Its recurrent states, for models that have any.
    slot: usize,
    /// Number of its request ([`KvPool::use_states`]); 0 before.
    request: u64,
}

/// The pages that a sequence has in the prefix tree.
#[derive(Clone, Copy)]
struct SharedPrefix {
    /// Node of the last shared page, or the root of the namespace.
    node: NodeId,
    /// Number of shared pages: the first ones of the sequence's table.
    pages: usize,
}

/// Error: the pool has too few free pages or recurrent states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CacheFull {
    /// Too few pages.
    #[error("the KV cache is full: {needed} pages of {PAGE} positions are needed, {free} are free")]
    Pages {
        /// Number of pages that were requested.
        needed: usize,
        /// Number of pages that are free, or idle and can be evicted.
        free: usize,
    },
    /// All recurrent states are in use.
    #[error("the cache has recurrent states for {0} sequences, and all are in use")]
    States(usize),
}

/// Error: memory for the pool could not be allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "not enough memory for a KV cache of {} positions ({bytes} bytes): ask for a shorter context or \
     fewer tokens",
    pages.saturating_mul(PAGE)
)]
pub struct NoMemory {
    /// Number of pages that were requested.
    pub pages: usize,
    /// Size of these pages in bytes.
    pub bytes: usize,
}

impl KvPool {
    /// Allocates `pages` pages of [`PAGE`] positions for a model of this shape. The system provides
    /// the memory when it is first written.
    ///
    /// # Errors
    /// [`NoMemory`] if the allocation fails.
    pub fn new(spec: &Spec, pages: usize, config: KvConfig) -> Result<Self, NoMemory> {
        let states = StateShape::of(spec).map(|shape| States::new(shape, config.states));
        let bytes = Self::bytes(spec, pages, &config);
        let bytes = bytes.saturating_add(Self::state_bytes(spec, &config));
        let no_memory = NoMemory { pages, bytes };
        // The largest number is taken: it is `FREED`.
        let last = u32::try_from(pages).map_err(|_| no_memory)?;
        let attends = |kv_heads: usize, head_dim: usize| {
            let all = kv_heads.checked_mul(pages)?;
            let layout = layout(head_dim, &config);
            let (bytes, floats) = (layout.bytes(), summary_floats(head_dim, &config));
            let pages = LazyVec::try_zeroed(all.checked_mul(bytes)?)?;
            let summaries = LazyVec::try_zeroed(all.checked_mul(floats)?)?;
            Some(Layer { layout, pages, summaries, states: LazyVec::default() })
        };
        let layer = |i: usize| {
            if spec.mixer(i) == MixerKind::Linear {
                let shape = states.as_ref()?.shape;
                let each = shape.delta.state_floats().checked_mul(shape.key_heads)?;
                let floats = each.checked_mul(config.states.sequences)?;
                let (layout, pages) = (layout(spec.head_dim, &config), LazyVec::default());
                let (summaries, states) = (LazyVec::default(), LazyVec::try_zeroed(floats)?);
                return Some(Layer { layout, pages, summaries, states });
            }
            attends(spec.kv_heads, spec.head_dim)
        };
        let drafting = config.draft_layers(spec);
        let drafting = drafting.into_iter().flat_map(|d| std::iter::repeat_n(d, d.layers));
        let drafting = drafting.map(|d| attends(d.kv_heads, d.head_dim));
        let all_layers = (0..spec.layers).map(layer).chain(drafting);
        let layers = all_layers.collect::<Option<_>>().ok_or(no_memory)?;
        Ok(Self {
            model_layers: spec.layers,
            config,
            layers,
            states,
            pages,
            reads: Reads::default(),
            free: (0..last).rev().collect(),
            sequences: Slab::new(),
            tree: Tree::default(),
        })
    }

    /// Returns the size in bytes of `pages` pages for a model of this shape; saturates.
    pub fn bytes(spec: &Spec, pages: usize, config: &KvConfig) -> usize {
        let linear = StateShape::of(spec).map_or(0, |shape| shape.layers);
        let Spec { kv_heads, head_dim, .. } = *spec;
        let model = DraftLayers { layers: spec.layers - linear, kv_heads, head_dim };
        let all = [Some(model), config.draft_layers(spec)].into_iter().flatten();
        let bytes = all.map(|DraftLayers { layers, kv_heads, head_dim }| {
            let summary = summary_floats(head_dim, config) * size_of::<f32>();
            let each = [layers, kv_heads, layout(head_dim, config).bytes() + summary];
            each.into_iter().fold(pages, usize::saturating_mul)
        });
        bytes.fold(0, usize::saturating_add)
    }

    /// Returns the configuration of this pool.
    pub fn config(&self) -> &KvConfig {
        &self.config
    }

    /// Returns the number of pages that rows have read so far, and the number that were visible to
    /// them, both counted by row and KV head. Counted only where a page selection leaves pages out.
    pub fn reads(&self) -> (u64, u64) {
        (self.reads.read.load(Ordering::Relaxed), self.reads.visible.load(Ordering::Relaxed))
    }

    /// Returns the number of pages that hold nothing.
    pub fn free_pages(&self) -> usize {
        self.free.len()
    }

    /// Returns the number of cached pages that no open sequence uses. They are evicted when pages are
    /// needed.
    pub fn idle_pages(&self) -> usize {
        self.tree.idle()
    }

    /// Returns the number of pages of the pool.
    pub fn pages(&self) -> usize {
        self.pages
    }

    /// Opens a sequence that shares nothing, with pages for `positions` positions.
    ///
    /// # Errors
    /// [`CacheFull`] if there are too few pages or recurrent states; no sequence is opened then.
    pub fn open(&mut self, positions: usize) -> Result<KvSeq, CacheFull> {
        let slot = self.open_states(None)?;
        let seq = KvSeq(self.sequences.insert(Sequence { slot, ..Sequence::default() }));
        self.grow(seq, positions).inspect_err(|_| self.close(seq))?;
        Ok(seq)
    }

    /// Opens a sequence that shares pages with others of its namespace. It starts with the pages of
    /// the longest cached prefix of `tokens`. Also returns the length of this prefix in positions, all
    /// of them committed.
    ///
    /// Nothing is shared where blocks reach over the end of a page. A model with recurrent states
    /// continues at the last page that has a snapshot of them ([`Self::keep_states`]).
    ///
    /// # Panics
    /// If all recurrent states are in use.
    pub fn open_shared(&mut self, namespace: &Namespace, tokens: &[u32]) -> (KvSeq, usize) {
        let (mut sequence, mut snapshot) = (Sequence::default(), None);
        if namespace.shares_pages() {
            let mut node = self.tree.root(namespace);
            let mut pages: &[PageTokens] = tokens.as_chunks().0;
            if self.states.is_some() {
                pages = &pages[..self.tree.pages_to_snapshot(node, pages)];
            }
            for page in pages {
                let Some(next) = self.tree.enter(node, page) else { break };
                sequence.table.push(self.tree.page(next));
                node = next;
            }
            let pages = sequence.table.len();
            snapshot = *self.tree.snapshot(node);
            sequence.shared = Some(SharedPrefix { node, pages });
            (sequence.committed, sequence.written) = (pages * PAGE, pages * PAGE);
        }
        let cached = sequence.committed;
        sequence.slot = self.open_states(snapshot).expect("no more sequences than states");
        (KvSeq(self.sequences.insert(sequence)), cached)
    }

    /// Returns true if [`grow`](Self::grow) to `positions` would succeed.
    pub fn has_room(&self, seq: KvSeq, positions: usize) -> bool {
        self.missing(seq, positions).is_ok()
    }

    /// Adds pages to a sequence until it has room for `positions` positions. Evicts idle pages where
    /// free ones do not suffice.
    ///
    /// # Errors
    /// [`CacheFull`] if there are too few pages; the sequence is unchanged then.
    pub fn grow(&mut self, seq: KvSeq, positions: usize) -> Result<(), CacheFull> {
        let missing = self.missing(seq, positions)?;
        let pages = self.take_pages(missing)?;
        self.clear_drafts(&pages);
        self.sequence_mut(seq).table.extend(pages);
        Ok(())
    }

    /// Takes so many pages, free or idle ones.
    fn take_pages(&mut self, needed: usize) -> Result<Vec<u32>, CacheFull> {
        self.check_free(needed)?;
        while self.free.len() < needed {
            let Some((page, snapshot)) = self.tree.evict() else { break };
            self.free.push(page);
            if let (Some(states), Some(id)) = (&mut self.states, snapshot) {
                states.free_snapshot(id);
            }
        }
        Ok(self.free.split_off(self.free.len() - needed))
    }

    /// Sets the pages of the layers that draft to zeros. They may read positions that they have not
    /// written, and what another sequence has left there must not influence its drafts.
    fn clear_drafts(&mut self, pages: &[u32]) {
        for Layer { pages: all, summaries, layout, .. } in &mut self.layers[self.model_layers..] {
            let bytes = layout.bytes();
            let floats = summaries.len() / (all.len() / bytes).max(1);
            for &page in pages {
                for at in (page as usize..all.len() / bytes).step_by(self.pages) {
                    all[at * bytes..(at + 1) * bytes].fill(0);
                    summaries[at * floats..(at + 1) * floats].fill(0.0);
                }
            }
        }
    }

    /// Number of pages that a sequence still needs for `positions`.
    fn missing(&self, seq: KvSeq, positions: usize) -> Result<usize, CacheFull> {
        let needed = positions.div_ceil(PAGE).saturating_sub(self.sequence(seq).table.len());
        self.check_free(needed).map(|()| needed)
    }

    /// Checks that so many pages are free or idle.
    fn check_free(&self, needed: usize) -> Result<(), CacheFull> {
        let free = self.free.len() + self.tree.idle();
        if needed > free { Err(CacheFull::Pages { needed, free }) } else { Ok(()) }
    }

    /// Inserts the whole committed pages of a sequence into the prefix tree, so that other sequences
    /// can use them. `tokens` is the beginning of the sequence's text. A page that is in the tree
    /// already is kept once.
    ///
    /// # Panics
    /// If `tokens` has fewer tokens than there are committed positions.
    pub fn publish(&mut self, seq: KvSeq, tokens: &[u32]) {
        let sequence = &mut self.sequences[seq.0];
        let Some(shared) = &mut sequence.shared else { return };
        let pages: &[PageTokens] = tokens[..sequence.committed].as_chunks().0;
        for tokens in &pages[shared.pages..] {
            let own = &mut sequence.table[shared.pages];
            let node = match self.tree.enter(shared.node, tokens) {
                Some(node) => {
                    self.free.push(std::mem::replace(own, self.tree.page(node)));
                    node
                }
                None => self.tree.insert(shared.node, tokens, *own),
            };
            *shared = SharedPrefix { node, pages: shared.pages + 1 };
        }
    }

    /// Closes a sequence and returns its pages to the pool. Pages in the prefix tree stay cached.
    ///
    /// # Panics
    /// If the sequence is not open.
    pub fn close(&mut self, seq: KvSeq) {
        let sequence = self.sequences.remove(seq.0);
        let shared = sequence.shared.map_or(0, |shared| shared.pages);
        self.free.extend(sequence.table[shared..].iter().filter(|&&page| page != FREED));
        if let Some(shared) = sequence.shared {
            self.tree.release(shared.node);
        }
        if let Some(states) = &mut self.states {
            states.free_slot(sequence.slot);
        }
    }

    /// Returns the number of positions of `seq` whose keys and values are final.
    pub fn committed(&self, seq: KvSeq) -> usize {
        self.sequence(seq).committed
    }

    /// Returns the number of positions that `seq` has pages for.
    pub fn capacity(&self, seq: KvSeq) -> usize {
        self.sequence(seq).table.len() * PAGE
    }

    /// Returns the number of positions of `seq` that have keys and values, final or not.
    pub fn written(&self, seq: KvSeq) -> usize {
        self.sequence(seq).written
    }

    /// Returns the first position whose row can still read all keys that it attends to: a sliding window
    /// has freed pages before it.
    pub(crate) fn readable_from(&self, seq: KvSeq) -> usize {
        let Sequence { window_start, committed, .. } = self.sequence(seq);
        if *window_start > 0 { *committed } else { 0 }
    }

    /// Makes the first `positions` positions of `seq` final, as they were written last. Frees the
    /// pages that a sliding window will not read again, unless the sequence shares pages.
    ///
    /// # Panics
    /// If fewer positions are written, or more are committed already.
    pub fn commit(&mut self, seq: KvSeq, positions: usize) {
        let sequence = self.sequence_mut(seq);
        let range = sequence.committed..=sequence.written;
        assert!(
            range.contains(&positions),
            "only written positions can be committed, and they stay so"
        );
        sequence.committed = positions;
        // Other sequences may need shared pages.
        if sequence.shared.is_none() {
            let skipped = self.config.selection.pages_outside_window(positions);
            let sequence = &mut self.sequences[seq.0];
            let start = skipped.start.max(sequence.window_start);
            for page in sequence.table.iter_mut().take(skipped.end).skip(start) {
                self.free.push(std::mem::replace(page, FREED));
            }
            sequence.window_start = skipped.end.max(start);
        }
    }

    /// Records that a pass has written the positions up to `end`.
    pub(crate) fn mark_written(&mut self, seq: KvSeq, end: usize) {
        let sequence = self.sequence_mut(seq);
        sequence.written = sequence.written.max(end);
    }

    /// Returns the page numbers of `seq`, in order of position.
    pub fn table(&self, seq: KvSeq) -> &[u32] {
        &self.sequence(seq).table
    }

    /// Returns a layer's pages and summaries, with the page tables of all sequences.
    pub(crate) fn layer(&mut self, layer: usize) -> LayerPages<'_> {
        let Self { config, layers, sequences, reads, .. } = self;
        let Layer { pages, summaries, layout, .. } = &mut layers[layer];
        LayerPages { pages, summaries, tables: PageTables { config, layout, sequences, reads } }
    }

    fn sequence(&self, seq: KvSeq) -> &Sequence {
        &self.sequences[seq.0]
    }

    fn sequence_mut(&mut self, seq: KvSeq) -> &mut Sequence {
        &mut self.sequences[seq.0]
    }
}

/// One layer's keys and values during a pass.
pub(crate) struct LayerPages<'a> {
    /// `[kv_heads][pages]` of [`PageLayout`].
    pub pages: &'a mut [u8],
    /// `[kv_heads][pages][2 · head_dim]`; empty unless the page selection needs summaries.
    pub summaries: &'a mut [f32],
    /// Page tables of all sequences.
    pub tables: PageTables<'a>,
}

/// Page tables of all sequences, and the layout of a layer's pages: the part of the pool that stays readable
/// while a layer's pages are written.
#[derive(Clone, Copy)]
pub(crate) struct PageTables<'a> {
    config: &'a KvConfig,
    layout: &'a PageLayout,
    sequences: &'a Slab<Sequence>,
    reads: &'a Reads,
}

impl<'a> PageTables<'a> {
    /// Page numbers of `seq`, in order of position.
    pub fn table(&self, seq: KvSeq) -> &'a [u32] {
        &self.sequences[seq.0].table
    }

    /// Slot of the recurrent states of `seq`.
    pub fn slot(&self, seq: KvSeq) -> usize {
        self.sequences[seq.0].slot
    }

    /// Number of positions of `seq` that earlier passes have written.
    pub fn written(&self, seq: KvSeq) -> usize {
        self.sequences[seq.0].written
    }

    /// Memory layout of a page.
    pub fn layout(&self) -> PageLayout {
        *self.layout
    }

    /// Rule for the pages that a row reads.
    pub fn selection(&self) -> &'a PageSelection {
        &self.config.selection
    }

    /// Counts pages that were read and pages that were visible, where the two can differ.
    pub fn count_reads(&self, read: usize, visible: usize) {
        if self.config.selection == PageSelection::Dense {
            return;
        }
        self.reads.read.fetch_add(read as u64, Ordering::Relaxed);
        self.reads.visible.fetch_add(visible as u64, Ordering::Relaxed);
    }
}

fn layout(head_dim: usize, config: &KvConfig) -> PageLayout {
    PageLayout { head_dim, keys: config.keys, values: config.values }
}

/// Number of f32 values in the summary of a page.
fn summary_floats(head_dim: usize, config: &KvConfig) -> usize {
    if config.selection.needs_summaries() { 2 * head_dim } else { 0 }
}
