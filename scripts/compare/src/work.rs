//! The workloads. All products run the same code.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures_util::stream::{self, StreamExt, TryStreamExt};
use hdrhistogram::Histogram;
use serde::Serialize;
use tokio::task::JoinSet;

use crate::client::Client;
use crate::cluster::Cluster;
use crate::product::{Product, TTL};
use crate::usage::{Sample, Usage};

/// How many clients connect at the same time.
const CONNECTING: usize = 32;
/// The timeout of an acquire after the leader was killed; the client then tries another node.
const ACQUIRE_TIMEOUT: Duration = Duration::from_millis(250);
/// The largest latency that is recorded: one hour.
const LATENCY_US_MAX: u64 = 3_600_000_000;
/// The pause after a failed attempt.
const PAUSE: Duration = Duration::from_millis(5);
/// The time within which every client must be served again.
const FAILOVER: Duration = Duration::from_secs(60);
/// Servers that use less than this are idle.
const QUIET_CORES: f64 = 0.15;

/// The workloads that are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Workload {
    /// One client acquires and releases its own lock in a loop.
    OneClient,
    /// Some clients do so at the same time.
    SomeClients,
    /// Many clients do so.
    ManyClients,
    /// As many clients as [`Size::most`] do so.
    MostClients,
    /// Two clients acquire the same lock and pass it on at once.
    HandoffOfTwo,
    /// Some clients do so.
    Handoff,
    /// Many clients do so.
    HandoffOfMany,
    /// Many clients wait in one queue, which is then drained.
    Drain,
    /// Many sessions are open and idle.
    Sessions,
    /// Many locks are acquired and kept.
    Held,
    /// The leader is killed while clients work.
    Failover,
    /// One client uses its own lock again and again, and may keep it between uses.
    AffinityOfOne,
    /// Many clients do so.
    Affinity,
    /// Many clients do so, and 1 % of the uses are of another client's lock.
    #[serde(rename = "affinity-foreign-1")]
    #[value(name = "affinity-foreign-1")]
    AffinityForeign1,
    /// 10 % of the uses are.
    #[serde(rename = "affinity-foreign-10")]
    #[value(name = "affinity-foreign-10")]
    AffinityForeign10,
    /// 50 % of the uses are.
    #[serde(rename = "affinity-foreign-50")]
    #[value(name = "affinity-foreign-50")]
    AffinityForeign50,
}

/// The sizes of the workloads.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Size {
    pub(crate) seconds: f64,
    /// Seconds of pairs before every workload, for servers that get faster while they run.
    pub(crate) warm_up: f64,
    /// Seconds at the start of a workload that are not measured.
    pub(crate) settle: f64,
    pub(crate) some: usize,
    pub(crate) many: usize,
    pub(crate) most: usize,
    pub(crate) contenders: usize,
    pub(crate) many_contenders: usize,
    pub(crate) waiters: usize,
    pub(crate) sessions: usize,
    pub(crate) held: usize,
}

/// One figure, and whether a larger value is better.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Figure {
    pub(crate) name: &'static str,
    pub(crate) value: f64,
    pub(crate) more_is_better: bool,
}

/// The result of one measurement.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Measured {
    pub(crate) figures: Vec<Figure>,
    pub(crate) usage: Usage,
}

fn more(name: &'static str, value: f64) -> Figure {
    Figure { name, value, more_is_better: true }
}

fn less(name: &'static str, value: f64) -> Figure {
    Figure { name, value, more_is_better: false }
}

impl Workload {
    /// All workloads, in the order in which they run.
    pub(crate) const ALL: [Workload; 16] = [
        Workload::OneClient,
        Workload::SomeClients,
        Workload::ManyClients,
        Workload::MostClients,
        Workload::HandoffOfTwo,
        Workload::Handoff,
        Workload::HandoffOfMany,
        Workload::Drain,
        Workload::Sessions,
        Workload::Held,
        Workload::Failover,
        Workload::AffinityOfOne,
        Workload::Affinity,
        Workload::AffinityForeign1,
        Workload::AffinityForeign10,
        Workload::AffinityForeign50,
    ];

    /// Returns true if a product supports the workload. Cached holds differ only in the workloads for them.
    pub(crate) fn fits(self, product: Product) -> bool {
        match self {
            // A single server has no other node to take over, and no sessions.
            Workload::Failover | Workload::Sessions => ![Product::Redis, Product::LockkeeperCached].contains(&product),
            Workload::OneClient
            | Workload::SomeClients
            | Workload::ManyClients
            | Workload::MostClients
            | Workload::HandoffOfTwo
            | Workload::Handoff
            | Workload::HandoffOfMany
            | Workload::Drain
            | Workload::Held => product != Product::LockkeeperCached,
            Workload::AffinityOfOne
            | Workload::Affinity
            | Workload::AffinityForeign1
            | Workload::AffinityForeign10
            | Workload::AffinityForeign50 => true,
        }
    }

