//! The prefix cache: a radix tree of the pages that sequences with the same beginning share. An edge
//! is a whole page of tokens (SGLang's RadixAttention, arXiv 2312.07104, with pages instead of tokens).
//!
//! A lookup compares tokens, not only hashes of them, so a hit is never a mistake. Pages that no
//! sequence uses stay cached until they are needed. Eviction takes the least recently used leaf.

use super::PAGE;
use slab::Slab;
use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;

/// Number of a snapshot in its pool.
pub(super) type SnapshotId = usize;

/// Sequences of one namespace may share pages. Two namespaces share nothing, even for equal texts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Namespace {
    /// Isolates the sequences of one tenant from those of others.
    pub salt: SaltHash,
    /// Positions of a block whose finished tokens all see each other; 1 for causal attention. Keys
    /// and values depend on it.
    pub block: usize,
}

impl Namespace {
    /// Returns true if sequences share pages. Where blocks reach over the end of a page, its keys and values
    /// depend on what follows.
    pub(super) fn shares_pages(&self) -> bool {
        self.block > 0 && PAGE.is_multiple_of(self.block)
    }
}

/// The hash of a salt: a salt may be long, and a namespace outlives its requests. The 128 bits come from
/// SipHash with two random keys of this process, so nobody can choose two salts with the same hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SaltHash([u64; 2]);

impl SaltHash {
    /// Hashes a salt.
    #[must_use]
    pub fn new(salt: &str) -> Self {
        static KEYS: LazyLock<[RandomState; 2]> =
            LazyLock::new(|| [RandomState::new(), RandomState::new()]);
        Self([KEYS[0].hash_one(salt), KEYS[1].hash_one(salt)])
    }
}

/// The tokens of a page.
pub(super) type PageTokens = [u32; PAGE];

/// Number of a node.
pub(super) type NodeId = usize;

/// The radix tree of all namespaces.
#[derive(Default)]
pub(super) struct Tree {
    nodes: Slab<Node>,
    roots: HashMap<Namespace, NodeId>,
    edges: HashMap<(NodeId, PageTokens), NodeId>,
    /// Leaves that no sequence uses, by the time of their release: the order of eviction.
    leaves: BTreeSet<(u64, NodeId)>,
    /// Number of pages that no sequence uses.
    idle: usize,
    /// Number of releases so far.
    clock: u64,
}

struct Node {
    /// The edge to this node; `None` for the root of a namespace.
    edge: Option<Edge>,
    children: usize,
    /// Number of open sequences that use this page.
    users: usize,
    /// Time at which the last user released it.
    released: u64,
    /// Recurrent states at the end of this page, if they are kept.
    snapshot: Option<SnapshotId>,
}

impl Node {
    /// A node with one user.
    fn new(edge: Option<Edge>) -> Self {
        Self { edge, children: 0, users: 1, released: 0, snapshot: None }
    }
}

/// A page of tokens, and the page of keys and values that belongs to it.
struct Edge {
    parent: NodeId,
    tokens: PageTokens,
    page: u32,
}

impl Tree {
    /// Number of pages that no sequence uses.
    pub fn idle(&self) -> usize {
        self.idle
    }

    /// Page of keys and values of a node that is no root.
    pub fn page(&self, node: NodeId) -> u32 {
        self.nodes[node].edge.as_ref().expect("the node is no root").page
    }

    /// Returns the root of a namespace, for one more sequence.
    pub fn root(&mut self, namespace: &Namespace) -> NodeId {
        let root = match self.roots.get(namespace) {
            Some(&root) => root,
            None => {
                let root = self.nodes.insert(Node::new(None));
                self.roots.insert(namespace.clone(), root);
                return root;
            }
        };
        self.nodes[root].users += 1;
        root
    }

    /// Returns the child of `parent` with these tokens, for one more sequence.
    pub fn enter(&mut self, parent: NodeId, tokens: &PageTokens) -> Option<NodeId> {
        let id = *self.edges.get(&(parent, *tokens))?;
        let node = &mut self.nodes[id];
        node.users += 1;
        if node.users == 1 {
            self.idle -= 1;
            self.leaves.remove(&(node.released, id));
        }
        Some(id)
    }

    /// Enters the first `pages` of a namespace that the tree has, for one more sequence. Returns the last
    /// node, or the root, and the number of pages.
    pub fn enter_path(&mut self, namespace: &Namespace, pages: &[PageTokens]) -> (NodeId, usize) {
        let (mut node, mut known) = (self.root(namespace), 0);
        while let Some(next) = pages.get(known).and_then(|page| self.enter(node, page)) {
            (node, known) = (next, known + 1);
        }
        (node, known)
    }

