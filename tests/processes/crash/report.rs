//! What a run did, and what it cost.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::faults::Blow;
use super::scene::lock;
use crate::checker::{Belief, History};

/// One round of blows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Struck {
    pub(super) blow: Blow,
    pub(super) victims: usize,
    /// Whether the leader was among them.
    pub(super) leader: bool,
    /// Whether it changed anything.
    pub(super) bit: bool,
    pub(super) began: Duration,
    pub(super) healed: Duration,
}

/// Who led since when, in order.
#[derive(Debug, Clone, Default)]
pub(super) struct Led(Arc<Mutex<Vec<(Duration, u64, usize)>>>);

impl Led {
    /// A node was told to lead in a term.
    pub(super) fn told(&self, now: Duration, term: u64, leader: usize) {
        let mut led = lock(&self.0);
        if led.last().is_none_or(|(_, known, _)| *known < term) {
            led.push((now, term, leader));
        }
    }

    /// How often another term began under a leader between two instants.
    fn changes(&self, from: Duration, to: Duration) -> usize {
        lock(&self.0).iter().skip(1).filter(|(since, ..)| (from..to).contains(since)).count()
    }
}

/// What all blows of one kind came to.
#[derive(Default)]
struct Row {
    rounds: usize,
    bit: usize,
    leaders: usize,
    changes: usize,
    worst: Duration,
}

/// What was done, and who led meanwhile.
#[derive(Debug, Default)]
pub(super) struct Report {
    pub(super) strikes: Vec<Struck>,
    pub(super) led: Led,
}

impl Report {
    /// Who leads, as far as is known.
    pub(super) fn leader(&self) -> Option<usize> {
        lock(&self.led.0).last().map(|(_, _, leader)| *leader)
    }

    /// Whether all nodes were struck at once, by this.
    pub(super) fn struck_all(&self, blow: Blow) -> bool {
        self.strikes.iter().any(|struck| struck.blow == blow && struck.victims == 3)
    }

    /// How often the leader was among the victims.
    pub(super) fn leaders(&self) -> usize {
        self.strikes.iter().filter(|struck| struck.leader).count()
    }

    /// Kinds that struck at least so often and never changed anything: the run does not prove what it says of them.
    pub(super) fn toothless(&self, strikes_min: usize) -> Vec<&'static str> {
        let mut bites: BTreeMap<Blow, (usize, usize)> = BTreeMap::new();
        for struck in &self.strikes {
            let row = bites.entry(struck.blow).or_default();
            *row = (row.0 + 1, row.1 + usize::from(struck.bit));
        }
        // Of a clock only a step ahead is seen: an answer keeps its date until that is over.
        let least = |clock: bool| if clock { 6 * strikes_min } else { strikes_min };
        let toothless =
            bites.iter().filter(|(blow, (struck, bit))| least(**blow == Blow::Clock) <= *struck && *bit == 0);
        toothless.map(|(blow, _)| blow.word()).collect()
    }

    /// Grants that were asked for before a leader was struck and given after.
    pub(super) fn through_a_failover(&self, history: &History) -> usize {
        let leaders: Vec<_> = self.strikes.iter().filter(|struck| struck.leader).map(|struck| struck.began).collect();
        let through = |belief: &&Belief| leaders.iter().any(|at| belief.asked < *at && *at < belief.begin);
        history.beliefs.iter().filter(through).count()
    }

    /// For each kind: its rounds, those that bit, those with the leader, changes of leader, and the longest time
    /// between two grants.
    pub(super) fn table(&self, history: &History) -> String {
        let mut granted: Vec<_> = history.beliefs.iter().map(|belief| belief.begin).collect();
        granted.sort();
        let mut rows: BTreeMap<Blow, Row> = BTreeMap::new();
        for (at, struck) in self.strikes.iter().enumerate() {
            // What comes before the next blow is the consequence of this one.
            let end = self.strikes.get(at + 1).map_or(Duration::MAX, |next| next.began);
            let gaps = granted.windows(2).filter(|gap| struck.began < gap[1] && gap[0] < end);
            let worst = gaps.map(|gap| gap[1] - gap[0]).max().unwrap_or_default();
            let row = rows.entry(struck.blow).or_default();
            row.rounds += 1;
            row.bit += usize::from(struck.bit);
            row.leaders += usize::from(struck.leader);
            row.changes += self.led.changes(struck.began, end);
            row.worst = row.worst.max(worst);
        }
        let mut text = format!("{:12} rounds  bit  leader struck  leader changes  longest without a grant\n", "fault");
        for (blow, Row { rounds, bit, leaders, changes, worst }) in rows {
            let (blow, worst) = (blow.word(), worst.as_secs_f64());
            text += &format!("{blow:12} {rounds:6}  {bit:3}  {leaders:13}  {changes:14}  {worst:21.2} s\n");
        }
        text
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let several = |victims| self.strikes.iter().filter(|struck| struck.victims == victims).count();
        let healing: Duration = self.strikes.iter().map(|struck| struck.healed.saturating_sub(struck.began)).sum();
        let (rounds, leaders, two, all) = (self.strikes.len(), self.leaders(), several(2), several(3));
        write!(f, "{rounds} rounds of blows, {leaders} with the leader, {two} with two nodes, {all} with all three; ")?;
        write!(f, "{:.0} s under a fault", healing.as_secs_f64())
    }
}
