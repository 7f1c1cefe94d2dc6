//! Pages of keys and values. Of a sequence's positions, `committed` ≤ `written` ≤ its pages: what
//! is written past `committed` is a draft, which only the decoder that asked for it may look at and
//! which later passes overwrite.

pub use crate::kernel::PAGE;

use crate::format::Spec;
use crate::mem::AlignedVec;

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
    sequences: Vec<Option<Sequence>>,
}

struct Sequence {
    /// Pages in order of position.
    table: Vec<u32>,
    /// Positions whose keys and values are final.
    committed: usize,
    /// Positions that some pass has written.
    written: usize,
}

/// The pool has not enough free pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the KV cache is full: {needed} pages of {PAGE} positions needed, {free} free")]
pub struct CacheFull {
    /// Pages asked for.
    pub needed: usize,
    /// Pages free.
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
        Ok(Self { layers, pages, free: (0..last).rev().collect(), sequences: Vec::new() })
    }

    /// Bytes that `pages` pages take for a model of this shape; the largest number where they are
    /// more than that.
    pub fn bytes(spec: &Spec, pages: usize) -> usize {
        [spec.layers, spec.kv_heads, page_floats(spec), size_of::<f32>()]
            .into_iter()
            .fold(pages, usize::saturating_mul)
    }

    /// Pages that nobody has.
    pub fn free_pages(&self) -> usize {
        self.free.len()
    }

    /// All pages.
    pub fn pages(&self) -> usize {
        self.pages
    }

    /// Starts a sequence with room for `positions`.
    ///
    /// # Errors
    /// When there are not enough free pages; nothing is taken then.
    pub fn open(&mut self, positions: usize) -> Result<KvSeq, CacheFull> {
        let needed = positions.div_ceil(PAGE);
        if needed > self.free.len() {
            return Err(CacheFull { needed, free: self.free.len() });
        }
        let table = self.free.split_off(self.free.len() - needed);
        let sequence = Some(Sequence { table, committed: 0, written: 0 });
        let slot = self.sequences.iter().position(Option::is_none);
        Ok(KvSeq(match slot {
            Some(slot) => {
                self.sequences[slot] = sequence;
                slot
            }
            None => {
                self.sequences.push(sequence);
                self.sequences.len() - 1
            }
        }))
    }

    /// Ends a sequence and returns its pages.
    ///
    /// # Panics
    /// When the sequence is not open.
    pub fn close(&mut self, seq: KvSeq) {
        let sequence = self.sequences[seq.0].take().expect("the sequence is open");
        self.free.extend(sequence.table);
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
        assert!(positions <= sequence.written, "what is final has been written");
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
        self.sequences[seq.0].as_ref().expect("the sequence is open")
    }

    fn sequence_mut(&mut self, seq: KvSeq) -> &mut Sequence {
        self.sequences[seq.0].as_mut().expect("the sequence is open")
    }
}

/// The page tables of all sequences.
#[derive(Clone, Copy)]
pub(crate) struct Tables<'a>(&'a [Option<Sequence>]);

impl<'a> Tables<'a> {
    /// The pages of `seq`, in order of position.
    pub fn get(&self, seq: KvSeq) -> &'a [u32] {
        &self.0[seq.0].as_ref().expect("the sequence is open").table
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
