//! Ids of sessions can be guessed: what a caller learns about one that it does not own, or that is not open yet.

use lockkeeper::model::{
    Command, EndReason, EndSession, EventKind, Handle, Manage, Managing, Outcome, Reason, Refusal, SessionClose,
    SessionId,
};
use lockkeeper::service::{Call, LockService, Scope, ServiceError, Subscription};
use lockkeeper::testing::{Cluster, ClusterOptions};

use super::own::{acquire, holders, unknown};
use super::{Guarded, key, named, namespace, open, stranger, submit};

/// Ids of sessions can be predicted. A command for the next one that is sent right after the command that opens it,
/// with any handle, gets the answer of an unknown session, with and without rules: it must not reach the log behind it.
#[tokio::test]
async fn a_session_that_is_not_open_yet_is_unknown() {
    let guarded = Guarded::start(1).await;
    let open_to_all = Cluster::start_with(ClusterOptions { nodes: 1, ..ClusterOptions::default() }).await;
    let open_to_all = open_to_all.expect("a cluster");
    let (guarded, unguarded) = (guarded.cluster.leader().await, open_to_all.leader().await);
    for (node, owner, caller, name) in [
        (&guarded, named(&guarded, "lock-all"), named(&guarded, "lock"), "b/1"),
        (&unguarded, unguarded.service(), stranger(&unguarded), "a/1"),
    ] {
        let (mut last, _) = open(&owner, 1).await;
        for secret in 2..6 {
            let next = SessionId::new(last.epoch(), last.counter() + 1);
            let close = Command::CloseSession { session: next, end: SessionClose::Done };
            let guess = Handle::from_random(9);
            let (opened, acquired, closed) = tokio::join!(
                open(&owner, secret),
                submit(&caller, &guess, acquire(next, 1, name, None)),
                submit(&caller, &guess, close),
            );
            last = opened.0;
            assert_eq!(last, next);
            // If the session was opened before, the handle was compared, or the session was another's.
            for answered in [acquired, closed] {
                let compared = answered == Err(ServiceError::Refused(Refusal::WrongHandle));
                assert!(compared || answered == Ok(Outcome::Refused(unknown(next))), "{answered:?}");
            }
            assert_eq!(holders(node, name).await, 0);
        }
    }
}

/// H-14: the events of a session that another principal will open, has opened, or had opened, are hidden from a caller
/// that guesses its id. It learns neither that the session exists, nor when it ends. Its own principal gets them.
#[tokio::test]
async fn a_guessed_id_shows_no_events() {
    let guarded = Guarded::start(1).await;
    let leader = guarded.cluster.leader().await;
    let (last, _) = open(&named(&leader, "other"), 1).await;
    let next = SessionId::new(last.epoch(), last.counter() + 1);
    let subscribed = async |principal: &str| {
        let of = |scope| Subscription { scope, after: None, cluster_id: None };
        let caller = named(&leader, principal);
        let holds = caller.subscribe(of(Scope::Holds(next))).await.expect("subscribed");
        (holds, caller.subscribe(of(Scope::SessionEnd(next))).await.expect("subscribed"))
    };
    let (mut before, mut own) = (subscribed("admin").await, subscribed("lock").await);
    let (session, handle) = open(&named(&leader, "lock"), 2).await;
    assert_eq!(session, next);
    let mut meanwhile = subscribed("admin").await;
    let granted = submit(&named(&leader, "lock"), &handle, acquire(session, 1, "a/1", None)).await;
    let Ok(Outcome::Granted(grant)) = granted else { panic!("{granted:?}") };
    let why = || Reason::parse("a secret of the operators").expect("legal");
    let ask = Managing::Ask { token: grant.token, why: why() };
    let ask = Command::Manage(Manage { lock: key("a/1"), what: ask });
    named(&leader, "admin-all").submit(Call::new(ask)).await.expect("asked");
    let asked = own.0.next().await.expect("an event").kind;
    assert!(matches!(asked, EventKind::RevokeRequested { .. }), "{asked:?}");
    let end = EndSession { namespace: namespace(), session, why: why() };
    named(&leader, "admin-all").submit(Call::new(Command::EndSession(end))).await.expect("ended");
    let ended = own.1.next().await.expect("an event").kind;
    assert!(matches!(ended, EventKind::SessionEnded { reason: EndReason::Broken, .. }), "{ended:?}");
    let mut afterwards = subscribed("admin").await;
    for (holds, end) in [&mut before, &mut meanwhile, &mut afterwards] {
        let seen = async {
            tokio::select! { seen = holds.next() => seen, seen = end.next() => seen }
        };
        let seen = tokio::time::timeout(std::time::Duration::from_millis(200), seen).await;
        assert!(seen.is_err(), "{seen:?}");
    }
}
