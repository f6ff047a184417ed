//! One simulated cluster with its clients, and the driver that injects faults between two steps.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use lockkeeper::storage::{LogId, Wal};
use turmoil::Sim;

use crate::clients::{CLIENT_HOSTS, Caller, contend, look};
use crate::clock::{SimClock, freeze};
use crate::injected::{self, Kind, Tried};
use crate::invariants::{coverage, progress};
use crate::nodes::{Order, Place, boot};
use crate::random::Random;
use crate::run::{NODE_HOSTS, NODES, Run};
use crate::settle;

/// A step of simulated time, in which each host runs once.
const TICK: Duration = Duration::from_millis(1);

/// What the driver did and observed.
#[derive(Debug, Default, Clone)]
pub(crate) struct Actions {
    pub(crate) crashes: usize,
    /// Entries that were in a log but not durable when the power of their node was cut.
    pub(crate) entries_lost: u64,
    /// When a leader was crashed or partitioned.
    pub(crate) leaders_hit: Vec<Duration>,
}

/// The whole simulation.
pub(crate) struct World {
    pub(crate) sim: Sim<'static>,
    pub(crate) run: Arc<Run>,
    pub(crate) places: Vec<Arc<Place>>,
    pub(crate) clocks: Vec<Arc<SimClock>>,
    pub(crate) random: Random,
    pub(crate) actions: Actions,
    /// When the last fault ended.
    pub(crate) healed: Duration,
    /// The stalled disks, by node.
    stalled: [Option<Tried>; NODES],
    /// Changed clocks: the fault, the clock, which of its two readings was changed, and how often that had been read by
    /// then.
    clocks_set: Vec<(Tried, Arc<SimClock>, usize, u64)>,
}

impl World {
    /// A cluster of three nodes that start now.
    pub(crate) fn new(seed: u64) -> Self {
        lockkeeper::clock::seed_draws(seed);
        let mut random = Random::new(seed);
        let mut sim = turmoil::Builder::new()
            .rng_seed(random.next())
            .tick_duration(TICK)
            .min_message_latency(Duration::from_micros(200))
            .max_message_latency(Duration::from_millis(3))
            .simulation_duration(Duration::from_secs(100_000))
            .tcp_capacity(100_000)
            .enable_random_order()
            .build();
        let run = Arc::new(Run::new());
        let mut places = Vec::new();
        for (index, host) in NODE_HOSTS.into_iter().enumerate() {
            let place = Arc::new(Place::new(index, Arc::clone(&run), &mut random));
            places.push(Arc::clone(&place));
            sim.host(host, move || boot(Arc::clone(&place)));
        }
        let clocks = CLIENT_HOSTS.map(|_| Arc::new(SimClock::new(&mut random, crate::DRIFT_MILLIONTHS))).into();
        let (actions, healed) = (Actions::default(), Duration::ZERO);
        let (stalled, clocks_set) = (<[_; NODES]>::default(), Vec::new());
        Self { sim, run, places, clocks, random, actions, healed, stalled, clocks_set }
    }

    pub(crate) fn now(&self) -> Duration {
        self.sim.elapsed()
    }

    /// The state of the client with this number.
    pub(crate) fn caller(&mut self, index: usize) -> Caller {
        let (run, clock) = (Arc::clone(&self.run), Arc::clone(&self.clocks[index]));
        Caller { index, run, clock, random: self.random.fork() }
    }

    /// Starts a contending client on its host.
    pub(crate) fn add_contender(&mut self, index: usize) {
        let caller = self.caller(index);
        self.sim.host(CLIENT_HOSTS[index], move || contend(caller.clone()));
    }

    /// Starts a client on its host that repeatedly reads holders.
    pub(crate) fn add_looker(&mut self, index: usize) {
        let caller = self.caller(index);
        self.sim.host(CLIENT_HOSTS[index], move || look(caller.clone()));
    }

    /// Runs a client of a scenario on its own host.
    pub(crate) fn add_client<F>(&mut self, index: usize, act: impl FnOnce(Caller) -> F) -> Task
    where
        F: Future<Output = ()> + 'static,
    {
        let caller = self.caller(index);
        let done = Rc::new(RefCell::new(false));
        let (acting, is_done) = (act(caller), Rc::clone(&done));
        self.sim.client(CLIENT_HOSTS[index], async move {
            acting.await;
            is_done.replace(true);
            Ok(())
        });
        Task(done)
    }

    /// Runs one step.
    pub(crate) fn step(&mut self) {
        if let Err(error) = self.sim.step() {
            self.run.found(progress::NAME, error.to_string());
            settle::end(self);
        }
    }

