//! What has to come to an end before what: reduced until nothing changes, and searched for the way round.

use std::collections::{BTreeMap, VecDeque};

use super::parties::Party;
use crate::limits;
use crate::model::{LockKey, Mode, SessionId, WaitsBecause};

/// What may come to an end: a party when it finishes, a wait when it is granted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Node {
    Party(Party),
    Wait(LockKey, u64),
    /// All of the request that stands there is granted: a set goes whole.
    Grant(LockKey, u64),
    /// The second of this queue is out of the first one's way: it finished, or may be passed.
    Past(LockKey, u64, u64),
}

/// Where a request of a session stands beside waiting sets.
#[derive(Debug, Clone)]
pub(super) struct Beside {
    pub(super) key: LockKey,
    pub(super) number: u64,
    pub(super) mode: Mode,
    /// Its place, where it waits there itself.
    pub(super) waits: Option<u64>,
}

/// What stands in somebody's way: at which lock, and how; nothing is told of the step from a party to its own wait.
struct Edge {
    to: usize,
    told: Option<Told>,
}

pub(super) type Told = (LockKey, WaitsBecause);

/// A need that is met when so much of it has come together.
struct Need {
    of: usize,
    missing: u64,
}

/// Everything that one party needs, directly or not.
#[derive(Default)]
pub(super) struct Graph {
    pub(super) nodes: Vec<Node>,
    numbers: BTreeMap<Node, usize>,
    edges: Vec<Vec<Edge>>,
    needs: Vec<Need>,
    /// Unmet needs of each node.
    unmet: Vec<usize>,
    /// What the end of a node adds to which need.
    gives: Vec<Vec<(usize, u64)>>,
    /// Where a session stands beside waiting sets, by its requests; looked up once.
    pub(super) beside_sets: BTreeMap<SessionId, Vec<Beside>>,
}

impl Graph {
    pub(super) fn number(&mut self, node: Node) -> usize {
        if let Some(number) = self.numbers.get(&node) {
            return *number;
        }
        let number = self.nodes.len();
        self.nodes.push(node.clone());
        self.numbers.insert(node, number);
        self.edges.push(Vec::new());
        self.unmet.push(0);
        self.gives.push(Vec::new());
        number
    }

    pub(super) fn need(&mut self, of: usize, missing: u64, from: Vec<(Node, u64)>, told: Option<&Told>) {
        let need = self.needs.len();
        self.needs.push(Need { of, missing });
        self.unmet[of] += 1;
        for (node, gives) in from {
            let to = self.number(node);
            self.gives[to].push((need, gives));
            self.edges[of].push(Edge { to, told: told.cloned() });
        }
    }

    /// Lets everybody finish who can, until nothing changes; answers who is left.
    pub(super) fn reduce(&mut self) -> Vec<bool> {
        let mut left = vec![true; self.nodes.len()];
        let mut finished: Vec<usize> = (0..left.len()).filter(|node| self.unmet[*node] == 0).collect();
        while let Some(node) = finished.pop() {
            left[node] = false;
            for (need, gives) in std::mem::take(&mut self.gives[node]) {
                let Need { of, missing } = &mut self.needs[need];
                let met = 0 < *missing && *missing <= gives;
                *missing = missing.saturating_sub(gives);
                if met {
                    self.unmet[*of] -= 1;
                    if self.unmet[*of] == 0 {
                        finished.push(*of);
                    }
                }
            }
        }
        left
    }

    /// The shortest way from the first party over those left back to itself: what is told of its steps, and of whom.
    pub(super) fn circle(&self, left: &[bool]) -> Option<Vec<(&Node, &Told)>> {
        let mut came: BTreeMap<usize, (usize, usize)> = BTreeMap::new();
        let mut work = VecDeque::from([0]);
        while let Some(party) = work.pop_front() {
            for (at, edge) in self.edges[party].iter().enumerate() {
                if !left[edge.to] || came.contains_key(&edge.to) {
                    continue;
                }
                came.insert(edge.to, (party, at));
                if edge.to == 0 {
                    return Some(self.way(&came));
                }
                work.push_back(edge.to);
            }
        }
        None
    }

    fn way(&self, came: &BTreeMap<usize, (usize, usize)>) -> Vec<(&Node, &Told)> {
        let (mut way, mut at) = (Vec::new(), 0);
        while let Some((from, edge)) = came.get(&at) {
            way.extend(self.edges[*from][*edge].told.as_ref().map(|told| (&self.nodes[*from], told)));
            at = *from;
            if at == 0 {
                break;
            }
        }
        way.reverse();
        way.truncate(limits::CIRCLE_LINKS_MAX);
        way
    }
}
