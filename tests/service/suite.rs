//! Tests that every implementation of `LockService` must pass. Each function uses its own names and namespaces, so that
//! all can run against a shared service.

mod cached;
mod faults;
mod leases;
mod locks;
mod rates;
mod looking;
mod sessions;
mod tokens;

use std::time::Duration;

use lockkeeper::client::{Client, Session};
use lockkeeper::model::Namespace;
use lockkeeper::service::LockService;

pub(crate) use crate::changes::*;
pub(crate) use crate::sets::*;
pub(crate) use cached::*;
pub(crate) use faults::*;
pub(crate) use leases::*;
pub(crate) use locks::*;
pub(crate) use looking::*;
pub(crate) use rates::*;
pub(crate) use sessions::*;
pub(crate) use tokens::*;

/// The limit of waits that should end because of an event.
pub(crate) const LONG: Duration = Duration::from_secs(30);
/// How long a test waits for an event that only a slow machine delays, before it fails.
pub(crate) const PATIENT: Duration = Duration::from_secs(120);
/// The limit of waits that should time out.
pub(crate) const SHORT: Duration = Duration::from_millis(50);
/// The interval between two checks of a condition.
pub(crate) const POLL: Duration = Duration::from_millis(5);

tokio::task_local! {
    /// The name of the backend that a test uses: each backend has separate namespaces.
    pub(crate) static BACKEND: &'static str;
}

pub(crate) fn client<S: LockService>(service: S, namespace: &str) -> Client<S> {
    let namespace = format!("{namespace}.{}", BACKEND.get());
    Client::new(service).namespace(Namespace::parse(&namespace).expect("a good name"))
}

pub(crate) async fn session<S: LockService>(service: S, namespace: &str) -> Session<S> {
    client(service, namespace).session().open().await.expect("opened")
}

/// Opens a session with the shortest TTL that the service allows.
pub(crate) async fn short_session<S: LockService>(service: S, namespace: &str) -> Session<S> {
    let client = client(service, namespace);
    let ttl = Duration::from_millis(client.status().await.expect("a status").ttl_ms_min);
    client.session().ttl(ttl).open().await.expect("opened")
}

/// Waits until a condition is met.
pub(crate) async fn until(what: &str, mut is_met: impl AsyncFnMut() -> bool) {
    let met = async {
        while !is_met().await {
            tokio::time::sleep(POLL).await;
        }
    };
    assert!(tokio::time::timeout(PATIENT, met).await.is_ok(), "not in time: {what}");
}

/// Waits until the cluster's log time has advanced by at least this much.
pub(crate) async fn passes<S: LockService>(client: &Client<S>, time: Duration) {
    let now = async || client.status().await.expect("a status").log_time;
    let end = now().await.after_ms(u64::try_from(time.as_millis()).expect("a short time"));
    until("log time advances", async || end <= now().await).await;
}

/// Waits until the lock has this many holders and waiters.
pub(crate) async fn in_use<S: LockService>(client: &Client<S>, name: &str, holders: usize, waiters: usize) {
    let met = async {
        loop {
            // Lists counts only: to show a thousand waiters at every check would cost more than the test itself.
            let rows = client.list(name).all().await.expect("listed").value;
            let row = rows.into_iter().find(|row| row.lock.name.as_str() == name);
            let (held, waited) = row.map_or((0, 0), |row| (row.holders, row.waiters));
            if (held, waited) == (holders as u64, waiters as u64) {
                return;
            }
            tokio::time::sleep(POLL).await;
        }
    };
    if tokio::time::timeout(PATIENT, met).await.is_err() {
        panic!("{name}: expected {holders} holders and {waiters} waiters, is {:?}", client.inspect(name).await);
    }
}
