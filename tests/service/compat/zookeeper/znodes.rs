//! A model of ZooKeeper's nodes under one lock, and of clients that use them in ways that go wrong.

use std::collections::BTreeMap;

/// Sequential ephemeral children of one lock node.
#[derive(Default)]
pub(super) struct Nodes {
    next: u64,
    /// Number of the node, and whose session made it.
    children: BTreeMap<u64, &'static str>,
    /// Who is told when this node goes.
    watches: Vec<(u64, u64)>,
}

/// What a client does when the node that it watches is gone.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum OnEvent {
    /// It believes that it holds the lock.
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

    /// Watches a node for another one. Nothing says that the watched one is gone already.
    pub(super) fn watch(&mut self, watched: u64, by: u64) {
        self.watches.push((watched, by));
    }

    /// Takes a node away and answers who is told.
    pub(super) fn delete(&mut self, node: u64) -> Vec<u64> {
        self.children.remove(&node);
        let (told, kept) = self.watches.drain(..).partition(|(watched, _)| *watched == node);
        self.watches = kept;
        told.into_iter().map(|(_, by): (u64, u64)| by).filter(|by| self.children.contains_key(by)).collect()
    }

    /// Ends a session: its nodes go.
    pub(super) fn expire(&mut self, session: &str) -> Vec<u64> {
        let nodes: Vec<u64> = self.children.iter().filter(|(_, of)| **of == session).map(|(node, _)| *node).collect();
        nodes.into_iter().flat_map(|node| self.delete(node)).collect()
    }

    /// Who believes to hold the lock after it was told.
    pub(super) fn believers(&self, told: &[u64], on_event: OnEvent) -> Vec<u64> {
        let believes = |node: &&u64| on_event == OnEvent::Believe || self.holder() == Some(**node);
        told.iter().filter(believes).copied().collect()
    }

    /// Wake-ups until everybody has held the lock once, where each waiter watches the node that `watched` names.
    pub(super) fn drain(mut self, watched: impl Fn(&Nodes, u64) -> Option<u64>) -> usize {
        let mut wake_ups = 0;
        let nodes: Vec<u64> = self.children.keys().copied().collect();
        for node in nodes {
            if let Some(watched) = watched(&self, node) {
                self.watch(watched, node);
            }
        }
        while let Some(holder) = self.holder() {
            let told = self.delete(holder);
            wake_ups += told.len();
            for node in told.into_iter().filter(|node| self.holder() != Some(*node)).collect::<Vec<_>>() {
                if let Some(watched) = watched(&self, node) {
                    self.watch(watched, node);
                }
            }
        }
        wake_ups
    }
}
