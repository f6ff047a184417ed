//! etcd's sessions, mutexes and elections.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use lockkeeper::compat::etcd::{Election, EtcdError, Mutex, Session};
use lockkeeper::service::LockService;

use crate::faulty::Faulty;
use crate::suite::{LONG, SHORT, client, in_use};

recipe_tests! {
    two_mutexes_of_one_session_exclude_each_other
    a_mutex_returns_the_errors_of_etcd
    an_etcd_election_behaves_as_in_etcd
}

async fn session<S: LockService>(service: S, name: &str) -> Session<S> {
    let client = client(service, name);
    let ttl = Duration::from_millis(client.status().await.expect("a status").ttl_ms_min);
    Session::new(&client, ttl).await.expect("opened")
}

fn leading(leader: Option<&lockkeeper::client::Leader>) -> Option<String> {
    leader.and_then(|leader| leader.value.as_ref()).map(ToString::to_string)
}

/// Two mutexes of one session exclude each other. In etcd the key belongs to the session, so the second mutex finds its
/// own key and is acquired as well.
async fn two_mutexes_of_one_session_exclude_each_other<S: LockService>(service: S) {
    let mut keys = BTreeSet::new();
    let mut lock = |lease: u64| {
        keys.insert(lease);
        keys.first() == Some(&lease)
    };
    assert!(lock(7) && lock(7), "both tasks of the session hold the lock");

    let session = session(service, "etcd-same").await;
    let (mut one, mut two) = (Mutex::new(&session, "m"), Mutex::new(&session, "m"));
    one.lock().await.expect("free");
    assert_eq!(two.try_lock().await, Err(EtcdError::Locked));
    let mut waits = Box::pin(two.lock());
    assert!(tokio::time::timeout(SHORT, &mut waits).await.is_err());
    one.unlock().await.expect("held");
    waits.await.expect("its turn");
    assert!(two.is_owner().is_some());
}

/// The errors are those of etcd: locked, already released, session expired. The key and the token are those of the
/// hold.
async fn a_mutex_returns_the_errors_of_etcd<S: LockService>(service: S) {
    let (faulty, faults) = Faulty::new(service.clone());
    let (one, two) = (session(faulty, "etcd-mutex").await, session(service.clone(), "etcd-mutex").await);
    let (mut mutex, mut other) = (Mutex::new(&one, "m"), Mutex::new(&two, "m"));
    assert_eq!((mutex.unlock().await, mutex.key()), (Err(EtcdError::LockReleased), None));
    mutex.try_lock().await.expect("free");
    let token = mutex.is_owner().expect("held");
    mutex.lock().await.expect("held already");
    assert_eq!((mutex.is_owner(), mutex.key()), (Some(token), Some(format!("m/{token}"))));
    assert_eq!(other.try_lock().await, Err(EtcdError::Locked));
    faults.ignores_renewals.store(true, SeqCst);
    let (locked, ()) = tokio::join!(other.lock(), one.done());
    locked.expect("the session of the holder has ended");
    assert!(mutex.is_owner().is_none() && Some(token) < other.is_owner());
    assert_eq!(mutex.unlock().await, Err(EtcdError::SessionExpired));
    assert_eq!(mutex.lock().await, Err(EtcdError::SessionExpired));
    faults.ignores_renewals.store(false, SeqCst);
    client(service.clone(), "etcd-mutex")
        .break_hold("m", other.is_owner().expect("held"), "test")
        .await
        .expect("broken");
    assert_eq!(other.unlock().await, Err(EtcdError::LockReleased));
    two.close().await.expect("closed");
}

/// One candidate leads, proclaims and resigns, and the next one leads. A candidate that does not lead gets an error.
async fn an_etcd_election_behaves_as_in_etcd<S: LockService>(service: S) {
    let client = client(service.clone(), "etcd-election");
    let (one, two) = (session(service.clone(), "etcd-election").await, session(service, "etcd-election").await);
    let (mut first, mut second) = (Election::new(&one, "e"), Election::new(&two, "e"));
    assert_eq!(first.leader().await.err(), Some(EtcdError::NoLeader));
    assert_eq!(first.proclaim("early").await, Err(EtcdError::NotLeader));
    first.resign().await.expect("nothing to give up");
    let mut observer = second.observe().await.expect("observing");
    assert_eq!(observer.next().await.expect("observed"), None);
    first.campaign("n1").await.expect("there is no other candidate");
    assert_eq!(leading(observer.next().await.expect("observed").as_ref()).as_deref(), Some("n1"));
    first.campaign("n1 again").await.expect("it leads");
    assert_eq!(leading(first.leader().await.ok().as_ref()).as_deref(), Some("n1 again"));
    let rev = first.rev();
    let mut waits = Box::pin(second.campaign("n2"));
    tokio::select! {
        _ = &mut waits => panic!("another candidate leads"),
        () = in_use(&client, "e", 1, 1) => {}
    }
    first.resign().await.expect("resigned");
    waits.await.expect("its turn");
    assert!(rev < second.rev() && first.key().is_none() && second.key().is_some());
    assert_eq!(first.proclaim("late").await, Err(EtcdError::NotLeader));
    let second_leads =
        async { while leading(observer.next().await.expect("observed").as_ref()).as_deref() != Some("n2") {} };
    tokio::time::timeout(LONG, second_leads).await.expect("the observer sees the last leader");
}
