//! What has to come to an end before what: reduced until nothing changes, and searched for the way round.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap, VecDeque};
use std::rc::Rc;

use super::parties::Party;
use super::pool::Pooled;
use crate::limits;
use crate::model::{LockKey, Mode, SessionId, WaitsBecause};

/// What may come to an end: a party when it finishes, a wait when it is granted.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Node {
    Party(Party),
    Wait(LockKey, u64),
    /// All of the request that stands there is granted: a set goes whole.
    Grant(LockKey, u64),
    /// The second of this queue is out of the first one's way: it finished, or may be passed.
    Past(LockKey, u64, u64),
    /// Nothing that ends: all who hold this semaphore, for the way round.
    Holders(LockKey),
    /// Nothing that ends: all who stand in this queue up to that number, for the way round.
    UpTo(LockKey, u64),
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

/// What stands in somebody's way, as long as that need is not met: at which lock, and how; nothing is told of the step from
/// a party to its own wait.
struct Edge {
    to: usize,
    need: Option<usize>,
    told: Option<Told>,
}

pub(super) type Told = (LockKey, WaitsBecause);

/// A need that is met when so much of it has come together.
struct Need {
    of: usize,
    missing: u64,
}

/// What the end of a node adds to.
enum Gives {
    Need(usize, u64),
    Pool(usize, u64),
}

/// Permits that come together for a whole queue.
#[derive(Default)]
struct Pool {
    given: u64,
    /// How much each of the queue needs to have come together, and whose need it is.
    wanted: BinaryHeap<Reverse<(u64, usize)>>,
}

/// Everything that one party needs, directly or not.
#[derive(Default)]
pub(super) struct Graph {
    pub(super) nodes: Vec<Node>,
    numbers: HashMap<Node, usize, foldhash::fast::FixedState>,
    edges: Vec<Vec<Edge>>,
    needs: Vec<Need>,
    /// Unmet needs of each node.
    unmet: Vec<usize>,
    /// What the end of each node adds to.
    gives: Vec<Vec<Gives>>,
    pools: Vec<Pool>,
    /// Semaphores of whose whole queue was said what each needs.
    pub(super) pooled: BTreeMap<LockKey, Pooled>,
    /// How much more may be looked at.
    left: usize,
    /// Of whose needs it is.
    whose: BTreeSet<Party>,
    /// Sessions that stand beside waiting sets at another lock than this; looked up once.
    pub(super) may_pass: BTreeMap<LockKey, Rc<BTreeSet<SessionId>>>,
    /// Where a session stands beside waiting sets of others, by lock; looked up once.
    pub(super) beside_sets: BTreeMap<SessionId, BTreeMap<LockKey, Vec<Beside>>>,
}

impl Graph {
    /// Of what these parties need, who are its first nodes. It grows until about so much was looked at.
    pub(super) fn of(parties: BTreeSet<Party>, look_at: usize) -> Self {
        let mut graph = Self { left: look_at, ..Self::default() };
        for party in &parties {
            graph.number(Node::Party(party.clone()));
            graph.spend(1);
        }
        graph.whose = parties;
        graph
    }

    /// Of whose needs it is.
    pub(super) fn whose(&self) -> &BTreeSet<Party> {
        &self.whose
    }

    /// So much was looked at.
    pub(super) fn spend(&mut self, looked_at: usize) {
        self.left = self.left.saturating_sub(looked_at);
    }

