//! What is done to nodes: one kind of fault after the other, each with a file of its own where it needs one.

mod bites;
pub(super) mod clocks;
mod descriptors;
pub(super) mod disks;
pub(super) mod links;
pub(super) mod starve;
pub(super) mod syncs;

use std::time::{Duration, Instant};

use rustix::process::Signal;
use tokio::time::sleep;

use super::world::{self, World};
use crate::cluster::{Cluster, PATIENCE};
use crate::random::Random;

/// What is done to the victims of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Blow {
    /// kill -9, and a new start.
    Kill,
    /// SIGSTOP, for up to two and a half TTLs, and SIGCONT.
    Pause,
    /// SIGTERM, and a new start.
    Stop,
    /// Cut off from everybody.
    Partition,
    /// Deaf to the other nodes, or unheard by them.
    OneWay,
    /// Cut off from the other nodes, and not from clients.
    PeersCut,
    /// Each sync takes a quarter to three quarters of a second longer.
    SlowDisk,
    /// A sync fails. The node must stop.
    FailedSync,
    /// No room on the disk. The node must stop, and come back once there is some.
    FullDisk,
    /// What was not synced is lost.
    Power,
    /// The wall clock is set an hour or a day ahead or back.
    Clock,
    /// One twentieth of a processor.
    Starve,
    /// No descriptor more than it has.
    Descriptors,
}

impl Blow {
    const ALL: [Blow; 13] = [
        Blow::Kill,
        Blow::Pause,
        Blow::Stop,
        Blow::Partition,
        Blow::OneWay,
        Blow::PeersCut,
        Blow::SlowDisk,
        Blow::FailedSync,
        Blow::FullDisk,
        Blow::Power,
        Blow::Clock,
        Blow::Starve,
        Blow::Descriptors,
    ];

    /// Its word in `LOCKKEEPER_CRASH_FAULTS`.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Blow::Kill => "kill",
            Blow::Pause => "pause",
            Blow::Stop => "stop",
            Blow::Partition => "partition",
            Blow::OneWay => "oneway",
            Blow::PeersCut => "peerscut",
            Blow::SlowDisk => "slowdisk",
            Blow::FailedSync => "failedsync",
            Blow::FullDisk => "fulldisk",
            Blow::Power => "power",
            Blow::Clock => "clock",
            Blow::Starve => "starve",
            Blow::Descriptors => "descriptors",
        }
    }

    /// Those that were asked for, all of them by default, without those that cannot be done here: they are told aloud.
    pub(super) fn wanted() -> Vec<Self> {
        let words = std::env::var("LOCKKEEPER_CRASH_FAULTS").ok().filter(|words| !words.is_empty());
        let mut wanted = words.map_or(Self::ALL.to_vec(), |words| words.split(',').map(Self::of).collect());
        wanted.retain(|blow| {
            let possible = blow.possible();
            if let Err(why) = &possible {
                world::skipped(&format!("fault {}", blow.word()), why);
            }
            possible.is_ok()
        });
        wanted
    }

    fn of(word: &str) -> Self {
        let known = || Self::ALL.map(Self::word).join(", ");
        let found = Self::ALL.into_iter().find(|blow| blow.word() == word);
        found.unwrap_or_else(|| panic!("LOCKKEEPER_CRASH_FAULTS names {word:?}; there are {}", known()))
    }

    /// Whether it needs nodes with networks, disks and processors of their own.
    pub(super) const fn needs_world(self) -> bool {
        !matches!(self, Blow::Kill | Blow::Pause | Blow::Stop | Blow::Descriptors)
    }

    /// Whether it can be done on this machine, or why it cannot.
    pub(super) fn possible(self) -> Result<(), String> {
        if self.needs_world() {
            world::possible().and_then(|()| links::possible()).and_then(|()| disks::possible())?;
        }
        match self {
            Blow::SlowDisk | Blow::FailedSync => syncs::possible(),
            Blow::Clock => clocks::possible(),
            Blow::Starve => starve::possible(),
            Blow::Kill
            | Blow::Pause
            | Blow::Stop
            | Blow::Partition
            | Blow::OneWay
            | Blow::PeersCut
            | Blow::FullDisk
            | Blow::Power
            | Blow::Descriptors => Ok(()),
        }
    }

    /// Whether it may strike several nodes at once: others leave two that must serve.
    pub(super) const fn strikes_several(self) -> bool {
        matches!(self, Blow::Kill | Blow::Pause | Blow::Stop | Blow::Power)
    }

    /// Whether it may strike all nodes at once. Each node's last checkpoint covers what it has applied, and its events with
    /// it: after a planned stop of all three nobody tells what subscribers had not yet heard, and says so. The checker needs
    /// every event.
    pub(super) const fn strikes_all(self) -> bool {
        matches!(self, Blow::Kill | Blow::Pause | Blow::Power)
    }
}

