//! The schedule of a drill: which fault hits which node, and what must be true again before the next one.

use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use rustix::process::Signal;
use tokio::time::{sleep, timeout};

use super::contenders;
use super::journal::{Fault, Journal, Kind, NodeState};
use super::live::Live;
use super::nodes::{IDS, Nodes};
use super::probes::Kept;
use crate::cli::connect::{Client, connect_to};
use crate::cli::error::Failure;
use crate::cli::output::Output;
use crate::clock::{Clock, SystemClock};
use crate::config::Profile;
use crate::limits::{
    DRILL_ANSWER_MS, DRILL_LOOK_MS, DRILL_PAUSE_MS, DRILL_RECOVERY_MS, DRILL_ROUNDS_MAX, DRILL_TTL_MS,
};
use crate::service::{ErrorCode, LockService, Operation, Status};

/// Which node is hit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Victim {
    /// The node that leads.
    Leader,
    /// A node that does not lead.
    Follower,
    /// Any of the nodes.
    Random,
}

/// What a drill does.
#[derive(Debug, Clone, Copy, Args)]
pub(super) struct Plan {
    /// The node that is killed and stopped
    #[arg(long = "kill", default_value = "leader", value_enum, value_name = "NODE")]
    victim: Victim,
    /// Number of rounds. Each has a kill, an orderly stop and a transfer of leadership
    #[arg(long, default_value_t = ROUNDS, value_parser = clap::value_parser!(u32).range(1..=i64::from(DRILL_ROUNDS_MAX)), value_name = "COUNT")]
    rounds: u32,
    /// Pause the node instead of killing it, and continue it later
    #[arg(long)]
    pause: bool,
    /// Kill or pause all nodes at once
    #[arg(long)]
    all: bool,
}

/// Rounds without the option.
const ROUNDS: u32 = 5;

impl Plan {
    /// The faults of one round.
    fn kinds(self) -> [Kind; 3] {
        let first = match (self.all, self.pause) {
            (true, _) => Kind::All,
            (false, true) => Kind::Pause,
            (false, false) => Kind::Kill,
        };
        [first, Kind::Stop, Kind::Transfer]
    }
}

/// Runs all rounds. The nodes still run afterwards.
pub(super) async fn run(
    plan: Plan,
    profile: Profile,
    nodes: &mut Nodes,
    journal: &Arc<Journal>,
    output: &Output,
) -> Result<(), Failure> {
    let endpoints = nodes.endpoints.clone();
    let recovery = Duration::from_millis(DRILL_RECOVERY_MS);
    let client = connect_to(&endpoints, recovery)?;
    let each = endpoints.iter().map(|one| connect_to(std::slice::from_ref(one), recovery));
    let each = each.collect::<Result<Vec<_>, _>>()?;
    let mut drill = Drill { plan, nodes, journal, client, each };
    for id in IDS {
        drill.start(id)?;
    }
    recovered("the start", drill.healthy()).await?;
    // A connection for each client, as separate programs would have. The addresses are legal, as those above.
    let connect = || connect_to(&endpoints, recovery).unwrap_or_else(|_| drill.client.clone());
    let ttl = ttl(profile);
    let mut kept = recovered("the start", Kept::take(journal, ttl, connect)).await??;
    let _contenders = contenders::start(journal, ttl, connect);
    let live = Live::start(plan.rounds, journal, &drill.client, output);
    for round in 1..=plan.rounds {
        for kind in plan.kinds() {
            recovered(kind.name(), drill.fault(kind, round)).await??;
            recovered(kind.name(), kept.check()).await??;
        }
        live.round(round);
    }
    // A session that a fault has shortened ends when its next renewal is due, after a third of its TTL.
    sleep(ttl / 2).await;
    recovered("the last round", kept.expire()).await?
}

/// Returns the TTL of the sessions of a drill.
fn ttl(profile: Profile) -> Duration {
    Duration::from_millis(DRILL_TTL_MS.max(profile.timing().ttl_ms_min))
}

struct Drill<'a> {
    plan: Plan,
    nodes: &'a mut Nodes,
    journal: &'a Arc<Journal>,
    /// A client of all nodes.
    client: Client,
    /// A client of each node alone.
    each: Vec<Client>,
}

