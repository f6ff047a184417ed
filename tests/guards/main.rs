//! Resources that check tokens: a file and a table of PostgreSQL, with holders that were paused and write too late.

#![allow(clippy::print_stderr, reason = "a skipped test is reported")]
#![allow(clippy::duplicate_mod, reason = "an example includes its resource as a module")]

mod examples;
mod file_store;
mod optimistic;
mod paused;
mod postgres_table;
mod server;

use std::sync::OnceLock;

use file_store::{GuardedFile, Written};
use lockkeeper::node::Node;
use lockkeeper::testing::Cluster;
use postgres_table::Documents;

/// The tokens of a paused holder and of a later one, from a real cluster that ended the first hold meanwhile.
async fn two_holders(lock: &str) -> (u64, u64) {
    let client = lockkeeper::client::Client::new(leader().await);
    let paused = client.lock(lock).acquire().await.expect("free");
    let first = paused.token();
    client.break_hold(lock, first, "paused for too long").await.expect("broken");
    let later = client.lock(lock).acquire().await.expect("free again");
    (first.as_u64(), later.token().as_u64())
}

/// A cluster of one node, which all tests of this program share.
fn cluster() -> &'static Cluster {
    static CLUSTER: OnceLock<(Cluster, tokio::runtime::Runtime)> = OnceLock::new();
    let (cluster, _) = CLUSTER.get_or_init(|| {
        std::thread::spawn(|| {
            let runtime =
                tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("threads");
            (runtime.block_on(Cluster::start(1, None)).expect("a cluster"), runtime)
        })
        .join()
        .expect("started")
    });
    cluster
}

async fn leader() -> Node {
    cluster().leader().await
}

/// A paused holder that continues too late changes nothing in the file.
#[tokio::test]
async fn a_file_refuses_an_older_token() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = GuardedFile::new(folder.path().join("report"));
    let (paused, later) = two_holders("report").await;
    assert_eq!(file.write(paused, b"first").expect("written"), Written::Done);
    assert_eq!(file.write(later, b"second").expect("written"), Written::Done);
    assert_eq!(file.write(later, b"second, again").expect("written"), Written::Done);
    assert_eq!(file.write(paused, b"too late").expect("compared"), Written::Stale { newest: later });
    assert_eq!(file.read().expect("read"), Some((later, b"second, again".to_vec())));
}

/// With many concurrent writers the content of the newest token remains, and no write is torn.
#[test]
fn concurrent_writers_leave_the_newest_token() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = GuardedFile::new(folder.path().join("report"));
    std::thread::scope(|scope| {
        for token in 1..=16_u64 {
            let file = file.clone();
            scope.spawn(move || file.write(token, token.to_string().repeat(1_000).as_bytes()).expect("compared"));
        }
    });
    assert_eq!(file.read().expect("read"), Some((16, "16".repeat(1_000).into_bytes())));
}

/// R-OPT-01: a write with an older token changes nothing, with a real PostgreSQL.
#[tokio::test]
async fn r_opt_01_a_write_with_an_older_token_changes_nothing() {
    let Some(server) = server::started() else { return };
    let documents = opened(&server);
    documents.create("report").expect("created");
    let (paused, later) = two_holders("documents/report").await;
    assert!(documents.write("report", paused, "first").expect("written"));
    assert!(documents.write("report", later, "second").expect("written"));
    assert!(!documents.write("report", paused, "too late").expect("compared"));
    assert!(documents.write("report", later, "it's \"second\"; again").expect("written"));
    assert_eq!(documents.read("report").expect("read"), "it's \"second\"; again");
}

/// For comparison an optimistic lock: it prevents overwriting a version that was not read, but it also refuses the
/// rightful holder, which must repeat its work. The token refuses only earlier holders.
#[tokio::test]
async fn r_opt_01_an_optimistic_lock_refuses_the_rightful_holder_too() {
    let Some(server) = server::started() else { return };
    let documents = opened(&server);
    documents.create("report").expect("created");
    let (paused, later) = two_holders("documents/compared").await;
    optimistic::add_version(&documents).expect("added");
    let seen = 0;
    assert!(optimistic::write(&documents, "report", seen, "by the paused one, too late").expect("written"));
    assert!(!optimistic::write(&documents, "report", seen, "by the rightful holder").expect("compared"));
    assert!(documents.write("report", later, "by the rightful holder").expect("written"));
    assert!(!documents.write("report", paused, "by the paused one, too late").expect("compared"));
    assert_eq!(documents.read("report").expect("read"), "by the rightful holder");
}

fn opened(server: &server::Server) -> Documents {
    Documents::open(&["-h", &server.socket(), "-U", "lockkeeper", "-d", "postgres"]).expect("opened")
}

/// One holder of the experiment below, in a separate process.
#[tokio::test(flavor = "multi_thread")]
async fn holder() {
    if let Ok(what) = std::env::var(paused::VARIABLE) {
        paused::work(&what).await.expect("it works until it is refused");
    }
}

/// A paused holder acts too late if the resource accepts every action. It does not if the resource compares tokens, or
/// if the work runs in `guard.run`.
#[tokio::test(flavor = "multi_thread")]
async fn a_paused_holder_is_kept_out_by_its_token() {
    for way in paused::Way::ALL {
        let program = || {
            let mut program = std::process::Command::new(std::env::current_exe().expect("this program"));
            program.args(["--exact", "holder", "--nocapture"]);
            program
        };
        let seen = paused::experiment(way, program).await.expect("the experiment completes");
        eprintln!("{}", seen.drawn());
        assert_eq!(seen.overlapping() != 0, way == paused::Way::Unprotected, "{seen:?}");
    }
}