/// Strikes the victims, and heals them. Answers whether it changed anything; some blows fail the run where they do not.
pub(super) async fn strike(
    blow: Blow,
    victims: &[usize],
    (cluster, world): (&mut Cluster, Option<&World>),
    random: &mut Random,
) -> bool {
    let inside = || world.expect("a world of its own, of which it was made sure");
    let node = victims[0];
    match blow {
        Blow::Kill => {
            victims.iter().for_each(|node| cluster.kill(*node));
            start_again(cluster, victims, random).await;
            true
        }
        Blow::Pause => {
            victims.iter().for_each(|node| cluster.halt(*node));
            sleep(random.ms(200, 2_500)).await;
            victims.iter().for_each(|node| cluster.signal(*node, Signal::CONT));
            true
        }
        Blow::Stop => {
            for node in victims {
                let code = tokio::task::block_in_place(|| cluster.stop(*node));
                assert_eq!(code, Some(0), "node {node}: a planned stop");
            }
            start_again(cluster, victims, random).await;
            true
        }
        Blow::Partition => cut_for(links::from_all(node), cluster, random).await,
        Blow::OneWay if random.below(2) == 0 => cut_for(links::deaf(node), cluster, random).await,
        Blow::OneWay => cut_for(links::unheard(node), cluster, random).await,
        Blow::PeersCut => cut_for(links::from_peers(node), cluster, random).await,
        Blow::SlowDisk => {
            let slow = syncs::Syncs::slow(cluster.process(node), 250 + random.below(500));
            sleep(random.ms(1_500, 3_500)).await;
            0 < slow.end()
        }
        Blow::FailedSync => {
            let process = cluster.process(node);
            let fail =
                if random.below(2) == 0 { syncs::Syncs::fail(process) } else { syncs::Syncs::fail_writes(process) };
            stops_and_says(cluster, node, "cannot ", || ()).await;
            drop(fail);
            start_again(cluster, victims, random).await;
            true
        }
        Blow::FullDisk => {
            // A log file or snapshot that the node removes leaves room for minutes of work: that is filled too.
            stops_and_says(cluster, node, "make room", || disks::fill(inside().folder(), node)).await;
            sleep(random.ms(100, 700)).await;
            disks::empty(inside().folder(), node);
            cluster.spawn(node);
            true
        }
        Blow::Power => {
            cut_power(inside(), cluster, victims);
            start_again(cluster, victims, random).await;
            true
        }
        Blow::Clock => set_clock(inside(), cluster, node, random).await,
        Blow::Starve => starve_for(inside(), cluster, node, random).await,
        Blow::Descriptors => exhaust_for(cluster, node, random).await,
    }
}

/// All power ends at one instant, and comes back.
pub(in crate::crash) fn cut_power(world: &World, cluster: &mut Cluster, victims: &[usize]) {
    victims.iter().for_each(|node| cluster.halt(*node));
    disks::cut_power(world.folder(), victims);
    victims.iter().for_each(|node| cluster.kill(*node));
    victims.iter().for_each(|node| disks::restore_power(world.folder(), *node));
}

async fn set_clock(world: &World, cluster: &Cluster, node: usize, random: &mut Random) -> bool {
    let hour = || tokio::task::block_in_place(|| bites::hour(&cluster.http(node)));
    let before = hour();
    let seconds = [3_600, 86_400, -3_600, -86_400][random.below(4) as usize];
    clocks::set(world.folder(), node, seconds);
    sleep(random.ms(1_500, 3_000)).await;
    let after = hour();
    after.is_some() && before != after
}

async fn starve_for(world: &World, cluster: &Cluster, node: usize, random: &mut Random) -> bool {
    let share = world.share(node).expect("a control group, of which it was made sure");
    let before = bites::throttled(&share);
    starve::starve(&share, cluster.process(node));
    sleep(random.ms(1_500, 4_000)).await;
    starve::feed(&share);
    before < bites::throttled(&share)
}

/// A node that had to open a file meanwhile, for a checkpoint or its log, stops by itself: it is started again.
async fn exhaust_for(cluster: &mut Cluster, node: usize, random: &mut Random) -> bool {
    let address = &cluster.endpoints()[node - 1];
    let limited = descriptors::exhaust(cluster.process(node), address);
    sleep(random.ms(1_500, 3_000)).await;
    let unaccepted = bites::unaccepted(cluster.process(node), address);
    drop(limited);
    let log = cluster.log(node);
    let mut since_its_start = log.lines().rev().take_while(|line| !line.contains(": serving "));
    if since_its_start.any(|line| line.contains("ulimit -n")) {
        stops_and_says(cluster, node, "ulimit -n", || ()).await;
        cluster.spawn(node);
        return true;
    }
    0 < unaccepted
}

async fn start_again(cluster: &mut Cluster, victims: &[usize], random: &mut Random) {
    sleep(random.ms(100, 700)).await;
    victims.iter().for_each(|node| cluster.spawn(*node));
}

/// Makes cuts for a while. They bit if somebody had to send something again.
async fn cut_for(cuts: Vec<links::Cut>, cluster: &Cluster, random: &mut Random) -> bool {
    let nodes = [1, 2, 3].map(|node| cluster.process(node));
    let before = bites::sent_again(&nodes);
    links::cut(&cuts);
    sleep(random.ms(500, 3_500)).await;
    let after = bites::sent_again(&nodes);
    links::heal(&cuts);
    before < after
}

/// Harms a node again and again until it has stopped by itself, with 70 and a line that says what is wrong.
async fn stops_and_says(cluster: &mut Cluster, node: usize, what: &str, harm: impl Fn()) {
    let began = Instant::now();
    while cluster.ended(node).is_none() {
        harm();
        assert!(began.elapsed() < PATIENCE, "node {node} goes on\n{}", cluster.log(node));
        sleep(Duration::from_millis(20)).await;
    }
    let code = cluster.await_end(node);
    let log = cluster.log(node);
    let last = log.lines().last().unwrap_or_default();
    assert!(code == Some(70) && last.contains(what), "node {node} ended with {code:?} and said {last:?}");
}