    /// The title in tables and charts.
    pub(crate) fn title(self, size: &Size) -> String {
        match self {
            Workload::OneClient => "pairs, 1 client".to_owned(),
            Workload::SomeClients => format!("pairs, {} clients", size.some),
            Workload::ManyClients => format!("pairs, {} clients", size.many),
            Workload::MostClients => format!("pairs, {} clients", size.most),
            Workload::HandoffOfTwo => "one lock, 2 clients".to_owned(),
            Workload::Handoff => format!("one lock, {} clients", size.contenders),
            Workload::HandoffOfMany => format!("one lock, {} clients", size.many_contenders),
            Workload::Drain => format!("queue of {}", size.waiters),
            Workload::Sessions => format!("{} sessions", size.sessions),
            Workload::Held => format!("{} locks held", size.held),
            Workload::Failover => "leader killed".to_owned(),
            Workload::AffinityOfOne => "own lock, 1 client".to_owned(),
            Workload::Affinity => format!("own lock, {} clients", size.many),
            Workload::AffinityForeign1 => format!("own lock, {} clients, 1 % foreign", size.many),
            Workload::AffinityForeign10 => format!("own lock, {} clients, 10 % foreign", size.many),
            Workload::AffinityForeign50 => format!("own lock, {} clients, 50 % foreign", size.many),
        }
    }

    /// Runs the workload on a cluster after a warm-up.
    pub(crate) async fn run(self, cluster: &mut Cluster, size: &Size) -> Result<Measured> {
        pairs(cluster, &Size { seconds: size.warm_up, settle: 0.0, ..*size }, size.many, false).await?;
        match self {
            Workload::OneClient => pairs(cluster, size, 1, false).await,
            Workload::SomeClients => pairs(cluster, size, size.some, false).await,
            Workload::ManyClients => pairs(cluster, size, size.many, false).await,
            Workload::MostClients => pairs(cluster, size, size.most, false).await,
            Workload::HandoffOfTwo => pairs(cluster, size, 2, true).await,
            Workload::Handoff => pairs(cluster, size, size.contenders, true).await,
            Workload::HandoffOfMany => pairs(cluster, size, size.many_contenders, true).await,
            Workload::Drain => drain(cluster, size).await,
            Workload::Sessions => sessions(cluster, size).await,
            Workload::Held => held(cluster, size).await,
            Workload::Failover => failover(cluster, size).await,
            Workload::AffinityOfOne => affinity(cluster, size, 1, 0).await,
            Workload::Affinity => affinity(cluster, size, size.many, 0).await,
            Workload::AffinityForeign1 => affinity(cluster, size, size.many, 1).await,
            Workload::AffinityForeign10 => affinity(cluster, size, size.many, 10).await,
            Workload::AffinityForeign50 => affinity(cluster, size, size.many, 50).await,
        }
    }
}

async fn connect(cluster: &Cluster, count: usize) -> Result<Vec<Client>> {
    let one = |number| Client::connect(cluster.product, &cluster.nodes, number);
    stream::iter((0..count).map(one)).buffered(CONNECTING).try_collect().await
}