    /// Returns the number of first `pages` of a namespace that the tree has.
    pub fn known_pages(&self, namespace: &Namespace, pages: &[PageTokens]) -> usize {
        let Some(&root) = self.roots.get(namespace) else { return 0 };
        self.path(root, pages).count()
    }

    /// Returns the numbers of first `pages` of a namespace after which there is a snapshot.
    pub fn snapshots_of(&self, namespace: &Namespace, pages: &[PageTokens]) -> Vec<usize> {
        let nodes = (1..).zip(self.nodes_of(namespace, pages));
        nodes.filter(|&(_, node)| self.nodes[node].snapshot.is_some()).map(|(n, _)| n).collect()
    }

    /// Returns the nodes of the first `pages` of a namespace that the tree has.
    pub fn nodes_of(&self, namespace: &Namespace, pages: &[PageTokens]) -> Vec<NodeId> {
        self.roots.get(namespace).map_or(Vec::new(), |&root| self.path(root, pages).collect())
    }

    /// The nodes of the first `pages` below `parent` that the tree has.
    fn path(&self, parent: NodeId, pages: &[PageTokens]) -> impl Iterator<Item = NodeId> {
        pages.iter().scan(parent, |node, page| {
            *node = *self.edges.get(&(*node, *page))?;
            Some(*node)
        })
    }

    /// Returns the number of first `pages` below `parent` up to the last one with a snapshot.
    pub fn pages_to_snapshot(&self, parent: NodeId, pages: &[PageTokens]) -> usize {
        let kept = |(_, node): &(usize, NodeId)| self.nodes[*node].snapshot.is_some();
        self.path(parent, pages).enumerate().filter(kept).last().map_or(0, |(i, _)| i + 1)
    }

    /// Returns the number of first `pages` of a namespace up to the last one with a snapshot.
    pub fn pages_to_last_snapshot(&self, namespace: &Namespace, pages: &[PageTokens]) -> usize {
        self.roots.get(namespace).map_or(0, |&root| self.pages_to_snapshot(root, pages))
    }

    /// Snapshot of the recurrent states at the end of a node's page.
    pub fn snapshot(&mut self, node: NodeId) -> &mut Option<SnapshotId> {
        &mut self.nodes[node].snapshot
    }

    /// Returns the node before the page of a node; `None` for a root.
    pub fn parent(&self, node: NodeId) -> Option<NodeId> {
        self.nodes[node].edge.as_ref().map(|edge| edge.parent)
    }

    /// Returns the root of a node's namespace.
    pub fn root_of(&self, node: NodeId) -> NodeId {
        std::iter::successors(Some(node), |&node| self.parent(node)).last().unwrap_or(node)
    }

    /// Returns the last snapshot on the way to the end of a node's page, and the node before its page.
    pub fn last_snapshot(&self, node: NodeId) -> Option<(SnapshotId, Option<NodeId>)> {
        let mut nodes = std::iter::successors(Some(node), |&node| self.parent(node));
        nodes.find_map(|node| Some((self.nodes[node].snapshot?, self.parent(node))))
    }

    /// Adds a child with its page of keys and values; its sequence is the first user.
    pub fn insert(&mut self, parent: NodeId, tokens: &PageTokens, page: u32) -> NodeId {
        let edge = Edge { parent, tokens: *tokens, page };
        let id = self.nodes.insert(Node::new(Some(edge)));
        let before = self.edges.insert((parent, *tokens), id);
        debug_assert!(before.is_none(), "a page of tokens is inserted once");
        self.nodes[parent].children += 1;
        id
    }

    /// Releases `node` and its ancestors, for a sequence whose last shared page is `node`.
    pub fn release(&mut self, node: NodeId) {
        self.clock += 1;
        let mut next = Some(node);
        while let Some(id) = next {
            let node = &mut self.nodes[id];
            node.users -= 1;
            next = node.edge.as_ref().map(|edge| edge.parent);
            if node.users > 0 {
                continue;
            }
            node.released = self.clock;
            self.idle += usize::from(next.is_some());
            self.unused(id);
        }
    }

    /// Removes the least recently used leaf and returns its page and its snapshot.
    pub fn evict(&mut self) -> Option<(u32, Option<SnapshotId>)> {
        let (_, id) = self.leaves.pop_first()?;
        Some(self.remove_leaf(id))
    }

