//! The examples run against a cluster, as in the manual.

#[allow(dead_code, reason = "the example has its own main function")]
#[path = "../examples/election.rs"]
mod election;
#[allow(dead_code, reason = "the example has its own main function")]
#[path = "../examples/embed.rs"]
mod embed;
#[allow(dead_code, reason = "the example has its own main function")]
#[path = "../examples/fencing.rs"]
mod fencing;
#[allow(dead_code, reason = "the example has its own main function")]
#[path = "../examples/lock.rs"]
mod lock;
#[allow(dead_code, reason = "the example has its own main function")]
#[path = "guarded_file.rs"]
mod guarded_file;
#[allow(dead_code, reason = "the example has its own main function")]
#[path = "guarded_postgres.rs"]
mod guarded_postgres;

use std::net::TcpListener;
use std::time::Duration;

use crate::file_store::{GuardedFile, Written};
use crate::{cluster, leader, server};

/// The example writes its text with its token. If a later holder has written, it reports that and changes nothing.
#[tokio::test]
async fn the_example_of_a_file_writes_unless_it_is_late() {
    leader().await;
    let endpoints = cluster().endpoints().join(",");
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("example");
    let shown = path.display().to_string();
    guarded_file::report(&endpoints, &shown, "first").await.expect("written");
    guarded_file::report(&endpoints, &shown, "second").await.expect("written");
    let file = GuardedFile::new(path);
    let (token, content) = file.read().expect("read").expect("written");
    assert_eq!(content, b"second");
    let later = token + 1_000_000;
    assert_eq!(file.write(later, b"by a later one").expect("written"), Written::Done);
    let late = guarded_file::report(&endpoints, &shown, "too late").await.expect_err("refused");
    assert!(late.to_string().contains("has written since"), "{late}");
    assert_eq!(file.read().expect("read"), Some((later, b"by a later one".to_vec())));
}

/// The same with a table, if PostgreSQL is installed.
#[tokio::test]
async fn the_example_of_a_table_writes_unless_it_is_late() {
    let Some(server) = server::started() else { return };
    leader().await;
    let endpoints = cluster().endpoints().join(",");
    let (documents, socket) = (crate::opened(&server), server.socket());
    let psql = ["-h", &socket, "-U", "lockkeeper", "-d", "postgres"];
    guarded_postgres::write(&endpoints, &psql, "example", "first").await.expect("written");
    assert_eq!(documents.read("example").expect("read"), "first");
    assert!(documents.write("example", 1 << 40, "by a later one").expect("written"));
    let late = guarded_postgres::write(&endpoints, &psql, "example", "too late").await;
    let late = late.expect_err("refused");
    assert!(late.to_string().contains("by a later one"), "{late}");
    assert_eq!(documents.read("example").expect("read"), "by a later one");
}

/// The example of a lock works under one, twice, with tokens that grow.
#[tokio::test]
async fn the_example_of_a_lock_works_under_one() {
    leader().await;
    let endpoints = cluster().endpoints().join(",");
    let first = lock::run(&endpoints).await.expect("held and released");
    let second = lock::run(&endpoints).await.expect("held and released");
    assert!(first < second, "{first}, {second}");
}

/// The example of an election leads, and other clients see its value.
#[tokio::test]
async fn the_example_of_an_election_leads() {
    leader().await;
    let endpoints = cluster().endpoints().join(",");
    let seen = election::run(&endpoints, "10.0.0.1:80", Duration::from_millis(50)).await.expect("a term");
    assert_eq!(seen.as_deref(), Some("10.0.0.1:80"));
}

/// The example of fencing ends with what the later holder wrote.
#[tokio::test]
async fn the_example_of_fencing_refuses_the_late_holder() {
    leader().await;
    let endpoints = cluster().endpoints().join(",");
    assert_eq!(fencing::run(&endpoints).await.expect("two holders").text, "by the second holder");
}

/// The example of a node inside a program grants a lock; started again on its directory it continues with its tokens.
#[tokio::test(flavor = "multi_thread")]
async fn the_example_of_an_embedded_node_continues_where_it_was() {
    let folder = tempfile::tempdir().expect("a folder");
    let is_free = |port: u16| [port, port + 1].iter().all(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok());
    // Two ports next to each other, which were free just now.
    let port = (0..100)
        .map(|offset| 28_500 + 2 * (offset + u16::try_from(std::process::id() % 200).expect("small")))
        .find(|port| is_free(*port))
        .expect("free ports");
    let data = folder.path().join("n1");
    let first = embed::run(&data, port).await.expect("a node");
    // A child process that another test starts has a copy of the listeners until it executes its program.
    while !is_free(port) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let second = embed::run(&data, port).await.expect("the same node");
    assert!(first < second, "{first}, {second}");
}

/// Examples are short enough to read at a glance.
#[test]
fn examples_are_short() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/examples");
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let lines = std::fs::read_to_string(&path).expect("an example").lines().count();
        assert!(lines <= 60, "{}: {lines} lines", path.display());
    }
}