impl Drill<'_> {
    /// Causes one fault while all nodes are healthy and all contenders are served, and waits until they are again.
    async fn fault(&mut self, kind: Kind, round: u32) -> Result<(), Failure> {
        let leader = self.healthy().await;
        self.journal.all_served_since(self.journal.now()).await;
        let nodes = match kind {
            Kind::All => IDS.to_vec(),
            Kind::Kill | Kind::Pause | Kind::Stop => vec![self.victim(leader)],
            Kind::Transfer => vec![a_follower(leader)],
        };
        let at_us = self.journal.now();
        self.journal.lock().faults.push(Fault { kind, round, nodes: nodes.clone(), at_us });
        match (kind, self.plan.pause) {
            (Kind::Kill, _) | (Kind::All, false) => self.kill(&nodes, Signal::KILL, at_us).await?,
            (Kind::Stop, _) => self.kill(&nodes, Signal::TERM, at_us).await?,
            (Kind::Pause, _) | (Kind::All, true) => self.pause(&nodes, at_us).await?,
            (Kind::Transfer, _) => self.transfer(nodes[0]).await,
        }
        self.journal.all_served_since(at_us).await;
        self.healthy().await;
        Ok(())
    }

    /// Sends a signal that ends these nodes, and starts them again: at once if all are hit, and otherwise when the
    /// others serve all contenders.
    async fn kill(&mut self, nodes: &[u64], signal: Signal, at_us: u64) -> Result<(), Failure> {
        for id in nodes {
            self.nodes.signal(*id, signal)?;
        }
        for id in nodes {
            self.nodes.ended(*id).await?;
            self.journal.state(*id, NodeState::Down);
        }
        if nodes.len() < IDS.len() {
            self.journal.all_served_since(at_us).await;
        }
        nodes.iter().try_for_each(|id| self.start(*id))
    }

    /// Pauses these nodes, and continues them when the others serve all contenders, or after a while if none is left.
    async fn pause(&mut self, nodes: &[u64], at_us: u64) -> Result<(), Failure> {
        for id in nodes {
            self.nodes.signal(*id, Signal::STOP)?;
            self.journal.state(*id, NodeState::Paused);
        }
        if nodes.len() < IDS.len() {
            self.journal.all_served_since(at_us).await;
        } else {
            sleep(Duration::from_millis(DRILL_PAUSE_MS)).await;
        }
        for id in nodes {
            self.nodes.signal(*id, Signal::CONT)?;
            self.journal.state(*id, NodeState::Up);
        }
        Ok(())
    }

    /// Transfers leadership. A node that is not ready for it yet is asked again.
    async fn transfer(&self, to: u64) {
        while let Err(error) = self.client.service().operate(Operation::Transfer(to)).await {
            tracing::info!(%error, "leadership was not transferred");
            sleep(Duration::from_millis(DRILL_LOOK_MS)).await;
        }
    }

    fn start(&mut self, id: u64) -> Result<(), Failure> {
        self.nodes.start(id)?;
        self.journal.state(id, NodeState::Up);
        Ok(())
    }

    fn victim(&self, leader: u64) -> u64 {
        match self.plan.victim {
            Victim::Leader => leader,
            Victim::Follower => a_follower(leader),
            Victim::Random => IDS[random_below(IDS.len())],
        }
    }

    /// Waits until each node answers, names the same leader, and counts all nodes as healthy. Returns the leader.
    async fn healthy(&self) -> u64 {
        loop {
            let answers = futures_util::future::join_all(self.each.iter().map(status)).await;
            let leaders: Vec<_> = answers.iter().map(|answer| answer.as_ref().and_then(led_in_health)).collect();
            if let Some(leader) = leaders[0].filter(|_| leaders.iter().all(|leader| *leader == leaders[0])) {
                return leader;
            }
            sleep(Duration::from_millis(DRILL_LOOK_MS)).await;
        }
    }
}

/// Waits for what follows a fault, and fails if that takes too long.
async fn recovered<T>(after: &str, condition: impl Future<Output = T>) -> Result<T, Failure> {
    timeout(Duration::from_millis(DRILL_RECOVERY_MS), condition).await.map_err(|_| {
        let detail = format!("the cluster did not recover within {} s after {after}", DRILL_RECOVERY_MS / 1000);
        Failure::new(ErrorCode::NoLeader, detail)
    })
}

/// Asks one node for the state of the cluster.
async fn status(client: &Client) -> Option<Status> {
    timeout(Duration::from_millis(DRILL_ANSWER_MS), client.service().status()).await.ok()?.ok()
}

/// The leader, if all nodes are healthy.
fn led_in_health(status: &Status) -> Option<u64> {
    let healthy = status.nodes.iter().filter(|node| node.healthy == Some(true)).count();
    status.leader.filter(|_| healthy == IDS.len())
}

fn a_follower(leader: u64) -> u64 {
    let followers: Vec<_> = IDS.into_iter().filter(|id| *id != leader).collect();
    followers[random_below(followers.len())]
}

fn random_below(count: usize) -> usize {
    usize::try_from(SystemClock::new().random_below(count as u64)).unwrap_or(0)
}
