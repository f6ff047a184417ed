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
