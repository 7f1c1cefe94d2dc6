//! Recurrent states of linear-attention layers. Each open sequence has a slot, in which passes update
//! its state in place. Snapshots are copies of states at the ends of pages; they belong to nodes of the
//! prefix tree, so that other sequences can continue there.

use super::prefix::{NodeId, SnapshotId, Tree};
use super::worth::{self, StatePlace, StateUse};
use super::{CacheFull, KvConfig, KvPool, KvSeq, Layer, Namespace, PAGE, PageTables, Sequence};
use crate::format::{LinearAttention, MixerKind, Spec};
use crate::kernel::DeltaShape;
use crate::mem::{AlignedVec, LazyVec};
use serde::{Deserialize, Serialize};

/// Numbers of recurrent states in a pool. They cost memory only for models with linear attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateLimits {
    /// Maximum number of open sequences.
    pub sequences: usize,
    /// Maximum number of snapshots that the prefix cache keeps; those worth least are dropped.
    pub snapshots: usize,
}

impl Default for StateLimits {
    /// States for 16 sequences, and eight snapshots.
    fn default() -> Self {
        Self { sequences: 16, snapshots: 8 }
    }
}

/// Returns the shape of one key head and its value heads, as the kernel takes it.
pub(crate) fn delta_shape(shape: &LinearAttention) -> DeltaShape {
    let LinearAttention { key_dim, value_dim, conv_kernel: taps, .. } = *shape;
    DeltaShape { key_dim, value_dim, values: shape.values_per_key(), taps }
}

/// Shape of the recurrent states of one sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateShape {
    /// Shape of a key head's state.
    pub delta: DeltaShape,
    /// Number of key heads in a layer.
    pub key_heads: usize,
    /// Number of layers with linear attention.
    pub layers: usize,
}

impl StateShape {
    /// Returns the shape of a model's states; `None` without linear attention.
    pub fn of(spec: &Spec) -> Option<Self> {
        let shape = spec.linear_attention.as_ref()?;
        let linear = |layer: &usize| spec.mixer(*layer) == MixerKind::Linear;
        let layers = (0..spec.layers).filter(linear).count();
        let (delta, key_heads) = (delta_shape(shape), shape.key_heads);
        (layers > 0).then_some(Self { delta, key_heads, layers })
    }

    /// Returns the bytes of the states of one sequence; saturates.
    pub fn bytes(&self) -> usize {
        self.bytes_of(self.delta.state_floats())
    }

    /// Returns the bytes of a snapshot; saturates.
    pub fn snapshot_bytes(&self) -> usize {
        self.bytes_of(self.delta.snapshot_floats())
    }

    fn bytes_of(&self, floats: usize) -> usize {
        [self.key_heads, self.layers, size_of::<f32>()]
            .into_iter()
            .fold(floats, usize::saturating_mul)
    }
}

impl KvPool {
    /// Returns the size in bytes of all recurrent states and snapshots that a pool for a model of this
    /// shape may hold; saturates. The system provides the memory when they are first used.
    pub fn state_bytes(spec: &Spec, config: &KvConfig) -> usize {
        let Some(shape) = StateShape::of(spec) else { return 0 };
        let StateLimits { sequences, snapshots } = config.states;
        let snapshots = shape.snapshot_bytes().saturating_mul(snapshots);
        shape.bytes().saturating_mul(sequences).saturating_add(snapshots)
    }

    /// Returns the number of snapshots of recurrent states that the prefix cache has.
    pub fn snapshots(&self) -> usize {
        self.states.as_ref().map_or(0, States::snapshots)
    }

    /// Returns the maximum number of snapshots; 0 for models without recurrent states.
    pub fn snapshot_limit(&self) -> usize {
        self.states.as_ref().map_or(0, |states| states.limits.snapshots)
    }

    /// Returns the number of snapshots so far that were dropped for others that are worth more.
    pub fn dropped_snapshots(&self) -> u64 {
        self.states.as_ref().map_or(0, |states| states.dropped)
    }

