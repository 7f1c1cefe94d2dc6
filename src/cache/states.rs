//! Recurrent states of linear-attention layers. Each open sequence has a slot, in which passes update
//! its state in place. Snapshots are copies of states at the ends of pages; they belong to nodes of the
//! prefix tree, so that other sequences can continue there.

use super::prefix::NodeId;
use super::{CacheFull, KvConfig, KvPool, KvSeq, Namespace, PAGE, PageTables, Sequence};
use crate::format::{LinearAttention, MixerKind, Spec};
use crate::kernel::DeltaShape;
use crate::mem::{AlignedVec, LazyVec};
use serde::{Deserialize, Serialize};

/// Numbers of recurrent states in a pool. They cost memory only for models with linear attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateLimits {
    /// Maximum number of open sequences.
    pub sequences: usize,
    /// Maximum number of snapshots that the prefix cache keeps; the least recently used are dropped.
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

    /// Keeps a copy of a sequence's recurrent states as they were at the end of its last whole committed
    /// page, for other sequences that begin with the same text. Does nothing for sequences that share
    /// no pages, for models without such states, or without memory for the copy. The page must be
    /// published.
    pub fn keep_states(&mut self, seq: KvSeq) {
        let Self { states: Some(states), sequences, tree, layers, .. } = self else { return };
        let Sequence { shared: Some(shared), slot, written, .. } = &sequences[seq.0] else {
            return;
        };
        // States have taken all pages that are full, shared or not.
        if shared.pages == 0 || shared.pages != written / PAGE {
            return;
        }
        if let Some(id) = *tree.snapshot(shared.node) {
            return states.touch(id);
        }
        let layers = layers.iter().map(|layer| &layer.states);
        if let Some((id, before)) = states.snapshot(*slot, shared.node, layers) {
            if let Some(before) = before {
                *tree.snapshot(before) = None;
            }
            *tree.snapshot(shared.node) = Some(id);
        }
    }

    /// Returns a layer's recurrent states, with the slots of all sequences.
    pub(crate) fn states(&mut self, layer: usize) -> LayerStates<'_> {
        let Self { config, layout, layers, sequences, reads, .. } = self;
        let (states, slots) = (&mut layers[layer].states, config.states.sequences);
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

/// The free slots of a pool, and its snapshots.
pub(super) struct States {
    pub shape: StateShape,
    limits: StateLimits,
    free: Vec<usize>,
    snapshots: Vec<Snapshot>,
    /// Number of uses of snapshots so far.
    clock: u64,
}

/// A copy of the states of a sequence.
struct Snapshot {
    /// `[layers][key_heads][snapshot_floats]`.
    floats: AlignedVec<f32>,
    /// The node of the prefix tree that it belongs to; `None` if it is free.
    node: Option<NodeId>,
    /// Time of its last use.
    used: u64,
}

/// Number of a snapshot in its pool.
pub(super) type SnapshotId = usize;

impl States {
    pub fn new(shape: StateShape, limits: StateLimits) -> Self {
        let free = (0..limits.sequences).rev().collect();
        Self { shape, limits, free, snapshots: Vec::new(), clock: 0 }
    }

    /// Number of slots.
    pub fn slots(&self) -> usize {
        self.limits.sequences
    }

    /// Number of snapshots in use.
    pub fn snapshots(&self) -> usize {
        self.snapshots.iter().filter(|snapshot| snapshot.node.is_some()).count()
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
        snapshot.iter().for_each(|&id| self.touch(id));
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

    /// Copies a slot's states at the end of its last whole page to a snapshot for `node`. Returns the
    /// snapshot and the node that it was taken from; `None` if there is no memory.
    pub fn snapshot<'a>(
        &mut self,
        slot: usize,
        node: NodeId,
        layers: impl Iterator<Item = &'a LazyVec<f32>>,
    ) -> Option<(SnapshotId, Option<NodeId>)> {
        let id = self.take_snapshot()?;
        let StateShape { delta, .. } = self.shape;
        let before = self.snapshots[id].node.replace(node);
        self.touch(id);
        let slots = self.slots();
        let mut copies = self.snapshots[id].floats.chunks_exact_mut(delta.snapshot_floats());
        for states in layers {
            let states = states.chunks_exact(delta.state_floats()).skip(slot).step_by(slots);
            for (state, copy) in states.zip(copies.by_ref()) {
                copy.copy_from_slice(&state[..copy.len()]);
            }
        }
        Some((id, before))
    }

    /// A free snapshot, a new one, or the least recently used.
    fn take_snapshot(&mut self) -> Option<SnapshotId> {
        if let Some(free) = self.snapshots.iter().position(|s| s.node.is_none()) {
            return Some(free);
        }
        if self.snapshots.len() < self.limits.snapshots {
            let floats = AlignedVec::try_zeroed(self.shape.snapshot_bytes() / size_of::<f32>());
            if let Some(floats) = floats {
                self.snapshots.push(Snapshot { floats, node: None, used: 0 });
                return Some(self.snapshots.len() - 1);
            }
        }
        (0..self.snapshots.len()).min_by_key(|&id| self.snapshots[id].used)
    }

    /// Marks a snapshot as used now.
    pub fn touch(&mut self, id: SnapshotId) {
        self.clock += 1;
        self.snapshots[id].used = self.clock;
    }

    /// Frees a snapshot whose node is gone.
    pub fn free_snapshot(&mut self, id: SnapshotId) {
        self.snapshots[id].node = None;
    }
}
