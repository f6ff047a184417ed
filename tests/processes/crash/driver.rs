//! Injects faults into nodes, one kind after the other, and repairs the nodes.

use std::time::Duration;

use lockkeeper::client::Client;
use lockkeeper::rpc::RemoteService;
use lockkeeper::service::LockService;
use tokio::time::{sleep, timeout};

use super::faults::{FaultKind, inject};
use super::report::{Injection, Led, Report};
use super::sandbox::Sandbox;
use super::workload::{Workload, connect};
use crate::checker::{Rule, check, reported_until};
use crate::cluster::{Cluster, PATIENCE};

/// How often a long run prints its progress.
const REPORT_EVERY: Duration = Duration::from_secs(10);
/// How often nodes are asked for the leader.
const STATUS_EVERY: Duration = Duration::from_millis(100);
const STATUS_WAIT: Duration = Duration::from_millis(300);
/// How often a kind of fault is injected until it takes effect. Half of the changes of a clock cannot be measured: an
/// answer keeps its date until a clock that was set back has caught up.
const ROUNDS_WITHOUT_EFFECT_MAX: usize = 20;

/// When a run stops to inject faults.
#[derive(Clone, Copy)]
pub(super) enum Until {
    /// The time is up, and every kind was injected and took effect, or was repeated often enough.
    TimeIsUp,
    /// One of these rules is broken, or the time is up.
    Broken(&'static [Rule]),
}

impl Workload {
    /// Injects faults until the condition is met.
    pub(super) async fn inject_faults(
        &mut self,
        (cluster, sandbox): (&mut Cluster, Option<&Sandbox>),
        length: Duration,
        kinds: &[FaultKind],
        until: Until,
    ) -> Report {
        let mut report = Report::default();
        let recording = tokio::spawn(record_leaders(self.run.clone(), cluster.endpoints(), report.led.clone()));
        let client = connect(cluster.endpoints());
        let mut reported = self.run.now();
        let mut turn = Vec::new();
        while let Some(kind) = self.next_kind(&mut turn, (kinds, length), until, &report) {
            sleep(self.random.ms(400, 1_000)).await;
            if matches!(until, Until::TimeIsUp) {
                self.await_watchers(&client).await;
            }
            if let Until::Broken(rules) = until {
                let violations = check(&self.run.history(), false);
                if violations.iter().any(|violation| rules.contains(&violation.rule)) {
                    break;
                }
            }
            if reported + REPORT_EVERY < self.run.now() {
                reported = self.run.now();
                let grants = self.run.history().beliefs.len();
                eprintln!("{} of {} s, {grants} grants, {report}", reported.as_secs(), length.as_secs());
            }
            for node in 1..=3 {
                let ended = cluster.ended(node);
                assert!(
                    ended.is_none() || !matches!(until, Until::TimeIsUp),
                    "node {node} ended unexpectedly: {ended:?}"
                );
            }
            let (victims, leader) = self.victims(kind, length, &report);
            let began = self.run.now();
            eprintln!("after {} ms: {} at {victims:?}", began.as_millis(), kind.word());
            let took_effect = inject(kind, &victims, (cluster, sandbox), &mut self.random).await;
            if !took_effect {
                eprintln!("{} had no effect", kind.word());
            }
            report.injections.push(Injection {
                kind,
                victims: victims.len(),
                leader,
                took_effect,
                began,
                healed: self.run.now(),
            });
        }
        recording.abort();
        report
    }

    /// Chooses the next kind of fault. Each kind is injected once before any kind is injected again. When the time is
    /// up, only those without an effect are repeated.
    fn next_kind(
        &mut self,
        turn: &mut Vec<FaultKind>,
        (kinds, length): (&[FaultKind], Duration),
        until: Until,
        report: &Report,
    ) -> Option<FaultKind> {
        if length <= self.run.now() && (matches!(until, Until::Broken(_)) || kinds.len() <= report.injections.len()) {
            let mut without_effect = report.without_effect().into_iter();
            return without_effect.find(|(_, rounds)| *rounds < ROUNDS_WITHOUT_EFFECT_MAX).map(|(kind, _)| kind);
        }
        if turn.is_empty() {
            *turn = kinds.to_vec();
            self.random.shuffle(turn);
        }
        turn.pop()
    }

    /// Waits until the watchers together have received all events so far. A restarted node sends only events after its
    /// last checkpoint, so an event that no watcher has received before could be lost, and the checker needs every
    /// event.
    async fn await_watchers(&self, client: &Client<RemoteService>) {
        let Ok(Ok(totals)) = timeout(PATIENCE, client.totals()).await else { panic!("seed {}: no answer", self.seed) };
        let began = self.run.now();
        while reported_until(&self.run.history().event_logs).index < totals.index {
            assert!(self.run.now() < began + PATIENCE, "seed {}: watchers receive nothing", self.seed);
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// Chooses the nodes for a fault. Returns also whether the leader is among them. The first fault of a kind that may
    /// hit two nodes but not all of them hits two.
    fn victims(&mut self, kind: FaultKind, length: Duration, report: &Report) -> (Vec<usize>, bool) {
        let leader = report.leader().unwrap_or_else(|| 1 + self.random.below(3) as usize);
        let follower = 1 + (leader + self.random.below(2) as usize) % 3;
        let roll = self.random.below(100);
        let late = length / 3 < self.run.now() || kind == FaultKind::Power;
        let two = roll < 15 || (!kind.may_hit_all() && !report.hit(kind, 2));
        let victims = if kind.may_hit_all() && late && !report.hit(kind, 3) {
            vec![1, 2, 3]
        } else if two && kind.may_hit_several() {
            vec![leader, follower]
        } else if roll < 70 {
            vec![leader]
        } else {
            vec![follower]
        };
        let leads = victims.contains(&leader);
        (victims, leads)
    }
}

/// Records the leader that the nodes report.
async fn record_leaders(run: std::sync::Arc<super::workload::Run>, endpoints: Vec<String>, led: Led) {
    let nodes: Vec<_> = endpoints.into_iter().map(|endpoint| connect(vec![endpoint])).collect();
    loop {
        for node in &nodes {
            let Ok(Ok(status)) = timeout(STATUS_WAIT, node.service().status()).await else { continue };
            if let Some(leader) = status.leader.and_then(|leader| usize::try_from(leader).ok()) {
                led.record(run.now(), status.term, leader);
            }
        }
        sleep(STATUS_EVERY).await;
    }
}