    /// Returns the positions of a text where a sequence could continue: those of its snapshots, or the end of
    /// its known pages for a model without recurrent states.
    pub fn continuations(&self, namespace: &Namespace, tokens: &[u32]) -> Vec<usize> {
        let pages = tokens.as_chunks().0;
        let ends = match self.states {
            Some(_) => self.tree.snapshots_of(namespace, pages),
            None => {
                Vec::from_iter(Some(self.tree.known_pages(namespace, pages)).filter(|&n| n > 0))
            }
        };
        ends.into_iter().map(|end| end * PAGE).collect()
    }

    /// Returns the shape of a sequence's recurrent states; `None` for models without linear attention.
    pub fn state_shape(&self) -> Option<StateShape> {
        self.states.as_ref().map(|states| states.shape)
    }

    /// Takes recurrent states for a sequence: those of a snapshot, or of an empty text.
    pub(super) fn open_states(&mut self, snapshot: Option<SnapshotId>) -> Result<usize, CacheFull> {
        let Some(states) = &mut self.states else { return Ok(0) };
        let slot = states.take_slot().ok_or(CacheFull::States(states.slots()))?;
        states.resume(slot, snapshot, self.layers.iter_mut().map(|layer| &mut layer.states));
        Ok(slot)
    }

    /// Returns the number of first positions of `tokens` whose pages the prefix cache has, with recurrent
    /// states or without.
    pub fn known_prefix(&self, namespace: &Namespace, tokens: &[u32]) -> usize {
        self.tree.known_pages(namespace, tokens.as_chunks().0) * PAGE
    }

    /// Returns the number of first positions of `tokens` that a sequence would begin with
    /// ([`open_shared`](Self::open_shared)); `None` if sequences of this namespace share nothing.
    pub fn cached_prefix(&self, namespace: &Namespace, tokens: &[u32]) -> Option<usize> {
        if !namespace.shares_pages() {
            return None;
        }
        let pages = tokens.as_chunks().0;
        let known = match self.states {
            Some(_) => self.tree.pages_to_last_snapshot(namespace, pages),
            None => self.tree.known_pages(namespace, pages),
        };
        Some(known * PAGE)
    }

    /// Notes that a sequence, just opened, begins to compute, so the states on its way are used. `places` are
    /// positions in its text, at ends of pages, and what they are.
    pub fn use_states(
        &mut self,
        seq: KvSeq,
        places: impl IntoIterator<Item = (usize, StatePlace)> + Clone,
    ) {
        let Self { states: Some(states), sequences, tree, .. } = self else { return };
        let Sequence { shared: Some(shared), request, .. } = &mut sequences[seq.0] else { return };
        states.requests += 1;
        *request = states.requests;
        states.use_path(tree, shared.node);
        for (index, id) in snapshots_before(tree, shared.node).enumerate() {
            let history = &mut states.snapshots[id].history;
            if index == 0 {
                history.resume(*request);
            }
            for (end, place) in places.clone() {
                if end == history.pages * PAGE {
                    history.mark(place, *request);
                }
            }
        }
    }

    /// Keeps a copy of a sequence's recurrent states as they were at the end of its last whole committed
    /// page, for other sequences that begin with the same text. Does nothing for sequences that share
    /// no pages, for models without such states, without memory for the copy, or if all kept states are
    /// worth more. The page must be published.
    pub fn keep_states(&mut self, seq: KvSeq, place: StatePlace) {
        let Self { states: Some(states), sequences, tree, layers, .. } = self else { return };
        let Sequence { shared: Some(shared), slot, written, request, .. } = sequences[seq.0] else {
            return;
        };
        // States have taken all pages that are full, shared or not.
        if shared.pages == 0 || shared.pages != written / PAGE {
            return;
        }
        states.use_path(tree, shared.node);
        if let Some(id) = *tree.snapshot(shared.node) {
            return states.snapshots[id].history.keep(place, request);
        }
        let Some(id) = states.add(tree, (shared.node, shared.pages), place, request) else {
            return;
        };
        states.copy(id, slot, layers.iter().map(|layer| &layer.states));
    }

