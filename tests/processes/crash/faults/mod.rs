//! The kinds of fault that are injected into nodes, with a file for each mechanism.

mod effects;
pub(crate) mod clocks;
mod descriptors;
pub(super) mod disks;
pub(super) mod links;
pub(super) mod starve;
pub(super) mod syncs;

use rustix::process::Signal;
use tokio::time::sleep;

use super::sandbox::{self, Sandbox};
use crate::cluster::Cluster;
use crate::random::Random;
use crate::wait::wait_until;

/// What is done to the victims of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FaultKind {
    /// SIGKILL and a restart.
    Kill,
    /// SIGSTOP for up to two and a half seconds, then SIGCONT.
    Pause,
    /// SIGTERM and a restart.
    Stop,
    /// Partitioned from nodes and clients.
    Partition,
    /// Receives nothing from the other nodes, or sends nothing to them.
    OneWay,
    /// Partitioned from the other nodes, but not from clients.
    PeersCut,
    /// Each sync takes a quarter to three quarters of a second longer.
    SlowDisk,
    /// A sync of the log or a write to it fails. The node must stop.
    FailedSync,
    /// The disk is full. The node must stop, and serve again once there is space.
    FullDisk,
    /// Loses power: everything that was not synced is lost.
    Power,
    /// The wall clock is set an hour or a day ahead or back.
    Clock,
    /// Gets one twentieth of a processor.
    Starve,
    /// Cannot open any more descriptors.
    Descriptors,
}

impl FaultKind {
    const ALL: [FaultKind; 13] = [
        FaultKind::Kill,
        FaultKind::Pause,
        FaultKind::Stop,
        FaultKind::Partition,
        FaultKind::OneWay,
        FaultKind::PeersCut,
        FaultKind::SlowDisk,
        FaultKind::FailedSync,
        FaultKind::FullDisk,
        FaultKind::Power,
        FaultKind::Clock,
        FaultKind::Starve,
        FaultKind::Descriptors,
    ];

    /// The name in `LOCKKEEPER_CRASH_FAULTS`.
    pub(super) const fn word(self) -> &'static str {
        match self {
            FaultKind::Kill => "kill",
            FaultKind::Pause => "pause",
            FaultKind::Stop => "stop",
            FaultKind::Partition => "partition",
            FaultKind::OneWay => "oneway",
            FaultKind::PeersCut => "peerscut",
            FaultKind::SlowDisk => "slowdisk",
            FaultKind::FailedSync => "failedsync",
            FaultKind::FullDisk => "fulldisk",
            FaultKind::Power => "power",
            FaultKind::Clock => "clock",
            FaultKind::Starve => "starve",
            FaultKind::Descriptors => "descriptors",
        }
    }

    /// The kinds that `LOCKKEEPER_CRASH_FAULTS` names, or all of them. Skips and reports the kinds that this machine
    /// does not support.
    pub(super) fn wanted() -> Vec<Self> {
        let words = std::env::var("LOCKKEEPER_CRASH_FAULTS").ok().filter(|words| !words.is_empty());
        let mut wanted = words.map_or(Self::ALL.to_vec(), |words| words.split(',').map(Self::of).collect());
        wanted.retain(|kind| {
            let possible = kind.possible();
            if let Err(why) = &possible {
                sandbox::skipped(&format!("fault {}", kind.word()), why);
            }
            possible.is_ok()
        });
        wanted
    }

    fn of(word: &str) -> Self {
        let known = || Self::ALL.map(Self::word).join(", ");
        let found = Self::ALL.into_iter().find(|kind| kind.word() == word);
        found.unwrap_or_else(|| panic!("LOCKKEEPER_CRASH_FAULTS names {word:?}; there are {}", known()))
    }

    /// Returns true if the fault needs the sandbox.
    pub(super) const fn needs_sandbox(self) -> bool {
        !matches!(self, FaultKind::Kill | FaultKind::Pause | FaultKind::Stop | FaultKind::Descriptors)
    }

    /// Returns an error if this machine does not support the fault.
    pub(super) fn possible(self) -> Result<(), String> {
        if self.needs_sandbox() {
            sandbox::possible().and_then(|()| links::possible()).and_then(|()| disks::possible())?;
        }
        match self {
            FaultKind::SlowDisk | FaultKind::FailedSync => syncs::possible(),
            FaultKind::Clock => clocks::possible(),
            FaultKind::Starve => starve::possible(),
            FaultKind::Kill
            | FaultKind::Pause
            | FaultKind::Stop
            | FaultKind::Partition
            | FaultKind::OneWay
            | FaultKind::PeersCut
            | FaultKind::FullDisk
            | FaultKind::Power
            | FaultKind::Descriptors => Ok(()),
        }
    }

    /// Returns true if the fault may be injected into two nodes at once. All others leave a quorum, which must serve.
    pub(super) const fn may_hit_several(self) -> bool {
        matches!(self, FaultKind::Kill | FaultKind::Pause | FaultKind::Stop | FaultKind::Power)
    }

    /// Returns true if the fault may be injected into all nodes at once. This excludes a planned stop: the last
    /// checkpoint of each node covers everything that it has applied, so after a stop of all nodes none could send the
    /// events that subscribers had not received yet, and the checker needs every event.
    pub(super) const fn may_hit_all(self) -> bool {
        matches!(self, FaultKind::Kill | FaultKind::Pause | FaultKind::Power)
    }
}

