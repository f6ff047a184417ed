//! The examples run against a cluster, as in the manual.

#[allow(dead_code, reason = "the example has its own main function")]
#[path = "guarded_file.rs"]
mod guarded_file;
#[allow(dead_code, reason = "the example has its own main function")]
#[path = "guarded_postgres.rs"]
mod guarded_postgres;

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