    /// Removes a leaf that no sequence uses, and that is not in `leaves` any more.
    fn remove_leaf(&mut self, id: NodeId) -> (u32, Option<SnapshotId>) {
        let Node { edge, snapshot, .. } = self.nodes.remove(id);
        let edge = edge.expect("roots are not in `leaves`");
        self.edges.remove(&(edge.parent, edge.tokens));
        self.idle -= 1;
        let parent = &mut self.nodes[edge.parent];
        parent.children -= 1;
        if parent.users == 0 {
            self.unused(edge.parent);
        }
        (edge.page, snapshot)
    }

    /// Removes the nodes of the first `pages` of a namespace, from the last one up to the first that has
    /// users or other children. Returns their pages and snapshots.
    pub fn forget(
        &mut self,
        namespace: &Namespace,
        pages: &[PageTokens],
    ) -> Vec<(u32, Option<SnapshotId>)> {
        let path = self.nodes_of(namespace, pages);
        let is_unused = |tree: &Self, id: NodeId| {
            let node = &tree.nodes[id];
            node.users == 0 && node.children == 0
        };
        let mut removed = Vec::new();
        for &id in path.iter().rev() {
            if !is_unused(self, id) {
                break;
            }
            self.leaves.remove(&(self.nodes[id].released, id));
            removed.push(self.remove_leaf(id));
        }
        removed
    }

    /// Makes a node without users a candidate for eviction if it is a leaf. A root without children is
    /// removed.
    fn unused(&mut self, id: NodeId) {
        let node = &self.nodes[id];
        if node.children > 0 {
            return;
        }
        match node.edge {
            Some(_) => drop(self.leaves.insert((node.released, id))),
            None => {
                self.roots.retain(|_, root| *root != id);
                self.nodes.remove(id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn namespace(salt: &str) -> Namespace {
        Namespace { salt: SaltHash::new(salt), block: 1 }
    }

    /// A sequence of pages that hold one token each; returns its last page.
    fn text(tree: &mut Tree, salt: &str, tokens: &[u32], fresh: &mut u32) -> NodeId {
        let root = tree.root(&namespace(salt));
        tokens.iter().fold(root, |node, token| match tree.enter(node, &[*token; PAGE]) {
            Some(next) => next,
            None => {
                *fresh += 1;
                tree.insert(node, &[*token; PAGE], *fresh)
            }
        })
    }

    #[test]
    fn the_least_recently_used_leaf_is_evicted_first() {
        let (mut tree, mut pages) = (Tree::default(), 0);
        let long = text(&mut tree, "", &[1, 2, 3], &mut pages);
        let short = text(&mut tree, "", &[1, 4], &mut pages);
        assert_eq!((pages, tree.idle(), tree.evict()), (4, 0, None));
        tree.release(long);
        assert_eq!(tree.idle(), 2);
        tree.release(short);
        assert_eq!(tree.idle(), 4);
        let again = text(&mut tree, "", &[1, 2], &mut pages);
        assert_eq!((pages, tree.idle()), (4, 2));
        // Pages 1 and 2 are in use; 3 was released before 4.
        let mut evict = || tree.evict().map(|(page, _)| page);
        assert_eq!([evict(), evict(), evict()], [Some(3), Some(4), None]);
        tree.release(again);
        let mut evict = || tree.evict().map(|(page, _)| page);
        assert_eq!([evict(), evict(), evict()], [Some(2), Some(1), None]);
        assert!(tree.nodes.is_empty() && tree.roots.is_empty() && tree.edges.is_empty());
    }

    #[test]
    fn a_namespace_is_small_whatever_its_salt() {
        let long = "s".repeat(1 << 20);
        assert!(size_of::<Namespace>() <= 24);
        assert_eq!(SaltHash::new(&long), SaltHash::new(&long));
        assert_ne!(SaltHash::new(&long), SaltHash::new(&long[1..]));
    }

    #[test]
    fn namespaces_share_nothing_and_are_removed_with_their_texts() {
        let (mut tree, mut pages) = (Tree::default(), 0);
        let ends = ["a", "b", ""].map(|salt| text(&mut tree, salt, &[7, 8], &mut pages));
        let causal = tree.root(&Namespace { block: 4, ..namespace("a") });
        assert_eq!(tree.enter(causal, &[7; PAGE]), None);
        assert_eq!((pages, tree.roots.len()), (6, 4));
        tree.release(causal);
        ends.into_iter().for_each(|end| tree.release(end));
        assert_eq!((tree.roots.len(), tree.idle()), (3, 6));
        while tree.evict().is_some() {}
        assert!(tree.nodes.is_empty() && tree.roots.is_empty() && tree.edges.is_empty());
    }
}
