//! Tests of connections between nodes whose callers are dropped.

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use futures_util::poll;
use tokio::io::{DuplexStream, duplex};
use tokio::sync::Semaphore;

use crate::net::{Connection, Connector};
use crate::raft::connections::{Connections, Purpose};

/// An attempt to connect continues if its caller is dropped: another caller that waits for the same connection gets it,
/// and no error.
#[tokio::test]
async fn a_connection_attempt_outlives_its_caller() {
    let (dials, allowed) = (Arc::new(AtomicU32::new(0)), Arc::new(Semaphore::new(0)));
    let others: Arc<Mutex<Vec<DuplexStream>>> = Arc::default();
    let (begun, may) = (Arc::clone(&dials), Arc::clone(&allowed));
    let connector = Connector::new(move |_| {
        let (begun, may, others) = (Arc::clone(&begun), Arc::clone(&may), Arc::clone(&others));
        Box::pin(async move {
            begun.fetch_add(1, SeqCst);
            may.acquire().await.expect("open").forget();
            let (near, far) = duplex(1 << 16);
            others.lock().expect("whole").push(far);
            Ok(Connection::new(near))
        })
    });
    let links = Arc::new(Connections::new(connector));
    let mut first = Box::pin(links.borrow(2, "other:1", Purpose::Forward));
    while dials.load(SeqCst) == 0 {
        assert!(poll!(&mut first).is_pending());
        tokio::task::yield_now().await;
    }
    let mut second = Box::pin(links.borrow(2, "other:1", Purpose::Forward));
    assert!(poll!(&mut second).is_pending());
    drop(first);
    assert!(poll!(&mut second).is_pending());
    allowed.add_permits(1);
    second.await.expect("the connection of the first call");
    assert_eq!(dials.load(SeqCst), 1);
}

/// A client that gives up a forwarded call does not end the connection, which all forwarded calls share. Any other call
/// that is dropped may have failed, so the next one dials again, as does a forwarded call after a failure.
#[tokio::test(start_paused = true)]
async fn a_cancelled_call_keeps_the_connection_of_the_others() {
    let dials = Arc::new(AtomicU32::new(0));
    let (begun, others): (_, Arc<Mutex<Vec<DuplexStream>>>) = (Arc::clone(&dials), Arc::default());
    let connector = Connector::new(move |_| {
        begun.fetch_add(1, SeqCst);
        let (near, far) = duplex(1 << 16);
        others.lock().expect("whole").push(far);
        Box::pin(async move { Ok(Connection::new(near)) })
    });
    let links = Arc::new(Connections::new(connector));
    let borrow = async |purpose| {
        // There is a pause between two dials.
        tokio::time::sleep(std::time::Duration::from_secs(60)).await;
        links.borrow(2, "other:1", purpose).await.expect("a connection")
    };
    drop(borrow(Purpose::Forward).await);
    drop(borrow(Purpose::Forward).await);
    assert_eq!(dials.load(SeqCst), 1);
    borrow(Purpose::Forward).await.failed();
    drop(borrow(Purpose::Forward).await);
    assert_eq!(dials.load(SeqCst), 2);
    drop(borrow(Purpose::Entries).await);
    drop(borrow(Purpose::Entries).await);
    assert_eq!(dials.load(SeqCst), 4);
}
