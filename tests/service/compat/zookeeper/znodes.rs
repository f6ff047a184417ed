//! A model of ZooKeeper's nodes for one lock, and of clients that use them incorrectly.

use std::collections::BTreeMap;

/// Sequential ephemeral children of one lock node.
#[derive(Default)]
pub(super) struct Nodes {
    next: u64,
    /// The sessions that created the nodes, by number of the node.
    children: BTreeMap<u64, &'static str>,
    /// Pairs of a watched node and the node whose client watches it.
    watches: Vec<(u64, u64)>,
}

/// What a client does when its watched node is deleted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum OnEvent {
    /// It assumes that it holds the lock.
    Believe,
    /// It lists the children again.
    LookAgain,
}

impl Nodes {
    pub(super) fn create(&mut self, session: &'static str) -> u64 {
        self.next += 1;
        self.children.insert(self.next, session);
        self.next
    }

    pub(super) fn holder(&self) -> Option<u64> {
        self.children.keys().next().copied()
    }

    pub(super) fn places_of(&self, session: &str) -> usize {
        self.children.values().filter(|of| **of == session).count()
    }

    pub(super) fn before(&self, node: u64) -> Option<u64> {
        self.children.range(..node).next_back().map(|(before, _)| *before)
    }

    /// Adds a watch. As in ZooKeeper, a watch on a node that is already deleted never fires.
    pub(super) fn watch(&mut self, watched: u64, by: u64) {
        self.watches.push((watched, by));
    }

    /// Deletes a node. Returns the nodes whose clients are notified.
    pub(super) fn delete(&mut self, node: u64) -> Vec<u64> {
        self.children.remove(&node);
        let (notified, kept) = self.watches.drain(..).partition(|(watched, _)| *watched == node);
        self.watches = kept;
        notified.into_iter().map(|(_, by): (u64, u64)| by).filter(|by| self.children.contains_key(by)).collect()
    }

    /// Ends a session and deletes its nodes. Returns the nodes whose clients are notified.
    pub(super) fn expire(&mut self, session: &str) -> Vec<u64> {
        let nodes: Vec<u64> = self.children.iter().filter(|(_, of)| **of == session).map(|(node, _)| *node).collect();
        nodes.into_iter().flat_map(|node| self.delete(node)).collect()
    }

    /// Returns the notified clients that believe they hold the lock.
    pub(super) fn believers(&self, notified: &[u64], on_event: OnEvent) -> Vec<u64> {
        let believes = |node: &&u64| on_event == OnEvent::Believe || self.holder() == Some(**node);
        notified.iter().filter(believes).copied().collect()
    }

    /// Counts the notifications until all clients have held the lock once. Each waiter watches the node that `watched`
    /// returns.
    pub(super) fn drain(mut self, watched: impl Fn(&Nodes, u64) -> Option<u64>) -> usize {
        let mut wake_ups = 0;
        let nodes: Vec<u64> = self.children.keys().copied().collect();
        for node in nodes {
            if let Some(watched) = watched(&self, node) {
                self.watch(watched, node);
            }
        }
        while let Some(holder) = self.holder() {
            let notified = self.delete(holder);
            wake_ups += notified.len();
            for node in notified.into_iter().filter(|node| self.holder() != Some(*node)).collect::<Vec<_>>() {
                if let Some(watched) = watched(&self, node) {
                    self.watch(watched, node);
                }
            }
        }
        wake_ups
    }
}