    pub(crate) fn pass(&mut self, time: Duration) {
        let until = self.now() + time;
        while self.now() < until {
            self.step();
        }
    }

    /// Runs until the condition holds or the limit is reached. Returns whether it holds.
    pub(crate) fn until(&mut self, limit: Duration, mut so: impl FnMut(&mut Self) -> bool) -> bool {
        let last = self.now() + limit;
        while !so(self) {
            if last <= self.now() {
                return false;
            }
            self.step();
        }
        true
    }

    /// Runs until a condition holds that the scenario requires. If the limit is reached first, the run fails for lack
    /// of coverage.
    pub(crate) fn must(&mut self, what: &'static str, limit: Duration, so: impl FnMut(&mut Self) -> bool) {
        if !self.until(limit, so) {
            self.run.found(coverage::NAME, format!("{what} did not happen within {limit:?}"));
            settle::end(self);
        }
    }

    /// The node that leads in the highest term, as the nodes report it.
    pub(crate) fn leader(&self) -> Option<usize> {
        let leads = |place: &Arc<Place>| {
            let view = place.node()?.views().borrow().clone();
            view.own_term_applied.then_some((view.term, place.index))
        };
        self.places.iter().filter_map(leads).max().map(|(_, index)| index)
    }

    /// Waits for a leader and returns its index.
    pub(crate) fn await_leader(&mut self) -> usize {
        self.must("a leader", Duration::from_secs(10), |world| world.leader().is_some());
        self.leader().unwrap_or_default()
    }

    /// Waits until a node other than this one leads.
    pub(crate) fn await_other_leader(&mut self, than: usize) -> usize {
        self.must("another leader", Duration::from_secs(10), |world| world.leader().is_some_and(|now| now != than));
        self.leader().unwrap_or_default()
    }

    fn trace(&self, what: impl FnOnce() -> String) {
        self.run.trace("hand", what);
    }

    /// The indexes of the newest entry in a node's log, and of the newest durable one.
    pub(crate) fn log_of(&self, node: usize) -> (u64, u64) {
        let index = |id: Option<LogId>| id.map_or(0, |id| id.index);
        let wal = &self.places[node].disk.wal;
        (index(wal.state().last), index(wal.synced()))
    }

    /// How often data of a client arrived at a node.
    pub(crate) fn arrivals_at(&self, node: usize) -> usize {
        self.run.notes().arrivals[node]
    }

    /// Index up to which a node has purged its log.
    pub(crate) fn purged_of(&self, node: usize) -> u64 {
        self.places[node].disk.wal.state().purged.map_or(0, |id| id.index)
    }

    /// Cuts the power of a node. Everything that its disk had not synced is lost.
    pub(crate) fn crash(&mut self, node: usize) {
        if self.leader() == Some(node) {
            self.actions.leaders_hit.push(self.now());
        }
        let place = Arc::clone(&self.places[node]);
        let (last, synced) = self.log_of(node);
        self.actions.crashes += 1;
        self.actions.entries_lost += last.saturating_sub(synced);
        self.look_at_disk(node);
        let mut notes = self.run.notes();
        let tried = notes.injected.tried(injected::POWER_CUT);
        if synced < last {
            notes.injected.took_effect(tried);
        }
        drop(notes);
        self.trace(|| format!("crash of {}, {last} written, {synced} synced", NODE_HOSTS[node]));
        freeze(true);
        place.forget();
        self.sim.crash(NODE_HOSTS[node]);
        freeze(false);
        place.disk.crash();
    }

    /// Kills the process of a node: its host refuses connections until the restart.
    pub(crate) fn kill(&mut self, node: usize) {
        self.run.notes().killed.insert(NODE_HOSTS[node]);
        self.crash(node);
    }

    /// Starts a crashed node again.
    pub(crate) fn restart(&mut self, node: usize) {
        self.run.notes().killed.remove(NODE_HOSTS[node]);
        self.stalled[node] = None;
        self.places[node].stalled.store(false, Ordering::Relaxed);
        self.sim.bounce(NODE_HOSTS[node]);
    }

    /// Drops all messages between two hosts.
    pub(crate) fn cut(&mut self, one: &'static str, other: &'static str) {
        self.trace(|| format!("{one} and {other} are partitioned"));
        let between_nodes = [one, other].iter().all(|host| NODE_HOSTS.contains(host));
        let kind = if between_nodes { injected::NODES_APART } else { injected::CLIENT_APART };
        self.breaks(kind, &[(one, other), (other, one)]);
        self.sim.partition(one, other);
    }

    /// Drops all messages from one host to another.
    pub(crate) fn cut_one_way(&mut self, from: &'static str, to: &'static str) {
        self.trace(|| format!("nothing gets from {from} to {to}"));
        self.breaks(injected::ONE_WAY, &[(from, to)]);
        self.sim.partition_oneway(from, to);
    }