    /// Returns a layer's recurrent states, with the slots of all sequences.
    pub(crate) fn states(&mut self, layer: usize) -> LayerStates<'_> {
        let Self { config, layers, sequences, reads, .. } = self;
        let (Layer { states, layout, .. }, slots) = (&mut layers[layer], config.states.sequences);
        LayerStates { states, slots, tables: PageTables { config, layout, sequences, reads } }
    }
}

/// One layer's recurrent states during a pass.
pub(crate) struct LayerStates<'a> {
    /// `[key_heads][slots][state_floats]`.
    pub states: &'a mut [f32],
    /// Number of slots.
    pub slots: usize,
    /// Page tables and slots of all sequences.
    pub tables: PageTables<'a>,
}

/// Returns the snapshots on the way to the end of a node's page, the last one first.
fn snapshots_before(tree: &Tree, node: NodeId) -> impl Iterator<Item = SnapshotId> {
    let mut at = Some(node);
    std::iter::from_fn(move || {
        let (snapshot, before) = tree.last_snapshot(at?)?;
        at = before;
        Some(snapshot)
    })
}

/// The free slots of a pool, and its snapshots.
pub(super) struct States {
    pub shape: StateShape,
    limits: StateLimits,
    free: Vec<usize>,
    snapshots: Vec<Snapshot>,
    /// Number of requests so far, counted when they begin to compute.
    requests: u64,
    /// Number of snapshots that were dropped for others.
    dropped: u64,
}

/// A copy of the states of a sequence.
struct Snapshot {
    floats: AlignedVec<f32>,
    /// The node of the prefix tree that it belongs to; `None` if it is free.
    node: Option<NodeId>,
    history: StateUse,
}

impl States {
    pub fn new(shape: StateShape, limits: StateLimits) -> Self {
        let free = (0..limits.sequences).rev().collect();
        Self { shape, limits, free, snapshots: Vec::new(), requests: 0, dropped: 0 }
    }

    /// Number of slots.
    pub fn slots(&self) -> usize {
        self.limits.sequences
    }

    /// Number of snapshots in use.
    pub fn snapshots(&self) -> usize {
        self.snapshots.iter().filter(|snapshot| snapshot.node.is_some()).count()
    }

    /// Returns the states that are kept at the end of a node's page.
    pub fn kept_at(&self, tree: &Tree, node: NodeId) -> Option<&[f32]> {
        let (id, _) = tree.last_snapshot(node)?;
        let kept = &self.snapshots[id];
        (kept.node == Some(node)).then_some(&kept.floats[..])
    }

    /// Keeps states in f32 at a node that has so many pages before its end; the next prompt continues from
    /// them. Does nothing if the node has states. `None` if all that are kept are worth more.
    pub fn restore(
        &mut self,
        tree: &mut Tree,
        node: NodeId,
        pages: usize,
        bytes: &[u8],
    ) -> Option<()> {
        if tree.snapshot(node).is_none() {
            self.requests += 1;
            let id = self.add(tree, (node, pages), StatePlace::QuestionEnd, self.requests)?;
            for (float, &bytes) in self.snapshots[id].floats.iter_mut().zip(bytes.as_chunks().0) {
                *float = f32::from_le_bytes(bytes);
            }
        }
        Some(())
    }

    /// Returns a new snapshot for a node that has none, and so many pages before its end.
    fn add(
        &mut self,
        tree: &mut Tree,
        (node, pages): (NodeId, usize),
        place: StatePlace,
        request: u64,
    ) -> Option<SnapshotId> {
        let (used, answer_end) = (self.requests, place == StatePlace::AnswerEnd);
        let root = tree.root_of(node);
        let mut history = StateUse { pages, used, answer_end, root, ..StateUse::default() };
        history.keep(place, request);
        let id = self.make_room(tree, node, history)?;
        *tree.snapshot(node) = Some(id);
        Some(id)
    }

    /// Takes a free slot; its contents are those of its last sequence.
    pub fn take_slot(&mut self) -> Option<usize> {
        self.free.pop()
    }

    pub fn free_slot(&mut self, slot: usize) {
        self.free.push(slot);
    }

