//! Strikes nodes, one kind of fault after the other, and heals them, until it is enough.

use std::time::Duration;

use lockkeeper::client::Client;
use lockkeeper::rpc::RemoteService;
use lockkeeper::service::LockService;
use tokio::time::{sleep, timeout};

use super::faults::{Blow, strike};
use super::report::{Led, Report, Struck};
use super::scene::{Scene, connect};
use super::world::World;
use crate::checker::{Rule, check, told_until};
use crate::cluster::{Cluster, PATIENCE};

/// A long run says so often how far it is.
const TELL_EVERY: Duration = Duration::from_secs(10);
/// So often nodes are asked who leads.
const LOOK_EVERY: Duration = Duration::from_millis(100);
const LOOK_WAIT: Duration = Duration::from_millis(300);

/// When the blows stop.
#[derive(Clone, Copy)]
pub(super) enum Until {
    /// The time is up, and every kind has struck.
    TimeIsUp,
    /// One of these is seen broken, or the time is up.
    Broken(&'static [Rule]),
}

impl Scene {
    /// Strikes nodes until it is enough.
    pub(super) async fn torment(
        &mut self,
        (cluster, world): (&mut Cluster, Option<&World>),
        length: Duration,
        blows: &[Blow],
        until: Until,
    ) -> Report {
        let mut report = Report::default();
        let looking = tokio::spawn(who_leads(self.run.clone(), cluster.endpoints(), report.led.clone()));
        let client = connect(cluster.endpoints());
        let mut told = self.run.now();
        let mut turn = Vec::new();
        while self.run.now() < length || (matches!(until, Until::TimeIsUp) && report.strikes.len() < blows.len()) {
            sleep(self.random.ms(400, 1_000)).await;
            if matches!(until, Until::TimeIsUp) {
                self.heard(&client).await;
            }
            if let Until::Broken(rules) = until {
                let violations = check(&self.run.history(), false);
                if violations.iter().any(|violation| rules.contains(&violation.rule)) {
                    break;
                }
            }
            if told + TELL_EVERY < self.run.now() {
                told = self.run.now();
                let grants = self.run.history().beliefs.len();
                eprintln!("{} of {} s, {grants} grants, {report}", told.as_secs(), length.as_secs());
            }
            for node in 1..=3 {
                let ended = cluster.ended(node);
                assert!(ended.is_none() || !matches!(until, Until::TimeIsUp), "node {node} ended by itself: {ended:?}");
            }
            // Each kind has its turn before any has the next.
            if turn.is_empty() {
                turn = blows.to_vec();
                self.random.shuffle(&mut turn);
            }
            let Some(blow) = turn.pop() else { break };
            let (victims, leader) = self.victims(blow, length, &report);
            let began = self.run.now();
            eprintln!("after {} ms: {} at {victims:?}", began.as_millis(), blow.word());
            let bit = strike(blow, &victims, (cluster, world), &mut self.random).await;
            if !bit {
                eprintln!("{} changed nothing", blow.word());
            }
            report.strikes.push(Struck { blow, victims: victims.len(), leader, bit, began, healed: self.run.now() });
        }
        looking.abort();
        report
    }

    /// Waits until the watchers together have heard what has happened so far. A node that is started again tells what came
    /// after its last checkpoint: what they all passed over nobody would tell any more, and the checker needs every event.
    async fn heard(&self, client: &Client<RemoteService>) {
        let Ok(Ok(totals)) = timeout(PATIENCE, client.totals()).await else { panic!("seed {}: no answer", self.seed) };
        let began = self.run.now();
        while told_until(&self.run.history().tellings).index < totals.index {
            assert!(self.run.now() < began + PATIENCE, "seed {}: watchers hear nothing", self.seed);
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// Whom to strike, and whether the leader is among them.
    fn victims(&mut self, blow: Blow, length: Duration, report: &Report) -> (Vec<usize>, bool) {
        let leader = report.leader().unwrap_or_else(|| 1 + self.random.below(3) as usize);
        let follower = 1 + (leader + self.random.below(2) as usize) % 3;
        let dice = self.random.below(100);
        let late = length / 3 < self.run.now() || blow == Blow::Power;
        let victims = if blow.strikes_all() && late && !report.struck_all(blow) {
            vec![1, 2, 3]
        } else if dice < 15 && blow.strikes_several() {
            vec![leader, follower]
        } else if dice < 70 {
            vec![leader]
        } else {
            vec![follower]
        };
        let leads = victims.contains(&leader);
        (victims, leads)
    }
}

/// Writes down who leads, as far as a node knows that answers.
async fn who_leads(run: std::sync::Arc<super::scene::Run>, endpoints: Vec<String>, led: Led) {
    let nodes: Vec<_> = endpoints.into_iter().map(|endpoint| connect(vec![endpoint])).collect();
    loop {
        for node in &nodes {
            let Ok(Ok(status)) = timeout(LOOK_WAIT, node.service().status()).await else { continue };
            if let Some(leader) = status.leader.and_then(|leader| usize::try_from(leader).ok()) {
                led.told(run.now(), status.term, leader);
            }
        }
        sleep(LOOK_EVERY).await;
    }
}
