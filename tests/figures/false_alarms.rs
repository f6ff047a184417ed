//! Whether a healthy leader is ever deposed because its connections fail.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::cluster::{Cluster, Place};
use crate::leader::{CLIENTS, Grants, TTL, contend};
use crate::random::Random;

/// Shorter than the shortest election timeout of the profile `lan`, so that no node may request votes.
const STOP: Duration = Duration::from_millis(100);
const FAULTS_APART: Duration = Duration::from_millis(500);

/// What a proxy does to the connections to its node.
#[derive(Clone, Copy, Default)]
struct Faults {
    /// How often all connections were reset.
    resets: u64,
    /// Delay of each piece of data, in both directions.
    delay: Duration,
    /// Leaves new connections in the queue of the listener, which soon is full.
    deaf: bool,
}

/// A port in front of the peer port of one node.
struct Proxy(watch::Sender<Faults>);

impl Proxy {
    /// Listens on `at` for the port `to`.
    fn start(at: SocketAddr, to: SocketAddr) -> io::Result<Self> {
        let socket = TcpSocket::new_v4()?;
        socket.set_reuseaddr(true)?;
        socket.bind(at)?;
        let listener = socket.listen(1)?;
        let (faults, mut seen) = watch::channel(Faults::default());
        tokio::spawn(async move {
            loop {
                if seen.wait_for(|faults| !faults.deaf).await.is_err() {
                    return;
                }
                let Ok((stream, _)) = listener.accept().await else { continue };
                tokio::spawn(forward(stream, to, seen.clone()));
            }
        });
        Ok(Self(faults))
    }
}

/// Copies both directions until one ends or the connections are reset.
async fn forward(near: TcpStream, to: SocketAddr, mut faults: watch::Receiver<Faults>) {
    let resets = faults.borrow().resets;
    let Ok(far) = TcpStream::connect(to).await else { return };
    let (near, far) = (near.into_split(), far.into_split());
    let copies = async { tokio::join!(copy(near.0, far.1, faults.clone()), copy(far.0, near.1, faults.clone())) };
    let mut until = faults.clone();
    tokio::select! {
        _ = copies => {}
        _ = until.wait_for(|faults| faults.resets != resets) => {}
    }
    faults.mark_unchanged();
}

async fn copy(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    faults: watch::Receiver<Faults>,
) -> io::Result<()> {
    let mut piece = vec![0; 64 << 10];
    loop {
        let bytes = from.read(&mut piece).await?;
        let delay = faults.borrow().delay;
        if !delay.is_zero() {
            sleep(delay).await;
        }
        if bytes == 0 {
            return to.shutdown().await;
        }
        to.write_all(&piece[..bytes]).await?;
    }
}

async fn term(cluster: &Cluster) -> u64 {
    let leader = cluster.await_leader().await;
    cluster.status_of(leader).await.expect("a status").term
}

/// Runs 64 clients for `seconds`, while connections between live nodes are reset or slow, their queues are full, and
/// the leader is stopped for less than an election timeout. Each higher term is an election without a cause.
pub(crate) async fn run(seconds: usize) {
    // A node refuses a config in which the others dial another port than its own. So the proxies have the same ports at
    // another address, which the config calls by its name.
    let ports = [(); 3].map(|()| crate::ports::free_port());
    let at = |last, port| SocketAddr::from(([127, 0, 0, last], port));
    let proxies = ports.map(|port| Proxy::start(at(1, port), at(2, port)).expect("a proxy"));
    let places = ports.map(|port| Place { host: "127.0.0.2".to_owned(), peer_port: Some(port), ..Place::default() });
    let cluster = Cluster::start_at(places, "lan", None).await;
    let grants = Arc::new(watch::Sender::new(Grants { killed: Instant::now(), first: vec![None; CLIENTS] }));
    let mut clients = JoinSet::new();
    for number in 0..CLIENTS {
        let session = cluster.client().session().ttl(TTL).open().await.expect("a session");
        clients.spawn(contend(session, number, Arc::clone(&grants)));
    }
    let (began, mut random, mut faults) = (Instant::now(), Random::new(1), [0; 4]);
    let before = term(&cluster).await;
    while began.elapsed() < Duration::from_secs(seconds as u64) {
        let leader = cluster.await_leader().await;
        let node = random.below(3) as usize;
        let kind = random.below(4) as usize;
        let change = |change: &dyn Fn(&mut Faults)| proxies[node].0.send_modify(change);
        match kind {
            0 => change(&|faults| faults.resets += 1),
            1 => change(&|faults| faults.delay = Duration::from_millis(20)),
            2 => change(&|faults| (faults.deaf, faults.resets) = (true, faults.resets + 1)),
            _ => {
                cluster.halt(leader);
                proxies.iter().for_each(|proxy| proxy.0.send_modify(|faults| faults.resets += 1));
                sleep(STOP).await;
                cluster.signal(leader, Signal::CONT);
            }
        }
        faults[kind] += 1;
        sleep(random.ms(50, 150)).await;
        change(&|faults| (faults.deaf, faults.delay) = (false, Duration::ZERO));
        sleep(FAULTS_APART).await;
    }
    clients.shutdown().await;
    let elections = term(&cluster).await - before;
    let [resets, slow, deaf, stops] = faults;
    eprintln!(
        "{resets} resets, {slow} slow nodes, {deaf} full queues, {stops} stops of the leader in {seconds} s: \
         {elections} elections without a cause"
    );
}