    /// Makes a slot's states those at a snapshot, or those of an empty text. `layers` are the states of
    /// all layers.
    pub fn resume<'a>(
        &mut self,
        slot: usize,
        snapshot: Option<SnapshotId>,
        layers: impl Iterator<Item = &'a mut LazyVec<f32>>,
    ) {
        let StateShape { delta, .. } = self.shape;
        let slots = self.slots();
        let floats = snapshot.map(|id| &self.snapshots[id].floats);
        let mut kept = floats.map(|floats| floats.chunks_exact(delta.snapshot_floats()));
        for states in layers {
            for state in states.chunks_exact_mut(delta.state_floats()).skip(slot).step_by(slots) {
                let begin = &mut state[..delta.snapshot_floats()];
                match kept.as_mut().and_then(Iterator::next) {
                    Some(kept) => begin.copy_from_slice(kept),
                    None => begin.fill(0.0),
                }
                delta.resume(state);
            }
        }
    }

    /// Copies a slot's states at the end of its last whole page to a snapshot.
    fn copy<'a>(
        &mut self,
        id: SnapshotId,
        slot: usize,
        layers: impl Iterator<Item = &'a LazyVec<f32>>,
    ) {
        let StateShape { delta, .. } = self.shape;
        let slots = self.slots();
        let mut copies = self.snapshots[id].floats.chunks_exact_mut(delta.snapshot_floats());
        for states in layers {
            let states = states.chunks_exact(delta.state_floats()).skip(slot).step_by(slots);
            for (state, copy) in states.zip(copies.by_ref()) {
                copy.copy_from_slice(&state[..copy.len()]);
            }
        }
    }

    /// Marks all snapshots on the way to the end of a node's page as used now.
    pub fn use_path(&mut self, tree: &Tree, node: NodeId) {
        for id in snapshots_before(tree, node) {
            self.snapshots[id].history.used = self.requests;
        }
    }

    /// Returns a snapshot for a node that has none: a free one, a new one, or that of the state that is
    /// worth least. `None` if that is the node's own, or there is no memory.
    fn make_room(
        &mut self,
        tree: &mut Tree,
        node: NodeId,
        history: StateUse,
    ) -> Option<SnapshotId> {
        let id = self.vacant().or_else(|| {
            let least = self.least(tree, node, history)?;
            let before = self.snapshots[least].node.take();
            before.iter().for_each(|&before| *tree.snapshot(before) = None);
            self.dropped += 1;
            Some(least)
        })?;
        let snapshot = &mut self.snapshots[id];
        (snapshot.node, snapshot.history) = (Some(node), history);
        Some(id)
    }

    /// Returns a snapshot that is free, or a new one.
    fn vacant(&mut self) -> Option<SnapshotId> {
        if let Some(free) = self.snapshots.iter().position(|s| s.node.is_none()) {
            return Some(free);
        }
        if self.snapshots.len() >= self.limits.snapshots {
            return None;
        }
        let floats = AlignedVec::try_zeroed(self.shape.snapshot_bytes() / size_of::<f32>())?;
        self.snapshots.push(Snapshot { floats, node: None, history: StateUse::default() });
        Some(self.snapshots.len() - 1)
    }

    /// Returns the snapshot that is worth least, all of them in use; `None` if a state at `node` would be
    /// worth less.
    fn least(&self, tree: &mut Tree, node: NodeId, history: StateUse) -> Option<SnapshotId> {
        let added = self.snapshots.len();
        *tree.snapshot(node) = Some(added);
        let with_parent = |node: NodeId, history: StateUse| {
            let parent = tree.parent(node).and_then(|above| tree.last_snapshot(above));
            StateUse { parent: parent.map(|(id, _)| id), ..history }
        };
        let kept = self.snapshots.iter().filter_map(|s| Some((s.node?, s.history)));
        let all: Vec<StateUse> = kept
            .chain([(node, history)])
            .map(|(node, history)| with_parent(node, history))
            .collect();
        *tree.snapshot(node) = None;
        let lifetime = 2 * self.limits.snapshots as u64;
        worth::least(&all, self.requests, lifetime).filter(|&least| least != added)
    }

    /// Frees a snapshot whose node is gone.
    pub fn free_snapshot(&mut self, id: SnapshotId) {
        self.snapshots[id].node = None;
    }
}
