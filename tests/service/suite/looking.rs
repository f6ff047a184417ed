//! What can be asked, watched and waited for.

use lockkeeper::model::{EventKind, ListShow, TokenState};
use lockkeeper::service::{LockService, Word};

use super::{SHORT, client};

/// A token is valid while its lock is held with it, and stale ever after.
pub(crate) async fn a_token_is_checked<S: LockService>(service: S) {
    let client = client(service.clone(), "check");
    let guard = client.lock("a").acquire().await.expect("free");
    let token = guard.token();
    assert_eq!(client.check("a", token).await.expect("checked").state, TokenState::Valid);
    assert_eq!(client.check("b", token).await.expect("checked").state, TokenState::Stale);
    guard.release().await.expect("released");
    let checked = client.check("a", token).await.expect("checked");
    assert_eq!(checked.state, TokenState::Stale);
    assert!(token < checked.lowest_valid);
}

/// Locks and sessions can be looked at: who holds, who waits, and what they say of themselves.
pub(crate) async fn locks_and_sessions_can_be_seen<S: LockService>(service: S) {
    let client = client(service.clone(), "look");
    let session = client.session().open().await.expect("opened");
    let _guard = session.lock("jobs/one").owner("task").why("to be seen").acquire().await.expect("free");
    let _other = session.lock("other").acquire().await.expect("free");
    let view = client.inspect("jobs/one").await.expect("inspected").value;
    assert_eq!(&*view.holders[0].metadata.why, "to be seen");
    assert_eq!(view.holders[0].owner.as_ref().map(|owner| owner.as_str()), Some("task"));
    let listed = client.list("jobs/").show(ListShow::Held).all().await.expect("listed").value;
    assert_eq!(listed.iter().map(|row| row.lock.name.as_str()).collect::<Vec<_>>(), ["jobs/one"]);
    let page = client.list("").rows(1).page().await.expect("listed").value;
    assert!(page.rows.len() == 1 && page.more);
    assert_eq!(client.list("").rows(1).all().await.expect("listed").value.len(), 2);
    let sessions = client.all_sessions().await.expect("listed").value;
    assert_eq!(sessions.iter().map(|row| (row.session, row.holds)).collect::<Vec<_>>(), [(session.id(), 2)]);
}

/// A watch tells everything after its beginning once, in order; another one goes on where the first one stopped.
pub(crate) async fn a_watch_goes_on_where_it_stopped<S: LockService>(service: S) {
    let client = client(service.clone(), "watch");
    let mut watch = client.watch("a", None).await.expect("watching");
    let guard = client.lock("a").acquire().await.expect("free");
    let token = guard.token();
    drop(client.lock("b").acquire().await.expect("free"));
    guard.release().await.expect("released");
    let granted = loop {
        let event = watch.next().await.expect("an event");
        if event.subject.token() == Some(token) {
            break event;
        }
    };
    assert!(matches!(granted.kind, EventKind::Granted { .. }));
    let mut second = client.watch("a", Some(granted.position)).await.expect("watching");
    let (here, there) = (watch.next().await.expect("an event"), second.next().await.expect("an event"));
    assert_eq!(here, there);
    assert!(matches!(here.kind, EventKind::Released { .. }), "{here:?}");
    assert!(granted.position < here.position);
}

/// Waiting for a free lock returns when it is free, and at once where it is.
pub(crate) async fn a_free_lock_is_awaited<S: LockService>(service: S) {
    let client = client(service.clone(), "wait-free");
    client.wait_free("a").await.expect("free");
    let guard = client.lock("a").acquire().await.expect("free");
    assert!(tokio::time::timeout(SHORT, client.wait_free("a")).await.is_err(), "held");
    let (free, released) = tokio::join!(client.wait_free("a"), guard.release());
    free.expect("free");
    released.expect("released");
}

/// A position of another cluster, as one is after a restore, is refused, whatever stands there here.
pub(crate) async fn a_watch_of_another_cluster_is_refused<S: LockService>(service: S) {
    let client = client(service, "watch-foreign");
    let mut watch = client.watch("", None).await.expect("watching");
    client.lock("a").acquire().await.expect("free").release().await.expect("released");
    watch.next().await.expect("told");
    let (cluster_id, after) = (watch.cluster_id(), watch.position());
    client.watch_of(cluster_id, "", after).next().await.expect("told on");
    let foreign = client.watch_of(cluster_id ^ 1, "", after).next().await.expect_err("of another cluster");
    assert_eq!(foreign.word(), Word::Invalid);
}
