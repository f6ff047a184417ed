//! A node that runs out of file descriptors: what still works, what is logged, and how it recovers.

use std::collections::VecDeque;
use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use lockkeeper::client::Client;
use lockkeeper::limits;

use crate::cluster::PATIENCE;
use crate::http::get;
use crate::ports::free_ports;
use crate::single_node::{SingleNode, config_of_one, program_after};
use crate::wait::wait_until;

/// The hard limit of descriptors in this test: enough for the files of a node.
const DESCRIPTORS: usize = 256;

/// Starts a single node with this hard limit of descriptors and a soft limit of a quarter of it. Returns the node and
/// the addresses of its ports: for clients, other nodes and HTTP.
fn limited(folder: &std::path::Path, descriptors: usize) -> (SingleNode, [String; 3]) {
    let ports @ [client, peer, http] = &free_ports().map(|port| format!("127.0.0.1:{port}"));
    let config = config_of_one("few", &folder.join("data"), client, peer) + &format!("[listen]\nhttp = {http:?}\n");
    let mut shell = program_after(&format!("ulimit -n {descriptors}; ulimit -Sn {}", descriptors / 4));
    shell.env("LOCKKEEPER_LOG", "lockkeeper=debug");
    (SingleNode::start_by(shell, folder, "few", &config, client), ports.clone())
}

/// Connections to some ports on which nothing is sent. A thread opens more of them, and closes the oldest, until this
/// is dropped.
struct IdleSockets {
    stop: Arc<AtomicBool>,
    flooding: Option<JoinHandle<()>>,
}

impl IdleSockets {
    fn open(ports: &[String], a_port: usize) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, ports) = (Arc::clone(&stop), ports.to_vec());
        let flooding = thread::spawn(move || {
            let mut open = VecDeque::new();
            while !stopped.load(SeqCst) {
                for port in &ports {
                    let address: SocketAddr = port.parse().expect("an address");
                    // A full queue of the kernel is no error of the node.
                    open.extend(TcpStream::connect_timeout(&address, Duration::from_millis(100)).ok());
                }
                while ports.len() * a_port < open.len() {
                    open.pop_front();
                }
                // Slow enough that accepting them is little work.
                thread::sleep(Duration::from_millis(20));
            }
        });
        Self { stop, flooding: Some(flooding) }
    }
}

impl Drop for IdleSockets {
    fn drop(&mut self) {
        self.stop.store(true, SeqCst);
        self.flooding.take().into_iter().for_each(|flooding| flooding.join().expect("it does not panic"));
    }
}

/// Number of descriptors that a process has open.
fn descriptors(process: u32) -> usize {
    fs::read_dir(format!("/proc/{process}/fd")).expect("the node lives").count()
}

/// CPU time of a process so far. Linux counts it in hundredths of a second.
fn cpu_time(process: u32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).expect("the node lives");
    let fields: Vec<_> = stat.rsplit_once(") ").expect("a name in parentheses").1.split(' ').collect();
    Duration::from_millis(fields[11..13].iter().map(|ticks| ticks.parse::<u64>().expect("a number") * 10).sum())
}

/// H-08: while idle sockets are opened on all ports without end, a node serves its client and opens the next files of
/// its log.
#[tokio::test]
async fn idle_sockets_stop_no_node() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut node, ports) = limited(folder.path(), DESCRIPTORS);
    let client = node.leads().await.request_wait(PATIENCE);
    let names: Vec<_> = (0..64).map(|number| format!("lock-{number}")).collect();
    let session = client.session().ttl(Duration::from_secs(600)).open().await.expect("a session");
    let guards = join_all(names.iter().map(|name| session.lock(name).acquire())).await;
    let idle = IdleSockets::open(&ports, DESCRIPTORS);
    let value = "v".repeat(limits::LOCK_VALUE_BYTES_MAX);
    let rounds = 2 * limits::WAL_CHUNK_BYTES / (names.len() * value.len());
    for _ in 0..rounds {
        let sets = guards.iter().map(|guard| guard.as_ref().expect("free").set_value(Some(&value)));
        for set in join_all(sets).await {
            set.expect("an open connection works");
        }
        assert!(node.ended().is_none(), "it stopped:\n{}", node.log());
    }
    drop(idle);
    let files = fs::read_dir(folder.path().join("data/wal")).expect("a log").count();
    assert!(2 < files, "{files} files: no new one was opened");
}

/// H-09: a node without any free descriptor uses almost no CPU time, although connections wait on all its ports.
#[tokio::test]
async fn no_spin_without_descriptors() {
    let folder = tempfile::tempdir().expect("a folder");
    let few = 64;
    let (node, ports) = limited(folder.path(), few);
    node.leads().await;
    let idle = IdleSockets::open(&ports, few);
    wait_until("no descriptor is left", async || few <= descriptors(node.process())).await;
    let (before, time) = (cpu_time(node.process()), Duration::from_secs(2));
    tokio::time::sleep(time).await;
    let used = cpu_time(node.process()) - before;
    assert!(used < time / 4, "{used:?} of CPU time in {time:?}");
    drop(idle);
}

/// A node raises its soft limit of descriptors at the start, and keeps some of them for its own files, because it stops
/// if it cannot open those. While too many connections arrive it logs that once, retries with pauses and serves its
/// open connections. It accepts again once some are closed.
#[tokio::test]
async fn a_node_without_descriptors_keeps_serving() {
    let folder = tempfile::tempdir().expect("a folder");
    let (node, [_, _, http]) = limited(folder.path(), DESCRIPTORS);
    let known = node.leads().await;
    known.totals().await.expect("it is connected");
    let raised = format!("from={} to={DESCRIPTORS}", DESCRIPTORS / 4);
    assert!(node.log().contains(&raised), "the soft limit is not raised:\n{}", node.log());

    let begun = Instant::now();
    // More than the client port accepts, and few enough for the kernel's queue, which would drop further ones silently.
    let silent: Vec<_> =
        (0..DESCRIPTORS * 3 / 4).map(|_| TcpStream::connect(&node.client).expect("in the kernel's queue")).collect();
    node.logs("cannot accept connections", 1).await;
    let open = descriptors(node.process());
    assert!(open + DESCRIPTORS / 16 <= DESCRIPTORS, "{open} of {DESCRIPTORS} are open: none is left for its files");
    known.lock("a").acquire().await.expect("an open connection works").release().await.expect("released");

    drop(silent);
    let late = Client::connect([&node.client]).await.expect("an address").request_wait(PATIENCE);
    late.lock("a").acquire().await.expect("a new connection works").release().await.expect("released");
    let metrics = get(&http, "/metrics");
    let failures = metrics
        .lines()
        .find_map(|line| line.strip_prefix("lockkeeper_accept_failures_total{node=\"1\",port=\"client\"} "))
        .expect("counted");
    let failures: u128 = failures.parse().expect("a number");
    let pauses = begun.elapsed().as_millis() / u128::from(limits::ACCEPT_PAUSE_MS) + 1;
    assert!((1..=pauses).contains(&failures), "{failures} tries in {pauses} pauses");
    let lines = node.log().matches("cannot accept connections").count();
    assert_eq!(lines, 1, "one line for one outage:\n{}", node.log());
}
