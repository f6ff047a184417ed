//! A node of the simulation: the product's own node, with a simulated network, clock and disk.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use lockkeeper::client::{Client, ClientError};
use lockkeeper::config::{Config, Listen, Member, Profile};
use lockkeeper::limits::RENEWALS_AN_ENTRY_MAX;
use lockkeeper::model::Position;
use lockkeeper::node::{Node, NodeOptions, PeerNetwork, Tuning};
use lockkeeper::rpc;
use lockkeeper::service::ServiceError;
use lockkeeper::storage::{MemoryDisk, MemoryWal};
use tokio::sync::mpsc;
use tokio::time::sleep;

use crate::clock::{SimClock, truth};
use crate::injected;
use crate::invariants::nothing_lost;
use crate::net::{CLIENT_PORT, PEER_PORT, connector, incoming};
use crate::random::Random;
use crate::run::{NODE_HOSTS, Run};

/// A command of the driver to a running node.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Order {
    HandOver,
    WriteSnapshot,
    /// Record in the notes whether the node claims to lead.
    NoteClaim,
}

/// The state of a node that survives its crashes, and its controls.
pub(crate) struct Place {
    pub(crate) index: usize,
    pub(crate) disk: MemoryDisk,
    pub(crate) clock: Arc<SimClock>,
    /// Whether syncs of its disk are stalled.
    pub(crate) stalled: AtomicBool,
    /// The most renewals in an entry, from the next start on.
    pub(crate) renewals_an_entry_max: AtomicUsize,
    random: std::sync::Mutex<Random>,
    running: std::sync::Mutex<Option<(Node, mpsc::UnboundedSender<Order>)>>,
    run: Arc<Run>,
}

impl Place {
    pub(crate) fn new(index: usize, run: Arc<Run>, random: &mut Random) -> Self {
        let clock = Arc::new(SimClock::new(random, crate::DRIFT_MILLIONTHS));
        let disk = MemoryDisk::new(u128::from(random.next()));
        let (stalled, running) = (AtomicBool::new(false), std::sync::Mutex::default());
        let renewals_an_entry_max = AtomicUsize::new(RENEWALS_AN_ENTRY_MAX);
        Self {
            index,
            disk,
            clock,
            stalled,
            renewals_an_entry_max,
            random: std::sync::Mutex::new(random.fork()),
            running,
            run,
        }
    }

    pub(crate) fn node(&self) -> Option<Node> {
        self.running.lock().unwrap().as_ref().map(|(node, _)| node.clone())
    }

    pub(crate) fn order(&self, order: Order) {
        if let Some((_, orders)) = &*self.running.lock().unwrap() {
            orders.send(order).ok();
        }
    }

    /// Drops the handles of a node whose process has ended.
    pub(crate) fn forget(&self) {
        self.running.lock().unwrap().take();
    }

    fn host(&self) -> &'static str {
        NODE_HOSTS[self.index]
    }
}

fn config(index: usize) -> Config {
    let members = (1..).zip(NODE_HOSTS).map(|(id, host)| {
        (id, Member { client: format!("{host}:{CLIENT_PORT}"), peer: format!("{host}:{PEER_PORT}") })
    });
    let any = |port| SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
    let listen = Listen { client: any(CLIENT_PORT), peer: any(PEER_PORT), http: None };
    Config {
        members: members.collect(),
        timing: Profile::Fast.timing(),
        ..Config::new("simulated", index as u64 + 1, listen)
    }
}

