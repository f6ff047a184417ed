//! What a run injected, and its consequences.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::faults::FaultKind;
use super::workload::lock;
use crate::checker::{Belief, History};

/// One injected fault.
#[derive(Debug, Clone, Copy)]
pub(super) struct Injection {
    pub(super) kind: FaultKind,
    pub(super) victims: usize,
    /// Whether the leader was one of the victims.
    pub(super) leader: bool,
    /// Whether a change was measured.
    pub(super) took_effect: bool,
    pub(super) began: Duration,
    pub(super) healed: Duration,
}

/// The leader of each term and when it was first reported, in order.
#[derive(Debug, Clone, Default)]
pub(super) struct Led(Arc<Mutex<Vec<(Duration, u64, usize)>>>);

impl Led {
    /// Records the leader of a term.
    pub(super) fn record(&self, now: Duration, term: u64, leader: usize) {
        let mut led = lock(&self.0);
        if led.last().is_none_or(|(_, known, _)| *known < term) {
            led.push((now, term, leader));
        }
    }

    /// The number of changes of leader between two instants.
    fn changes(&self, from: Duration, to: Duration) -> usize {
        lock(&self.0).iter().skip(1).filter(|(since, ..)| (from..to).contains(since)).count()
    }
}

/// The totals of one kind of fault.
#[derive(Default)]
struct Row {
    rounds: usize,
    took_effect: usize,
    leaders: usize,
    changes: usize,
    worst: Duration,
}

/// The injected faults and the leaders of a run.
#[derive(Debug, Default)]
pub(super) struct Report {
    pub(super) injections: Vec<Injection>,
    pub(super) led: Led,
}

impl Report {
    /// The last known leader, if any.
    pub(super) fn leader(&self) -> Option<usize> {
        lock(&self.led.0).last().map(|(_, _, leader)| *leader)
    }

    /// Returns true if this kind was injected into this number of nodes at once.
    pub(super) fn hit(&self, kind: FaultKind, victims: usize) -> bool {
        self.injections.iter().any(|injection| injection.kind == kind && injection.victims == victims)
    }

    /// The number of faults that affected the leader.
    pub(super) fn leaders(&self) -> usize {
        self.injections.iter().filter(|injection| injection.leader).count()
    }

    /// The kinds that were injected and never had an effect, and how often.
    pub(super) fn without_effect(&self) -> BTreeMap<FaultKind, usize> {
        let mut rounds: BTreeMap<FaultKind, usize> = BTreeMap::new();
        for injection in &self.injections {
            *rounds.entry(injection.kind).or_default() += 1;
        }
        for injection in self.injections.iter().filter(|injection| injection.took_effect) {
            rounds.remove(&injection.kind);
        }
        rounds
    }

    /// The number of grants that were requested before a fault of a leader and granted after it.
    pub(super) fn through_a_failover(&self, history: &History) -> usize {
        let leaders: Vec<_> =
            self.injections.iter().filter(|injection| injection.leader).map(|injection| injection.began).collect();
        let through = |belief: &&Belief| leaders.iter().any(|at| belief.asked < *at && *at < belief.begin);
        history.beliefs.iter().filter(through).count()
    }

    /// A table with one row for each kind: its rounds, those with an effect, those that affected the leader, the
    /// changes of leader, and the longest time between two grants.
    pub(super) fn table(&self, history: &History) -> String {
        let mut granted: Vec<_> = history.beliefs.iter().map(|belief| belief.begin).collect();
        granted.sort();
        let mut rows: BTreeMap<FaultKind, Row> = BTreeMap::new();
        for (at, injection) in self.injections.iter().enumerate() {
            // Everything before the next fault is counted as a consequence of this one.
            let end = self.injections.get(at + 1).map_or(Duration::MAX, |next| next.began);
            let gaps = granted.windows(2).filter(|gap| injection.began < gap[1] && gap[0] < end);
            let worst = gaps.map(|gap| gap[1] - gap[0]).max().unwrap_or_default();
            let row = rows.entry(injection.kind).or_default();
            row.rounds += 1;
            row.took_effect += usize::from(injection.took_effect);
            row.leaders += usize::from(injection.leader);
            row.changes += self.led.changes(injection.began, end);
            row.worst = row.worst.max(worst);
        }
        let mut text =
            format!("{:12} rounds  effective  leader affected  leader changes  longest without a grant\n", "fault");
        for (kind, Row { rounds, took_effect, leaders, changes, worst }) in rows {
            let (kind, worst) = (kind.word(), worst.as_secs_f64());
            text += &format!("{kind:12} {rounds:6}  {took_effect:9}  {leaders:15}  {changes:14}  {worst:21.2} s\n");
        }
        text
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let several = |victims| self.injections.iter().filter(|injection| injection.victims == victims).count();
        let healing: Duration =
            self.injections.iter().map(|injection| injection.healed.saturating_sub(injection.began)).sum();
        let (rounds, leaders, two, all) = (self.injections.len(), self.leaders(), several(2), several(3));
        write!(
            f,
            "{rounds} rounds of faults, {leaders} with the leader, {two} with two nodes, {all} with all three; "
        )?;
        write!(f, "{:.0} s under a fault", healing.as_secs_f64())
    }
}

/// A kind without an effect is reported from its first round, until a round has one.
#[test]
fn a_kind_without_an_effect_is_reported_from_its_first_round() {
    let injection = |kind, took_effect| {
        let (began, healed) = (Duration::ZERO, Duration::ZERO);
        Injection { kind, victims: 1, leader: false, took_effect, began, healed }
    };
    let mut report = Report::default();
    report.injections.push(injection(FaultKind::Starve, false));
    report.injections.push(injection(FaultKind::Kill, true));
    assert_eq!(report.without_effect(), BTreeMap::from([(FaultKind::Starve, 1)]));
    report.injections.push(injection(FaultKind::Starve, true));
    assert_eq!(report.without_effect(), BTreeMap::new());
}