/// Injects the fault into the victims and repairs them. Returns whether the fault had an effect; some faults fail the
/// run instead.
pub(super) async fn inject(
    kind: FaultKind,
    victims: &[usize],
    (cluster, sandbox): (&mut Cluster, Option<&Sandbox>),
    random: &mut Random,
) -> bool {
    let inside = || sandbox.expect("the fault needs a sandbox, and there is one");
    let node = victims[0];
    match kind {
        FaultKind::Kill => {
            victims.iter().for_each(|node| cluster.kill(*node));
            start_again(cluster, victims, random).await;
            true
        }
        FaultKind::Pause => {
            victims.iter().for_each(|node| cluster.halt(*node));
            sleep(random.ms(200, 2_500)).await;
            victims.iter().for_each(|node| cluster.signal(*node, Signal::CONT));
            true
        }
        FaultKind::Stop => {
            for node in victims {
                let code = tokio::task::block_in_place(|| cluster.stop(*node));
                assert_eq!(code, Some(0), "node {node}: a planned stop");
            }
            start_again(cluster, victims, random).await;
            true
        }
        FaultKind::Partition => cut_for(links::from_all(node), cluster, random).await,
        FaultKind::OneWay if random.below(2) == 0 => cut_for(links::receives_nothing(node), cluster, random).await,
        FaultKind::OneWay => cut_for(links::sends_nothing(node), cluster, random).await,
        FaultKind::PeersCut => cut_for(links::from_peers(node), cluster, random).await,
        FaultKind::SlowDisk => {
            let slow = syncs::Syncs::slow(cluster.process(node), 250 + random.below(500));
            sleep(random.ms(1_500, 3_500)).await;
            0 < slow.end()
        }
        FaultKind::FailedSync => {
            let process = cluster.process(node);
            let fail =
                if random.below(2) == 0 { syncs::Syncs::fail(process) } else { syncs::Syncs::fail_writes(process) };
            await_stop(cluster, node, "cannot ", || ()).await;
            drop(fail);
            start_again(cluster, victims, random).await;
            true
        }
        FaultKind::FullDisk => {
            // If the node removes a log file or a snapshot, the freed space would last for minutes, so it is filled as
            // well.
            await_stop(cluster, node, "free space", || disks::fill(inside().folder(), node)).await;
            sleep(random.ms(100, 700)).await;
            disks::empty(inside().folder(), node);
            cluster.spawn(node);
            true
        }
        FaultKind::Power => {
            cut_power(inside(), cluster, victims);
            start_again(cluster, victims, random).await;
            true
        }
        FaultKind::Clock => set_clock(inside(), cluster, node, random).await,
        FaultKind::Starve => starve_for(inside(), cluster, node, random).await,
        FaultKind::Descriptors => exhaust_for(cluster, node, random).await,
    }
}