/// Runs a node on its host, from its start to a crash.
pub(crate) async fn boot(place: Arc<Place>) -> turmoil::Result {
    let run = Arc::clone(&place.run);
    run.trace(place.host(), || "boots".to_owned());
    let random = place.random.lock().unwrap().fork();
    tokio::spawn(sync(Arc::clone(&place), place.disk.wal.clone(), random));
    let peers = incoming(Arc::clone(&run), place.host(), PEER_PORT).await?;
    let options = NodeOptions {
        clock: place.clock.clone(),
        memory: Some(place.disk.clone()),
        own_runtime: false,
        peer_network: Some(PeerNetwork { connector: connector(Arc::clone(&run), place.host()), incoming: peers }),
        tuning: Tuning {
            checkpoint_ms: 400,
            snapshot_log_bytes_min: 12 << 10,
            purge_margin_entries: 30,
            renewals_an_entry_max: place.renewals_an_entry_max.load(Ordering::Relaxed),
        },
        ..NodeOptions::default()
    };
    let node = Node::open_with(config(place.index), options).await?;
    let (orders, mut ordered) = mpsc::unbounded_channel();
    *place.running.lock().unwrap() = Some((node.clone(), orders));
    tokio::spawn(serve(Arc::clone(&run), place.host(), node.clone()));
    tokio::spawn(witness(Arc::clone(&place), node.clone()));
    tokio::spawn(follow(Arc::clone(&run), place.host(), node.clone()));
    loop {
        tokio::select! {
            biased;
            why = node.failed() => {
                run.trace(place.host(), || format!("stopped: {why}"));
                run.notes().stopped.push(format!("{} at {:?}: {why}", place.host(), truth()));
                return Ok(());
            }
            order = ordered.recv() => match order {
                Some(Order::HandOver) => node.hand_over().await,
                Some(Order::WriteSnapshot) => {
                    if node.write_snapshot().await.is_ok() {
                        run.notes().injected.newest_took_effect(injected::SNAPSHOT);
                    }
                }
                Some(Order::NoteClaim) => run.notes().claims_to_lead = Some(node.leads()),
                None => return Ok(()),
            },
        }
    }
}

/// The disk: written data becomes durable after a short random time, in order, unless the disk is stalled.
async fn sync(place: Arc<Place>, wal: MemoryWal, mut random: Random) {
    wal.hold_syncs();
    loop {
        sleep(Duration::from_micros(200 + random.below(2_000))).await;
        let mut more = true;
        while more {
            more = !place.stalled.load(Ordering::Relaxed) && wal.release_one_sync();
        }
    }
}

async fn serve(run: Arc<Run>, host: &'static str, node: Node) {
    let routes = rpc::routes(node.service(), node.info(), node.closing()).expect("routes");
    let clients = incoming(run, host, CLIENT_PORT).await.expect("a port");
    rpc::serve_incoming(routes, clients, node.closing()).await.expect("served");
}

/// Records the events that the node reports, from where the previous process ended.
async fn witness(place: Arc<Place>, node: Node) {
    let run = &place.run;
    let from = run.notes().history.event_logs[place.index].stretches.last().map(|(_, to)| *to);
    if from.is_none() {
        run.continues_at(place.index, Position::default());
    }
    let client = Client::new(node.service()).clock(place.clock.clone());
    let mut watch = loop {
        match client.watch("", Some(from.unwrap_or_default())).await {
            Ok(watch) => break watch,
            // The node was cut off from the leader for longer than a request may take.
            Err(ClientError::Service(ServiceError::NotSent { .. })) => sleep(Duration::from_millis(10)).await,
            // Applied entries are committed, so this node or the cluster has lost some.
            Err(error) => return run.found(nothing_lost::NAME, format!("no events after {from:?}: {error}")),
        }
    };
    loop {
        match watch.next().await {
            Ok(event) => run.reported(place.index, event),
            Err(ClientError::Service(ServiceError::EventsMissed { .. })) => {
                let mut notes = run.notes();
                notes.installs += 1;
                notes.injected.newest_took_effect(injected::FAR_BEHIND);
                drop(notes);
                run.trace(place.host(), || format!("continues from {}", watch.position()));
                run.continues_at(place.index, watch.position());
            }
            Err(error) => run.note_error("witness", &error),
        }
    }
}

/// Records when the node leads.
async fn follow(run: Arc<Run>, host: &'static str, node: Node) {
    let mut views = node.views();
    let mut led = None;
    loop {
        let (leads, term) = {
            let view = views.borrow_and_update();
            (view.own_term_applied, view.term)
        };
        let now = leads.then_some(term);
        if now != led {
            run.trace(host, || format!("leads in {now:?}"));
            if leads {
                run.leads(node.id(), term);
            }
            led = now;
        }
        if views.changed().await.is_err() {
            return;
        }
    }
}
