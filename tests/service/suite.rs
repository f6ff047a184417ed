//! What every lock service owes its clients, whoever implements it. Each function needs a service of its own or a
//! shared one: names and namespaces do not meet.

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
pub(crate) use faults::*;
pub(crate) use leases::*;
pub(crate) use locks::*;
pub(crate) use looking::*;
pub(crate) use rates::*;
pub(crate) use sessions::*;
pub(crate) use tokens::*;

/// Waits that are meant to end by something else than time.
pub(crate) const LONG: Duration = Duration::from_secs(30);
/// How long a test waits for something that only a busy machine delays.
pub(crate) const PATIENT: Duration = Duration::from_secs(120);
/// Waits that are meant to run out.
pub(crate) const SHORT: Duration = Duration::from_millis(50);
/// Between two looks at a condition.
pub(crate) const LOOK: Duration = Duration::from_millis(5);

tokio::task_local! {
    /// Which way to the service is tried: each has its own namespaces.
    pub(crate) static WAY: &'static str;
}

pub(crate) fn client<S: LockService>(service: S, namespace: &str) -> Client<S> {
    let namespace = format!("{namespace}.{}", WAY.get());
    Client::new(service).namespace(Namespace::parse(&namespace).expect("a good name"))
}

pub(crate) async fn session<S: LockService>(service: S, namespace: &str) -> Session<S> {
    client(service, namespace).session().open().await.expect("opened")
}

/// The shortest TTL that the service allows.
pub(crate) async fn short_session<S: LockService>(service: S, namespace: &str) -> Session<S> {
    let client = client(service, namespace);
    let ttl = Duration::from_millis(client.status().await.expect("a status").ttl_ms_min);
    client.session().ttl(ttl).open().await.expect("opened")
}

/// Awaits that so many hold the lock and so many wait for it.
pub(crate) async fn in_use<S: LockService>(client: &Client<S>, name: &str, holders: usize, waiters: usize) {
    let met = async {
        loop {
            // Counts only: to show a thousand waiters at every look would cost more than what is looked at.
            let rows = client.list(name).all().await.expect("listed").value;
            let row = rows.into_iter().find(|row| row.lock.name.as_str() == name);
            let (held, waited) = row.map_or((0, 0), |row| (row.holders, row.waiters));
            if (held, waited) == (holders as u64, waiters as u64) {
                return;
            }
            tokio::time::sleep(LOOK).await;
        }
    };
    if tokio::time::timeout(PATIENT, met).await.is_err() {
        panic!("{name}: expected {holders} holders and {waiters} waiters, is {:?}", client.inspect(name).await);
    }
}