/// Cuts the power of all victims at once, and restores it.
pub(in crate::crash) fn cut_power(sandbox: &Sandbox, cluster: &mut Cluster, victims: &[usize]) {
    victims.iter().for_each(|node| cluster.halt(*node));
    disks::cut_power(sandbox.folder(), victims);
    victims.iter().for_each(|node| cluster.kill(*node));
    victims.iter().for_each(|node| disks::restore_power(sandbox.folder(), *node));
}

async fn set_clock(sandbox: &Sandbox, cluster: &Cluster, node: usize, random: &mut Random) -> bool {
    let hour = || tokio::task::block_in_place(|| effects::hour(&cluster.http(node)));
    let before = hour();
    let seconds = [3_600, 86_400, -3_600, -86_400][random.below(4) as usize];
    clocks::set(sandbox.folder(), node, seconds);
    sleep(random.ms(1_500, 3_000)).await;
    let after = hour();
    after.is_some() && before != after
}

async fn starve_for(sandbox: &Sandbox, cluster: &Cluster, node: usize, random: &mut Random) -> bool {
    let share = sandbox.share(node).expect("a control group, as checked before");
    let before = effects::throttled(&share);
    starve::starve(&share, cluster.process(node));
    sleep(random.ms(1_500, 4_000)).await;
    starve::restore(&share);
    before < effects::throttled(&share)
}

/// Exhausts the descriptors of a node for a random time. A node that had to open a file meanwhile, for a checkpoint or
/// its log, has stopped and is started again.
async fn exhaust_for(cluster: &mut Cluster, node: usize, random: &mut Random) -> bool {
    let address = &cluster.endpoints()[node - 1];
    let limited = descriptors::exhaust(cluster.process(node), address);
    sleep(random.ms(1_500, 3_000)).await;
    let unaccepted = effects::unaccepted(cluster.process(node), address);
    drop(limited);
    let log = cluster.log(node);
    let mut since_its_start = log.lines().rev().take_while(|line| !line.contains(": serving "));
    // A node that starts meanwhile also warns of the low limit, and runs.
    let stopped = "let the node open more files";
    if since_its_start.any(|line| line.contains(stopped)) {
        await_stop(cluster, node, stopped, || ()).await;
        cluster.spawn(node);
        return true;
    }
    0 < unaccepted
}

async fn start_again(cluster: &mut Cluster, victims: &[usize], random: &mut Random) {
    sleep(random.ms(100, 700)).await;
    victims.iter().for_each(|node| cluster.spawn(*node));
}

/// Cuts links for a random time. Returns true if any node had to retransmit packets.
async fn cut_for(cuts: Vec<links::Cut>, cluster: &Cluster, random: &mut Random) -> bool {
    let nodes = [1, 2, 3].map(|node| cluster.process(node));
    let before = effects::sent_again(&nodes);
    links::cut(&cuts);
    sleep(random.ms(500, 3_500)).await;
    let after = effects::sent_again(&nodes);
    links::heal(&cuts);
    before < after
}

/// Repeats a fault until the node has stopped with 70 and a last line that contains `what`.
async fn await_stop(cluster: &mut Cluster, node: usize, what: &str, fault: impl Fn()) {
    wait_until(format_args!("node {node} stops"), async || {
        fault();
        cluster.ended(node).is_some()
    })
    .await;
    let code = cluster.await_end(node).await;
    let log = cluster.log(node);
    let last = log.lines().last().unwrap_or_default();
    assert!(code == Some(70) && last.contains(what), "node {node} ended with {code:?} and printed {last:?}");
}
