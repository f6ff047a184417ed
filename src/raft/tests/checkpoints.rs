//! What reaches the mirror.

use futures_util::FutureExt;

use super::*;
use crate::model::{Handle, Instance, Metadata, OpenSession};

/// An entry of these commands.
fn entry(stamp: u64, commands: impl IntoIterator<Item = Command>) -> Entry {
    let mut entry = tick(stamp);
    let submission = entry.commands.pop().unwrap();
    entry.commands = commands.into_iter().map(|command| Submission { command, ..submission.clone() }).collect();
    entry
}

/// Opens a session, which is a record of its own.
fn open(number: u64) -> Command {
    Command::OpenSession(OpenSession {
        namespace: Default::default(),
        handle: Handle::from_random(number.into()),
        instance: Instance(number.into()),
        ttl_ms: 60_000,
        disconnect_grace_ms: None,
        metadata: Metadata::default(),
        accepts_hand_over: false,
    })
}

impl Cluster {
    async fn opens(&self, number: u64) {
        let leader = self.leader().await;
        self.node(leader).propose(entry(number, [open(number)])).await.unwrap();
    }
}

/// The caller of a backup goes away while it waits for the log. The changes that it had taken are in the next checkpoint: the
/// mirror has every record of the table, and the next start trusts it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_abandoned_backup_loses_no_change() {
    let mut cluster = Cluster::start(|_| ()).await;
    cluster.opens(1).await;
    let leader = cluster.leader().await;
    let node = leader % 3 + 1;
    cluster.caught_up(node).await;
    let (wal, state) = cluster.storages[&node].clone();
    wal.hold_syncs();
    cluster.opens(2).await;
    cluster.caught_up(node).await;
    let backup = cluster.node(node).backup();
    assert!(backup.now_or_never().is_none(), "it waits for the log");
    wal.release_syncs();
    cluster.opens(3).await;
    cluster.caught_up(node).await;
    cluster.stop(node).await;
    let recovered = state.recover(&wal).unwrap();
    assert_eq!((recovered.source, recovered.note), (Source::Mirror, None));
    let sessions = recovered.records.iter().filter(|(key, _)| key.starts_with(b"s")).count();
    assert_eq!(sessions, 3);
}
