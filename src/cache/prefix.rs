//! Pages that sequences with the same beginning share: a radix tree whose edges are whole pages of
//! tokens (as in SGLang, arXiv 2312.07104, but page by page).
//!
//! A node is the page behind the tokens on the way to it. It is found by comparing these tokens, not
//! a hash of them, so a hit is never a mistake. What no sequence uses stays until its page is needed,
//! the longest unused first, the ends of branches before what leads to them.

use super::PAGE;
use slab::Slab;
use std::collections::{BTreeSet, HashMap};

/// Sequences that may share pages. Two realms share nothing, whatever their texts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Realm {
    /// Whose sequences they are.
    pub salt: String,
    /// Positions of a block of clean tokens, all of which see each other; 1 for causal attention.
    /// Keys and values depend on it.
    pub block: usize,
}

/// The tokens of a page.
pub(super) type PageTokens = [u32; PAGE];

/// A node's number.
pub(super) type NodeId = usize;

/// The tree.
#[derive(Default)]
pub(super) struct Tree {
    nodes: Slab<Node>,
    roots: HashMap<Realm, NodeId>,
    edges: HashMap<(NodeId, PageTokens), NodeId>,
    /// Ends of branches that nobody uses, by when they were left.
    leaves: BTreeSet<(u64, NodeId)>,
    /// Pages that nobody uses.
    idle: usize,
    clock: u64,
}

struct Node {
    /// The page before, and this one; nothing for the root of a realm.
    origin: Option<Origin>,
    children: usize,
    /// Sequences whose pages this one is among.
    users: usize,
    /// When the last of them left.
    left: u64,
}

struct Origin {
    parent: NodeId,
    tokens: PageTokens,
    page: u32,
}

impl Tree {
    /// Pages that nobody uses.
    pub fn idle(&self) -> usize {
        self.idle
    }

    /// The page of a node that is no root.
    pub fn page(&self, node: NodeId) -> u32 {
        self.nodes[node].origin.as_ref().expect("a root has no page").page
    }

    /// A sequence begins: the root of its realm.
    pub fn enter_realm(&mut self, realm: &Realm) -> NodeId {
        let root = match self.roots.get(realm) {
            Some(&root) => root,
            None => {
                let root = self.nodes.insert(Node { origin: None, children: 0, users: 0, left: 0 });
                self.roots.insert(realm.clone(), root);
                root
            }
        };
        self.nodes[root].users += 1;
        root
    }

    /// The page behind `parent` with these tokens, for one more sequence.
    pub fn enter(&mut self, parent: NodeId, tokens: &PageTokens) -> Option<NodeId> {
        let id = *self.edges.get(&(parent, *tokens))?;
        let node = &mut self.nodes[id];
        node.users += 1;
        if node.users == 1 {
            self.idle -= 1;
            self.leaves.remove(&(node.left, id));
        }
        Some(id)
    }

    /// Takes a page that the tree does not have; its sequence is the first to use it.
    pub fn insert(&mut self, parent: NodeId, tokens: &PageTokens, page: u32) -> NodeId {
        let origin = Some(Origin { parent, tokens: *tokens, page });
        let id = self.nodes.insert(Node { origin, children: 0, users: 1, left: 0 });
        let before = self.edges.insert((parent, *tokens), id);
        debug_assert!(before.is_none(), "each page is there once");
        self.nodes[parent].children += 1;
        id
    }

    /// A sequence ends whose last shared page is `node`.
    pub fn leave(&mut self, node: NodeId) {
        self.clock += 1;
        let mut next = Some(node);
        while let Some(id) = next {
            let node = &mut self.nodes[id];
            node.users -= 1;
            next = node.origin.as_ref().map(|o| o.parent);
            if node.users > 0 {
                continue;
            }
            node.left = self.clock;
            self.idle += usize::from(next.is_some());
            self.ended(id);
        }
    }

    /// Gives up the page that has been unused for longest.
    pub fn evict(&mut self) -> Option<u32> {
        let (_, id) = self.leaves.pop_first()?;
        let origin = self.nodes.remove(id).origin.expect("roots are no leaves");
        self.edges.remove(&(origin.parent, origin.tokens));
        self.idle -= 1;
        let parent = &mut self.nodes[origin.parent];
        parent.children -= 1;
        if parent.users == 0 {
            self.ended(origin.parent);
        }
        Some(origin.page)
    }

    /// Notes that a node which nobody uses may be the end of its branch.
    fn ended(&mut self, id: NodeId) {
        let node = &self.nodes[id];
        if node.children > 0 {
            return;
        }
        match node.origin {
            Some(_) => drop(self.leaves.insert((node.left, id))),
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

    fn realm(salt: &str) -> Realm {
        Realm { salt: salt.into(), block: 1 }
    }

    /// A sequence of pages that hold one token each; returns its last page.
    fn text(tree: &mut Tree, salt: &str, tokens: &[u32], fresh: &mut u32) -> NodeId {
        let root = tree.enter_realm(&realm(salt));
        tokens.iter().fold(root, |node, token| match tree.enter(node, &[*token; PAGE]) {
            Some(next) => next,
            None => {
                *fresh += 1;
                tree.insert(node, &[*token; PAGE], *fresh)
            }
        })
    }

    #[test]
    fn what_was_left_first_goes_first_and_ends_before_beginnings() {
        let (mut tree, mut pages) = (Tree::default(), 0);
        let long = text(&mut tree, "", &[1, 2, 3], &mut pages);
        let short = text(&mut tree, "", &[1, 4], &mut pages);
        assert_eq!((pages, tree.idle(), tree.evict()), (4, 0, None));
        tree.leave(long);
        assert_eq!(tree.idle(), 2);
        tree.leave(short);
        assert_eq!(tree.idle(), 4);
        let again = text(&mut tree, "", &[1, 2], &mut pages);
        assert_eq!((pages, tree.idle()), (4, 2));
        // Pages 1 and 2 are in use: 3 was left before 4.
        assert_eq!([tree.evict(), tree.evict(), tree.evict()], [Some(3), Some(4), None]);
        tree.leave(again);
        assert_eq!([tree.evict(), tree.evict(), tree.evict()], [Some(2), Some(1), None]);
        assert!(tree.nodes.is_empty() && tree.roots.is_empty() && tree.edges.is_empty());
    }

    #[test]
    fn realms_share_nothing_and_vanish_with_their_texts() {
        let (mut tree, mut pages) = (Tree::default(), 0);
        let ends = ["a", "b", ""].map(|salt| text(&mut tree, salt, &[7, 8], &mut pages));
        let causal = tree.enter_realm(&Realm { salt: "a".into(), block: 4 });
        assert_eq!(tree.enter(causal, &[7; PAGE]), None);
        assert_eq!((pages, tree.roots.len()), (6, 4));
        tree.leave(causal);
        ends.into_iter().for_each(|end| tree.leave(end));
        assert_eq!((tree.roots.len(), tree.idle()), (3, 6));
        while tree.evict().is_some() {}
        assert!(tree.nodes.is_empty() && tree.roots.is_empty() && tree.edges.is_empty());
    }
}
