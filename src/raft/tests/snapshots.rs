//! Tests of the transfer of snapshots: its time limits and size limits.

use futures_util::StreamExt;
use openraft::RaftMetrics;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep};
use tonic::{Code, Status};

use super::super::messages::{self, SelfIdentity};
use super::super::network::stalled;
use super::super::peer_server::receive;
use super::super::types::{Types, from_vote};
use super::*;
use crate::limits::{INSTALL_SNAPSHOT_BYTES_A_MS, INSTALL_SNAPSHOT_MS_MAX, SNAPSHOT_STALL_MS_MAX};
use crate::storage::{Job, SnapshotFile, StateStore, Vote, Wal, record_hash};

/// A snapshot file with this many records.
async fn file(records: u64) -> SnapshotFile {
    let records: Vec<_> = (0..records).map(|n| (Bytes::from(format!("k{n:06}")), Bytes::from(vec![7; 60]))).collect();
    let digest = records.iter().fold(0_u128, |sum, (key, value)| sum.wrapping_add(record_hash(key, value)));
    let head = Head { records: records.len() as u64, digest, ..Head::default() };
    let state = MemoryState::default();
    state.submit(Job::Rebuild(records, head, Box::new(|done| done.unwrap())));
    let (sender, exported) = oneshot::channel();
    state.submit(Job::Export(Box::new(move |file| sender.send(file.unwrap()).unwrap())));
    exported.await.unwrap()
}

type Parts = mpsc::Sender<Result<messages::SnapshotPart, Status>>;

fn part(chunk: Bytes) -> Result<messages::SnapshotPart, Status> {
    Ok(messages::SnapshotPart { part: Some(messages::snapshot_part::Part::Chunk(chunk)) })
}

/// Receives what `send` puts into the channel as a file of this many bytes.
async fn received(file: &SnapshotFile, bytes: u64, send: impl AsyncFnOnce(Parts)) -> Result<Head, Status> {
    let (sender, receiver) = mpsc::channel(1);
    let parts = tokio_stream::wrappers::ReceiverStream::new(receiver);
    let state = MemoryState::default();
    let receiving = receive(&state, (file.head().clone(), bytes), parts);
    let (received, ()) = tokio::join!(receiving, send(sender));
    received.map(|received| received.head().clone())
}

const ALMOST: Duration = Duration::from_millis(SNAPSHOT_STALL_MS_MAX - 1);

/// A snapshot over a slow link is received, no matter how long this takes, as long as parts of it arrive. If the sender
/// stops sending, the transfer fails. The clock is paused, and advances when all tasks wait.
#[tokio::test(start_paused = true)]
async fn a_slow_snapshot_is_received_and_a_stalled_one_fails() {
    let file = file(1_000).await;
    let began = Instant::now();
    let slowly = async |parts: Parts| {
        for chunk in file.chunks(1_000) {
            sleep(ALMOST).await;
            parts.send(part(chunk.unwrap())).await.unwrap();
        }
    };
    assert_eq!(&received(&file, file.size_bytes(), slowly).await.unwrap(), file.head());
    assert!(began.elapsed() > 5 * Duration::from_millis(INSTALL_SNAPSHOT_MS_MAX), "it was fast");

    let half = async |parts: Parts| {
        parts.send(part(file.chunks(1_000).next().unwrap().unwrap())).await.unwrap();
        parts.closed().await;
    };
    let given_up = received(&file, file.size_bytes(), half).await.unwrap_err();
    assert_eq!(given_up.code(), Code::DeadlineExceeded, "{given_up}");
}

/// A file that is longer than announced is refused with the first excess part, before that part is written.
#[tokio::test(start_paused = true)]
async fn a_snapshot_longer_than_announced_is_refused() {
    let file = file(1_000).await;
    let whole = async |parts: Parts| {
        for chunk in file.chunks(1_000) {
            if parts.send(part(chunk.unwrap())).await.is_err() {
                return;
            }
        }
    };
    for announced in [0, 1_500, file.size_bytes() - 1] {
        let refused = received(&file, announced, whole).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
        assert!(refused.message().contains(&format!("the announced {announced} bytes")), "{refused}");
    }
    assert!(received(&file, file.size_bytes(), whole).await.is_ok());
}