async fn close(clients: Vec<Client>) {
    stream::iter(clients.into_iter().map(Client::close)).buffer_unordered(CONNECTING).collect::<Vec<()>>().await;
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

fn percentile_ms(latencies: &Histogram<u64>, percent: f64) -> f64 {
    latencies.value_at_percentile(percent) as f64 / 1000.0
}

/// The time of a workload that makes pairs, and its clients.
struct Pairs {
    counted: Instant,
    end: Instant,
    working: JoinSet<Result<(Client, Histogram<u64>)>>,
}

impl Pairs {
    fn new(size: &Size) -> Self {
        let counted = Instant::now() + Duration::from_secs_f64(size.settle);
        Self { counted, end: counted + Duration::from_secs_f64(size.seconds), working: JoinSet::new() }
    }

    /// Measures until the end. Pairs that begin before the workload has settled are not measured.
    async fn measured(mut self, cluster: &Cluster, size: &Size) -> Result<Measured> {
        tokio::time::sleep_until(self.counted.into()).await;
        let first = Sample::now(&cluster.pids());
        tokio::time::sleep_until(self.end.into()).await;
        let usage = first.until(&Sample::now(&cluster.pids()));
        let (mut back, mut latencies) = (Vec::new(), histogram()?);
        while let Some(ended) = self.working.join_next().await {
            let (client, own) = ended??;
            latencies.add(own)?;
            back.push(client);
        }
        close(back).await;
        ensure!(!latencies.is_empty(), "no pair was made");
        Ok(Measured {
            figures: vec![
                more("pairs/s", latencies.len() as f64 / size.seconds),
                less("p50 ms", percentile_ms(&latencies, 50.0)),
                less("p99 ms", percentile_ms(&latencies, 99.0)),
                less("server CPU µs a pair", usage.servers_cpu_us / latencies.len() as f64),
            ],
            usage,
        })
    }
}

fn histogram() -> Result<Histogram<u64>> {
    Ok(Histogram::new_with_max(LATENCY_US_MAX, 3)?)
}

/// Makes pairs on one lock for each client, or on one lock for all.
async fn pairs(cluster: &Cluster, size: &Size, clients: usize, together: bool) -> Result<Measured> {
    let clients = connect(cluster, clients).await?;
    let mut pairs = Pairs::new(size);
    let (counted, end) = (pairs.counted, pairs.end);
    for (number, mut client) in clients.into_iter().enumerate() {
        let name = if together { "shared".to_owned() } else { format!("own/{number}") };
        pairs.working.spawn(async move {
            let mut latencies = histogram()?;
            while Instant::now() < end {
                let began = Instant::now();
                let held = client.acquire(&name).await?;
                client.release(held).await?;
                if counted <= began {
                    latencies.saturating_record(micros(began.elapsed()));
                }
            }
            Ok((client, latencies))
        });
    }
    pairs.measured(cluster, size).await
}

/// Every client makes pairs on its own lock, which it may keep between uses. `foreign` percent of the pairs are on the
/// locks of other clients, one after the other.
async fn affinity(cluster: &Cluster, size: &Size, clients: usize, foreign: usize) -> Result<Measured> {
    let connected = connect(cluster, clients).await?;
    let mut pairs = Pairs::new(size);
    let (counted, end) = (pairs.counted, pairs.end);
    for (number, mut client) in connected.into_iter().enumerate() {
        let own = format!("own/{number}");
        pairs.working.spawn(async move {
            let mut latencies = histogram()?;
            for nth in 0.. {
                let began = Instant::now();
                if end <= began {
                    break;
                }
                let held = if nth * foreign / 100 == (nth + 1) * foreign / 100 {
                    client.acquire_own(&own).await?
                } else {
                    let other = (number + 1 + nth % (clients - 1)) % clients;
                    client.acquire(&format!("own/{other}")).await?
                };
                client.release(held).await?;
                if counted <= began {
                    latencies.saturating_record(micros(began.elapsed()));
                }
            }
            Ok((client, latencies))
        });
    }
    pairs.measured(cluster, size).await
}

/// All clients queue behind one holder, which then releases; the lock passes through the queue.
async fn drain(cluster: &Cluster, size: &Size) -> Result<Measured> {
    let mut clients = connect(cluster, size.waiters + 1).await?;
    let mut holder = clients.pop().context("a holder")?;
    let held = holder.acquire("drain").await?;
    let open = Arc::new(AtomicBool::new(false));
    let mut waiting = JoinSet::new();
    for mut client in clients {
        let open = Arc::clone(&open);
        waiting.spawn(async move {
            let held = client.acquire("drain").await?;
            ensure!(open.load(Ordering::SeqCst), "granted while another held it");
            client.release(held).await?;
            Ok((client, Instant::now()))
        });
    }
    until_quiet(cluster).await;
    let (first, began) = (Sample::now(&cluster.pids()), Instant::now());
    open.store(true, Ordering::SeqCst);
    holder.release(held).await?;
    let (mut back, mut last) = (vec![holder], began);
    while let Some(ended) = waiting.join_next().await {
        let (client, at) = ended??;
        back.push(client);
        last = last.max(at);
    }
    let usage = first.until(&Sample::now(&cluster.pids()));
    close(back).await;
    let seconds = last.duration_since(began).as_secs_f64();
    let waiters = size.waiters as f64;
    Ok(Measured {
        figures: vec![
            more("waiters/s", waiters / seconds),
            less("server CPU µs a waiter", usage.servers_cpu_us / waiters),
        ],
        usage,
    })
}

/// Waits until the servers are idle, because not all products report that a client is queued. Clients that poll keep
/// their servers busy; for them this waits for the full time.
async fn until_quiet(cluster: &Cluster) {
    let mut quiet = 0;
    for _ in 0..20 {
        let before = Sample::now(&cluster.pids());
        tokio::time::sleep(Duration::from_millis(250)).await;
        quiet = if before.until(&Sample::now(&cluster.pids())).servers < QUIET_CORES { quiet + 1 } else { 0 };
        if 3 <= quiet {
            return;
        }
    }
}

async fn sessions(cluster: &Cluster, size: &Size) -> Result<Measured> {
    let empty = Sample::now(&cluster.pids());
    let clients = connect(cluster, size.sessions).await?;
    until_quiet(cluster).await;
    let first = Sample::now(&cluster.pids());
    // Long enough for every session to be renewed at least once.
    tokio::time::sleep(TTL / 2).await;
    let last = Sample::now(&cluster.pids());
    let usage = first.until(&last);
    close(clients).await;
    let thousands = size.sessions as f64 / 1000.0;
    Ok(Measured {
        figures: vec![
            less("server cores a 1000 sessions", usage.servers / thousands),
            less("server KiB a session", empty.until(&last).grown_bytes / 1024.0 / size.sessions as f64),
        ],
        usage,
    })
}

async fn held(cluster: &Cluster, size: &Size) -> Result<Measured> {
    let clients = connect(cluster, size.contenders).await?;
    let (first, began, share) = (Sample::now(&cluster.pids()), Instant::now(), size.held / size.contenders);
    let mut taking = JoinSet::new();
    for (number, mut client) in clients.into_iter().enumerate() {
        taking.spawn(async move {
            let mut locks = Vec::with_capacity(share);
            for lock in 0..share {
                locks.push(client.acquire(&format!("held/{number}/{lock}")).await?);
            }
            Ok::<_, anyhow::Error>((client, locks))
        });
    }
    let mut back = Vec::new();
    while let Some(ended) = taking.join_next().await {
        back.push(ended??);
    }
    let seconds = began.elapsed().as_secs_f64();
    let usage = first.until(&Sample::now(&cluster.pids()));
    let all = (share * size.contenders) as f64;
    let (clients, locks): (Vec<_>, Vec<_>) = back.into_iter().unzip();
    close(clients).await;
    drop(locks);
    Ok(Measured {
        figures: vec![more("taken/s", all / seconds), less("server bytes a lock", usage.grown_bytes / all)],
        usage,
    })
}

/// Kills the leader under load. Measures the time from the kill to the first pair of the first, the middle and the last
/// client, of pairs that began after the kill.
async fn failover(cluster: &mut Cluster, size: &Size) -> Result<Measured> {
    let epoch = Instant::now();
    // Nanoseconds from the start to the kill; 0 before it.
    let killed = Arc::new(AtomicU64::new(0));
    let mut working = JoinSet::new();
    for (number, mut client) in connect(cluster, size.contenders).await?.into_iter().enumerate() {
        let (killed, name) = (Arc::clone(&killed), format!("own/{number}"));
        working.spawn(async move {
            while epoch.elapsed() < FAILOVER {
                let (began, killed_ns) = (epoch.elapsed(), killed.load(Ordering::SeqCst));
                let pair = async {
                    let held = client.acquire(&name).await?;
                    client.release(held).await
                };
                if tokio::time::timeout(ACQUIRE_TIMEOUT, pair).await.is_ok_and(|made| made.is_ok()) {
                    if killed_ns != 0 && Duration::from_nanos(killed_ns) <= began {
                        return Ok((client, epoch.elapsed() - Duration::from_nanos(killed_ns)));
                    }
                } else {
                    client.change_node().await;
                    tokio::time::sleep(PAUSE).await;
                }
            }
            anyhow::bail!("a client was not served again")
        });
    }
    tokio::time::sleep(Duration::from_secs_f64(size.settle)).await;
    let first = Sample::now(&cluster.pids());
    cluster.kill_leader().await?;
    killed.store(u64::try_from(epoch.elapsed().as_nanos())?, Ordering::SeqCst);
    let (mut back, mut served) = (Vec::new(), Vec::new());
    while let Some(ended) = working.join_next().await {
        let (client, after) = ended??;
        back.push(client);
        served.push(after.as_secs_f64() * 1000.0);
    }
    let usage = first.until(&Sample::now(&cluster.pids()));
    close(back).await;
    served.sort_unstable_by(f64::total_cmp);
    Ok(Measured {
        figures: vec![
            less("first client ms", served[0]),
            less("half of them ms", served[served.len() / 2]),
            less("all of them ms", served[served.len() - 1]),
        ],
        usage,
    })
}