    fn breaks(&self, kind: Kind, ways: &[(&'static str, &'static str)]) {
        let mut notes = self.run.notes();
        let tried = notes.injected.tried(kind);
        ways.iter().for_each(|(from, to)| notes.injected.breaks(tried, from, to));
    }

    pub(crate) fn repair(&mut self, one: &'static str, other: &'static str) {
        self.run.notes().injected.joins(one, other);
        self.trace(|| format!("{one} and {other} are joined"));
        self.sim.repair(one, other);
    }

    /// Partitions a node from the other nodes; its clients still reach it.
    pub(crate) fn cut_from_peers(&mut self, node: usize) {
        if self.leader() == Some(node) {
            self.actions.leaders_hit.push(self.now());
        }
        for other in (0..NODES).filter(|other| *other != node) {
            self.cut(NODE_HOSTS[node], NODE_HOSTS[other]);
        }
    }

    pub(crate) fn repair_with_peers(&mut self, node: usize) {
        for other in (0..NODES).filter(|other| *other != node) {
            self.repair(NODE_HOSTS[node], NODE_HOSTS[other]);
        }
    }

    /// Delays all messages between two hosts until they are released.
    pub(crate) fn hold(&mut self, one: &'static str, other: &'static str) {
        self.trace(|| format!("messages between {one} and {other} wait"));
        self.breaks(injected::HELD, &[(one, other), (other, one)]);
        self.sim.hold(one, other);
    }

    pub(crate) fn release(&mut self, one: &'static str, other: &'static str) {
        self.run.notes().injected.joins(one, other);
        self.trace(|| format!("messages between {one} and {other} are released"));
        self.sim.release(one, other);
    }

    /// Delays the data from one host to another. The other direction does not change.
    pub(crate) fn delay(&mut self, from: &'static str, to: &'static str, by: Duration) {
        self.trace(|| format!("what {from} sends to {to} is read {by:?} late"));
        self.run.notes().late.insert((from, to), by);
    }

    /// Breaks the connections from a host on the side of the nodes, as a middlebox would. `None` ends this.
    pub(crate) fn reset(&mut self, host: Option<&'static str>) {
        self.trace(|| format!("connections break at the nodes: {host:?}"));
        self.run.notes().reset = host;
        self.run.resets.notify_waiters();
    }

    /// Stalls the disk of a node, or resumes it.
    pub(crate) fn stall(&mut self, node: usize, stalled: bool) {
        self.trace(|| format!("disk of {} stalls: {stalled}", NODE_HOSTS[node]));
        self.look_at_disk(node);
        self.stalled[node] = stalled.then(|| self.run.notes().injected.tried(injected::STALLED));
        self.places[node].stalled.store(stalled, Ordering::Relaxed);
    }

    /// Records that a stalled disk took effect if it keeps an entry from being durable.
    fn look_at_disk(&self, node: usize) {
        let (last, synced) = self.log_of(node);
        if let Some(tried) = self.stalled[node].filter(|_| synced < last) {
            self.run.notes().injected.took_effect(tried);
        }
    }

    /// Changes a clock or its wall clock. The fault takes effect the next time that this clock is read.
    pub(crate) fn set_clock(&mut self, kind: Kind, clock: &Arc<SimClock>, change: impl FnOnce(&SimClock)) {
        change(clock);
        let tried = self.run.notes().injected.tried(kind);
        let which = usize::from(kind == injected::WALL_CLOCK);
        self.clocks_set.push((tried, Arc::clone(clock), which, clock.reads()[which]));
    }

    /// Records which changed clocks were read after the change.
    pub(crate) fn look_at_clocks(&self) {
        let mut notes = self.run.notes();
        for (tried, clock, which, before) in &self.clocks_set {
            if clock.reads()[*which] > *before {
                notes.injected.took_effect(*tried);
            }
        }
    }

    pub(crate) fn order(&mut self, node: usize, order: Order) {
        match order {
            Order::HandOver => self.run.notes().injected.hands_over(),
            Order::NoteClaim => self.run.notes().claims_to_lead = None,
            Order::WriteSnapshot => drop(self.run.notes().injected.tried(injected::SNAPSHOT)),
        }
        self.trace(|| format!("{} gets the order {order:?}", NODE_HOSTS[node]));
        self.places[node].order(order);
    }
}

/// A running client task. It is done when the client has ended.
#[derive(Clone)]
pub(crate) struct Task(Rc<RefCell<bool>>);

impl Task {
    pub(crate) fn is_done(&self) -> bool {
        *self.0.borrow()
    }
}