/// A sender waits while the receiver accepts parts. After the last part it waits as long as the installation of a file
/// of that size may take, and no longer.
#[tokio::test(start_paused = true)]
async fn a_sender_gives_up_without_progress() {
    let (moved, moves) = watch::channel(());
    let moving = async {
        for _ in 0..100 {
            sleep(ALMOST).await;
            moved.send_replace(());
        }
        Instant::now()
    };
    let (why, last_move) = tokio::join!(stalled(moves, 1), moving);
    assert!(why.contains("took no part"), "{why}");
    assert_eq!(last_move.elapsed(), Duration::from_millis(SNAPSHOT_STALL_MS_MAX));

    let (moved, moves) = watch::channel(());
    drop(moved);
    let (sent, bytes) = (Instant::now(), 1 << 30);
    assert!(stalled(moves, bytes).await.contains("did not install"));
    let allowed = INSTALL_SNAPSHOT_MS_MAX + bytes / INSTALL_SNAPSHOT_BYTES_A_MS;
    assert_eq!(sent.elapsed(), Duration::from_millis(allowed));
}

/// H-04: a node receives one snapshot at a time. A further one is refused at once and uses no disk space. When the
/// first transfer ends, the next one is received.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_snapshot_at_a_time_is_refused() {
    let cluster = Cluster::start(|_| ()).await;
    cluster.propose(1).await;
    let address = format!("http://{}", cluster.settings.members[&1].peer);
    let client = messages::peer_client::PeerClient::connect(address).await.unwrap();
    let sender = SelfIdentity { peers_id: 42, node: 2, disk: 2, process: 0 };
    let vote = from_vote(Vote { term: 1, node: 2, committed: true });
    let call = || {
        let announcement = messages::announcement(sender.header(1, None), &vote, &Head::default(), 1_000);
        let first = messages::SnapshotPart { part: Some(messages::snapshot_part::Part::Announcement(announcement)) };
        let parts = futures_util::stream::iter([first]).chain(futures_util::stream::pending());
        let mut client = client.clone();
        Box::pin(async move { client.install_snapshot(parts).await })
    };
    let (answer, _, mut first) = soon(futures_util::future::select_all([call(), call()])).await;
    let refused = answer.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
    let is_received = async |mut call| tokio::time::timeout(Duration::from_millis(200), &mut call).await.is_err();
    assert!(is_received(first.remove(0)).await, "the first transfer waits for its parts");
    while !is_received(call()).await {}
}

/// A follower answers every append, and lags nevertheless. It gets the snapshot that the leader wrote meanwhile instead
/// of the entries, so the leader can purge its log. The follower finds that its leader lives, although the stream of
/// entries ended. No election timeout is shorter than the test.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_that_lags_gets_a_snapshot_instead_of_entries() {
    let cluster = Cluster::start(|settings| {
        settings.timing = Timing { heartbeat_ms: 50, election_min_ms: 60_000, election_max_ms: 120_000 };
        (settings.replication_lag_entries_max, settings.purge_margin_entries) = (20, 0);
    })
    .await;
    cluster.propose(1).await;
    let leader = cluster.leader().await;
    let slow = leader % 3 + 1;
    cluster.caught_up(slow).await;
    let consensus = cluster.node(leader);
    let mut views = consensus.watch();
    let term = views.borrow().term;
    let (slow_wal, _) = cluster.storages[&slow].clone();
    let (mut stamps, mut at) = (2.., 0);
    // A stream that fails on a busy machine, because no append is answered for too long, ends a round without its lag.
    for _ in 0..10 {
        slow_wal.hold_syncs();
        for stamp in stamps.by_ref().take(40) {
            cluster.propose(stamp).await;
        }
        at = consensus.machine(|machine| machine.applied());
        consensus.snapshot().await.unwrap();
        let written = |seen: &RaftMetrics<Types>| seen.snapshot.is_some_and(|id| at <= id.index);
        soon(consensus.raft().wait(None).metrics(written, "a snapshot")).await.unwrap();
        // A view with a later entry is published after the leader has noted the snapshot.
        cluster.propose(stamps.next().unwrap()).await;
        let later = consensus.machine(|machine| machine.applied());
        soon(views.wait_for(|view| view.applied >= Some(later))).await.unwrap();
        slow_wal.release_syncs();
        cluster.caught_up(slow).await;
        if cluster.node(slow).snapshot_bytes().is_some() {
            break;
        }
    }
    assert!(cluster.node(slow).snapshot_bytes().is_some(), "it received entries");
    let (wal, _) = cluster.storages[&leader].clone();
    soon(async {
        while wal.state().purged.map(|id| id.index) < Some(at) {
            sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    assert_eq!(views.borrow().term, term, "the leader was replaced");
}
