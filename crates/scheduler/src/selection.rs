//! Whose turn is next in one domain, among the queues that could start something.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
};

use crate::tree::{Domain, NodeId, ROOT, Tree, Turn};

/// The candidates of one step, as the part of the tree that leads to them. Keys of heaps may be too
/// small, never too large, since tags only rise within a step; they are renewed when they come up.
pub(crate) struct Selection {
    domain: Domain,
    /// Of inner nodes. Only looked up, never iterated: the order of the map shows nowhere.
    children: HashMap<NodeId, BinaryHeap<Reverse<Turn>>>,
}

impl Selection {
    pub(crate) fn new(domain: Domain) -> Self {
        Self {
            domain,
            children: HashMap::new(),
        }
    }

    /// A queue that could start something.
    pub(crate) fn insert(&mut self, tree: &Tree, leaf: NodeId) {
        let mut at = leaf;
        while at != ROOT {
            let parent = tree.parent(at);
            let turn = Reverse(tree.turn(at, &self.domain));
            let siblings = self.children.entry(parent).or_default();
            let is_linked = !siblings.is_empty();
            siblings.push(turn);
            if is_linked {
                return;
            }
            at = parent;
        }
    }

    /// The queue whose turn it is.
    pub(crate) fn next(&mut self, tree: &Tree) -> Option<NodeId> {
        let mut at = ROOT;
        while let Some(siblings) = self.children.get_mut(&at) {
            let Reverse(found) = *siblings.peek()?;
            let renewed = tree.turn(found.node, &self.domain);
            if renewed == found {
                at = found.node;
            } else {
                siblings.pop();
                siblings.push(Reverse(renewed));
            }
        }
        (at != ROOT).then_some(at)
    }

    /// Leaves out the queue that [`Selection::next`] gave last.
    pub(crate) fn remove_next(&mut self, tree: &Tree, leaf: NodeId) {
        let mut at = tree.parent(leaf);
        loop {
            let siblings = self.children.entry(at).or_default();
            siblings.pop();
            if at == ROOT || !siblings.is_empty() {
                return;
            }
            self.children.remove(&at);
            at = tree.parent(at);
        }
    }
}
