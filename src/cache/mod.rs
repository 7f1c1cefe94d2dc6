//! Pages of keys and values. Of a sequence's positions, `committed` ≤ `written` ≤ its pages: what
//! is written past `committed` is a draft, which only the decoder that asked for it may look at and
//! which later passes overwrite.
//!
//! Sequences of a [`Realm`] share whole committed pages ([`KvPool::publish`], [`KvPool::join`]).
//! Nothing is ever written before `committed`, so a shared page never changes.

mod prefix;

pub use crate::kernel::PAGE;
pub use prefix::Realm;

use crate::format::Spec;
use crate::mem::AlignedVec;
use prefix::{NodeId, PageTokens, Tree};
use slab::Slab;

/// Handle of a sequence in a [`KvPool`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KvSeq(usize);

/// The pages of all sequences, f32.
///
/// A layer is `[kv_heads][pages]` of `[keys: head_dim × PAGE | values: PAGE × head_dim]`: keys
/// stand by dimension, so that a kernel scores a page's positions side by side.
pub struct KvPool {
    layers: Vec<AlignedVec<f32>>,
    pages: usize,
    free: Vec<u32>,
    sequences: Slab<Sequence>,
    tree: Tree,
}

#[derive(Default)]
struct Sequence {
    /// Pages in order of position.
    table: Vec<u32>,
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
    pub fn new(spec: &Spec, pages: usize) -> Result<Self, NoMemory> {
        let no_memory = NoMemory { pages, bytes: Self::bytes(spec, pages) };
        let last = u32::try_from(pages).map_err(|_| no_memory)?;
        let floats =
            spec.kv_heads.checked_mul(pages).and_then(|n| n.checked_mul(page_floats(spec)));
        let layer = || AlignedVec::try_zeroed(floats?);
        let layers = (0..spec.layers).map(|_| layer()).collect::<Option<_>>().ok_or(no_memory)?;
        Ok(Self {
            layers,
            pages,
            free: (0..last).rev().collect(),
            sequences: Slab::new(),
            tree: Tree::default(),
        })
    }

    /// Bytes that `pages` pages take for a model of this shape; the largest number where they are
    /// more than that.
    pub fn bytes(spec: &Spec, pages: usize) -> usize {
        [spec.layers, spec.kv_heads, page_floats(spec), size_of::<f32>()]
            .into_iter()
            .fold(pages, usize::saturating_mul)
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
        self.free.extend(&sequence.table[shared..]);
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

    /// A layer's pages, `[kv_heads][pages][page]`, and the page tables that go with them.
    pub(crate) fn layer(&mut self, layer: usize) -> (&mut [f32], Tables<'_>) {
        (&mut self.layers[layer], Tables(&self.sequences))
    }

    fn sequence(&self, seq: KvSeq) -> &Sequence {
        &self.sequences[seq.0]
    }

    fn sequence_mut(&mut self, seq: KvSeq) -> &mut Sequence {
        &mut self.sequences[seq.0]
    }
}

/// The page tables of all sequences.
#[derive(Clone, Copy)]
pub(crate) struct Tables<'a>(&'a Slab<Sequence>);

impl<'a> Tables<'a> {
    /// The pages of `seq`, in order of position.
    pub fn get(&self, seq: KvSeq) -> &'a [u32] {
        &self.0[seq.0].table
    }
}

/// f32 numbers of one head's page: keys and values.
fn page_floats(spec: &Spec) -> usize {
    2 * spec.head_dim * PAGE
}

/// Writes one position of one head: `pages` is the head's `[pages][page]`.
pub(crate) fn write(pages: &mut [f32], table: &[u32], position: usize, key: &[f32], value: &[f32]) {
    let (dim, slot) = (key.len(), position % PAGE);
    let page = &mut pages[table[position / PAGE] as usize * 2 * dim * PAGE..][..2 * dim * PAGE];
    let (keys, values) = page.split_at_mut(dim * PAGE);
    for (row, k) in keys.chunks_exact_mut(PAGE).zip(key) {
        row[slot] = *k;
    }
    values[slot * dim..(slot + 1) * dim].copy_from_slice(value);
}