    /// How much more may be looked at.
    pub(super) fn left(&self) -> usize {
        self.left
    }

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
        self.spend(1 + from.len());
        for (node, gives) in from {
            let to = self.number(node);
            self.gives[to].push(Gives::Need(need, gives));
            self.edges[of].push(Edge { to, need: Some(need), told: told.cloned() });
        }
    }

    /// A pool, to which the end of these parties adds.
    pub(super) fn pool(&mut self, from: impl Iterator<Item = (Party, u64)>) -> usize {
        let pool = self.pools.len();
        self.pools.push(Pool::default());
        for (party, gives) in from {
            let node = self.number(Node::Party(party));
            self.gives[node].push(Gives::Pool(pool, gives));
            self.spend(1);
        }
        pool
    }

    /// Needs so much in a pool, more than nothing; these show the way to whose end adds to it.
    pub(super) fn need_of_pool(
        &mut self,
        of: usize,
        (pool, missing): (usize, u64),
        ways: impl Iterator<Item = Node>,
        told: &Told,
    ) {
        let need = self.needs.len();
        self.needs.push(Need { of, missing: 1 });
        self.unmet[of] += 1;
        self.pools[pool].wanted.push(Reverse((missing, need)));
        for way in ways {
            self.lead(of, way, Some(need), Some(told));
        }
    }

    /// Nothing that ends: it only shows the way to these.
    pub(super) fn show(&mut self, node: Node, to: impl Iterator<Item = Node>) {
        let of = self.number(node);
        self.unmet[of] = usize::MAX;
        for node in to {
            self.lead(of, node, None, None);
        }
    }

    /// The way from one to another, and what is told of it.
    fn lead(&mut self, of: usize, to: Node, need: Option<usize>, told: Option<&Told>) {
        let to = self.number(to);
        self.edges[of].push(Edge { to, need, told: told.cloned() });
        self.spend(1);
    }

    /// Lets everybody finish who can, until nothing changes; answers who is left.
    pub(super) fn reduce(&mut self) -> Vec<bool> {
        let mut left = vec![true; self.nodes.len()];
        let mut finished: Vec<usize> = (0..left.len()).filter(|node| self.unmet[*node] == 0).collect();
        while let Some(node) = finished.pop() {
            left[node] = false;
            for gives in std::mem::take(&mut self.gives[node]) {
                match gives {
                    Gives::Need(need, gives) => finished.extend(self.give(need, gives)),
                    Gives::Pool(pool, gives) => {
                        self.pools[pool].given += gives;
                        while let Some(need) = self.pools[pool].met() {
                            finished.extend(self.give(need, 1));
                        }
                    }
                }
            }
        }
        left
    }

    /// Adds to a need. Answers who needs nothing else any more.
    fn give(&mut self, need: usize, gives: u64) -> Option<usize> {
        let Need { of, missing } = &mut self.needs[need];
        let met = 0 < *missing && *missing <= gives;
        *missing = missing.saturating_sub(gives);
        if !met {
            return None;
        }
        self.unmet[*of] -= 1;
        (self.unmet[*of] == 0).then_some(*of)
    }

    /// The shortest way from the first party over those left back to itself, by needs that are not met: what is told of its
    /// steps, and of whom.
    pub(super) fn circle(&self, left: &[bool]) -> Option<Vec<(&Node, &Told)>> {
        let mut came: BTreeMap<usize, (usize, usize)> = BTreeMap::new();
        let mut work = VecDeque::from([0]);
        while let Some(party) = work.pop_front() {
            for (at, edge) in self.edges[party].iter().enumerate() {
                if !self.is_open(edge) || !left[edge.to] || came.contains_key(&edge.to) {
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

    /// Of those left, who is waited for by somebody left who is waited for in turn: nobody else is in a circle.
    pub(super) fn waited_for(&self, mut left: Vec<bool>) -> Vec<bool> {
        let mut waiting = vec![0_usize; left.len()];
        let all = (0..left.len()).filter(|node| left[*node]);
        all.flat_map(|node| self.open_ways(node)).for_each(|to| waiting[to] += 1);
        let mut work: Vec<usize> = (0..left.len()).filter(|node| left[*node] && waiting[*node] == 0).collect();
        while let Some(node) = work.pop() {
            left[node] = false;
            for to in self.open_ways(node) {
                waiting[to] -= 1;
                if waiting[to] == 0 && left[to] {
                    work.push(to);
                }
            }
        }
        left
    }

    /// Where the ways by needs of this one that are not met lead to.
    fn open_ways(&self, node: usize) -> impl Iterator<Item = usize> + '_ {
        self.edges[node].iter().filter(|edge| self.is_open(edge)).map(|edge| edge.to)
    }

    fn is_open(&self, edge: &Edge) -> bool {
        edge.need.is_none_or(|need| self.needs[need].missing != 0)
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

impl Pool {
    /// The next need that is met.
    fn met(&mut self) -> Option<usize> {
        let Reverse((wanted, need)) = *self.wanted.peek()?;
        if self.given < wanted {
            return None;
        }
        self.wanted.pop();
        Some(need)
    }
}
