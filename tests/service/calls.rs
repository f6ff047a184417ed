//! The calls that a program in another language needs, made with only the code generated from the proto files.

mod waits;

use lockkeeper::rpc::pb;
use lockkeeper::rpc::pb::locks_client::LocksClient;
use lockkeeper::rpc::pb::{acquire_request, refresh_request, release_request};
use lockkeeper::service::{LockService, Operation};
use lockkeeper::testing::Cluster;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Response, Status};

use crate::suite::{LONG, PATIENT, POLL, SHORT};

type Locks = LocksClient<Channel>;

async fn connected(endpoint: &str) -> Locks {
    let endpoint = Endpoint::from_shared(format!("http://{endpoint}")).expect("an address");
    LocksClient::new(endpoint.connect().await.expect("connected"))
}

/// Returns a client of the node at this index of the shared cluster.
pub(super) async fn locks(place: usize) -> Locks {
    crate::shared().cluster.leader().await;
    connected(&crate::shared().cluster.endpoints()[place]).await
}

/// Repeats a call while no node leads, which can happen on a slow machine. Returns its answer.
async fn answered<T, F>(mut call: impl FnMut() -> F) -> Result<T, Status>
where
    F: Future<Output = Result<Response<T>, Status>>,
{
    loop {
        match call().await {
            Err(status) if status.code() == Code::Unavailable => tokio::time::sleep(POLL).await,
            answer => return answer.map(Response::into_inner),
        }
    }
}

pub(super) async fn opened(locks: &Locks) -> pb::SessionProof {
    let asked = pb::OpenSession { ttl_ms: 300_000, ..Default::default() };
    let open = || {
        let (mut locks, asked) = (locks.clone(), asked.clone());
        async move { locks.open_session(asked).await }
    };
    answered(open).await.expect("opened").session.expect("its proof")
}

/// The holder of a lock: a session with its proof, or a lease with its handle.
#[derive(Clone)]
pub(super) enum Holder {
    Session(pb::SessionProof),
    Lease(String),
}

fn shared() -> Option<pb::Mode> {
    Some(pb::Mode { how: Some(pb::mode::How::Shared(pb::Empty {})) })
}

pub(super) fn key(lock: &str) -> pb::LockKey {
    pb::LockKey { namespace: String::new(), name: lock.to_owned() }
}

pub(super) fn wanted(lock: &str, holder: &Holder, wait_ms: Option<u64>) -> pb::AcquireRequest {
    let holder = Some(match holder.clone() {
        Holder::Session(session) => acquire_request::Holder::Session(session),
        Holder::Lease(handle) => acquire_request::Holder::Handle(handle),
    });
    pb::AcquireRequest { holder, lock: lock.to_owned(), wait_ms, ..Default::default() }
}

/// Gives the acquire this request id, with which it can be repeated.
pub(super) fn named(asked: pb::AcquireRequest, request: &str) -> pb::AcquireRequest {
    pb::AcquireRequest { request: request.to_owned(), ..asked }
}

pub(super) fn lease(handle: &str) -> Holder {
    Holder::Lease(handle.to_owned())
}

pub(super) async fn acquired(locks: &Locks, asked: pb::AcquireRequest) -> Result<pb::AcquireReply, Status> {
    answered(|| {
        let (mut locks, asked) = (locks.clone(), asked.clone());
        async move { locks.acquire(asked).await }
    })
    .await
}

/// Sends the request in a task, which can be aborted to cancel the call.
fn waiting(locks: &Locks, asked: pb::AcquireRequest) -> tokio::task::JoinHandle<Result<pb::AcquireReply, Status>> {
    let locks = locks.clone();
    tokio::spawn(async move { acquired(&locks, asked).await })
}

pub(super) fn release_of(lock: &str, holder: &Holder, token: u64) -> pb::ReleaseRequest {
    let (holder, token) = match holder.clone() {
        Holder::Session(session) => (release_request::Holder::Session(session), token),
        Holder::Lease(handle) => (release_request::Holder::Handle(handle), 0),
    };
    pb::ReleaseRequest { holder: Some(holder), lock: lock.to_owned(), token, ..Default::default() }
}

/// Releases the lock. Returns how many entries of it are left.
pub(super) async fn released(locks: &Locks, lock: &str, holder: &Holder, token: u64) -> Result<u32, Status> {
    let asked = release_of(lock, holder, token);
    let reply = answered(|| {
        let (mut locks, asked) = (locks.clone(), asked.clone());
        async move { locks.release(asked).await }
    });
    match reply.await?.outcome {
        Some(pb::reply::Outcome::Released(pb::Released { left })) => Ok(left),
        other => panic!("expected a release, not {other:?}"),
    }
}

async fn shown(locks: &Locks, lock: &str) -> pb::LockView {
    let reply = answered(|| {
        let (mut locks, asked) = (locks.clone(), key(lock));
        async move { locks.inspect(asked).await }
    });
    match reply.await.expect("shown").answer {
        Some(pb::query_reply::Answer::Lock(view)) => view,
        other => panic!("expected a lock, not {other:?}"),
    }
}

/// Waits until the lock has this many holders and waiters.
pub(super) async fn in_use(locks: &Locks, lock: &str, holders: usize, waiters: usize) {
    let met = async {
        loop {
            let shown = shown(locks, lock).await;
            if (shown.holders.len(), shown.waiters.len()) == (holders, waiters) {
                return;
            }
            tokio::time::sleep(POLL).await;
        }
    };
    if tokio::time::timeout(PATIENT, met).await.is_err() {
        panic!("{lock}: expected {holders} holders and {waiters} waiters, is {:?}", shown(locks, lock).await);
    }
}

/// Returns the name and the advice of an error, as a client without our messages reads them.
pub(super) fn code_and_advice(status: &Status) -> (&str, &str) {
    let text = |key: &str| status.metadata().get(key).and_then(|value| value.to_str().ok()).unwrap_or_default();
    (text("lockkeeper-error"), text("lockkeeper-advice"))
}

/// Five calls are enough: open a session, keep it alive, acquire a lock, release it, close the session. Any node serves
/// them, omitted fields have defaults, and each answer contains how long it stays valid.
#[tokio::test]
async fn five_calls_are_enough() {
    for place in 0..3 {
        let mut locks = locks(place).await;
        let lock = format!("five-{place}");
        let open = || {
            let mut locks = locks.clone();
            async move { locks.open_session(pb::OpenSession::default()).await }
        };
        let opened = answered(open).await.expect("opened");
        let session = opened.session.clone().expect("its proof");
        assert!(!session.handle.is_empty() && session.namespace == "default" && opened.ttl_ms >= 10_000, "{opened:?}");
        assert_eq!(opened.valid_ms, 99 * (opened.deadline_ms - opened.stamp_ms) / 100);

        let kept = pb::KeepAliveRequest { session: Some(session.clone()), attempt: 0 };
        let alive = || {
            let (mut locks, kept) = (locks.clone(), kept.clone());
            async move { locks.keep_alive(kept).await }
        };
        let alive = answered(alive).await.expect("alive");
        assert_eq!(alive.deadline_ms, alive.stamp_ms + opened.ttl_ms);
        assert_eq!(alive.valid_ms, 99 * opened.ttl_ms / 100);

        let holder = Holder::Session(session.clone());
        let grant = acquired(&locks, wanted(&lock, &holder, None)).await.expect("free");
        assert!(grant.token > 0 && !grant.request.is_empty(), "{grant:?}");
        assert_eq!((grant.valid_ms, grant.deadline_ms), (None, None), "it lasts as long as its session");
        assert_eq!(grant.handle, "", "the session's secret is not answered again");
        let holders: Vec<_> = shown(&locks, &lock).await.holders.into_iter().map(|h| (h.session, h.token)).collect();
        assert_eq!(holders, [(Some(session.id), grant.token)]);

        assert_eq!(released(&locks, &lock, &holder, grant.token).await.expect("released"), 0);
        assert!(shown(&locks, &lock).await.holders.is_empty());
        let closed = pb::CloseSession { session: Some(session), ..Default::default() };
        locks.close_session(closed).await.expect("closed");
        let gone = locks.keep_alive(kept).await.expect_err("closed");
        assert_eq!(code_and_advice(&gone), ("session-ended", "give_up"), "{gone:?}");
    }
}

/// Opening a session again with the same handle returns the same session.
#[tokio::test]
async fn a_repeated_open_answers_the_same_session() {
    let mut locks = locks(0).await;
    let asked = pb::OpenSession { handle: "of-the-calls".to_owned(), ..Default::default() };
    let first = locks.open_session(asked.clone()).await.expect("opened").into_inner();
    let again = locks.open_session(asked).await.expect("answered").into_inner();
    assert_eq!(first.session, again.session);
    let another = locks.open_session(pb::OpenSession::default()).await.expect("opened").into_inner();
    assert_ne!(first.session, another.session);
}

/// A repeated request gets the first answer at any node, and a different request with its number or id is refused. This
/// holds for sessions and for leases.
#[tokio::test]
async fn a_repeated_request_gets_the_first_answer() {
    let (here, there) = (locks(0).await, locks(1).await);
    let session = Holder::Session(opened(&here).await);
    let id = "6f9619ff8b86d011b42d00cf4fc964ff";
    let uuid = "6f9619ff-8b86-d011-b42d-00cf4fc964fe";
    for (lock, holder, request) in
        [("again", session, "1"), ("again-leased", lease("of-again"), id), ("again-by-uuid", lease("of-again"), uuid)]
    {
        let asked = named(wanted(lock, &holder, Some(0)), request);
        let first = acquired(&here, asked.clone()).await.expect("free");
        let again = acquired(&there, asked.clone()).await.expect("answered again");
        assert_eq!((first.token, &first.request), (again.token, &again.request));
        assert_eq!(again.request, request);
        let other = acquired(&there, pb::AcquireRequest { mode: shared(), ..asked.clone() })
            .await
            .expect_err("another request");
        assert_eq!(code_and_advice(&other), ("request-reused", "give_up"), "{other:?}");
        released(&here, lock, &holder, first.token).await.expect("released");
        let ended = acquired(&there, asked).await.expect_err("the hold has ended");
        assert_eq!(code_and_advice(&ended), ("lost", "give_up"), "{ended:?}");
    }
}

/// The node chooses the number of a request that has none: numbers of one session are distinct, and a lease gets an id
/// and a handle. A request id without the handle that a retry needs is refused.
#[tokio::test]
async fn a_request_without_a_number_gets_one() {
    let clients = [locks(0).await, locks(1).await, locks(2).await];
    let session = Holder::Session(opened(&clients[0]).await);
    let many = (0..24).map(|n: usize| {
        let (locks, asked) = (&clients[n % 3], wanted(&format!("chosen-{n}"), &session, None));
        acquired(locks, asked)
    });
    let grant = futures_util::future::join_all(many).await;
    let chosen: std::collections::BTreeSet<_> = grant.into_iter().map(|grant| grant.expect("free").request).collect();
    assert_eq!(chosen.len(), 24, "{chosen:?}");

    let leased = acquired(&clients[0], wanted("chosen-lease", &lease(""), None)).await.expect("free");
    let asked = named(wanted("chosen-lease", &lease(&leased.handle), None), &leased.request);
    let again = acquired(&clients[1], asked).await.expect("answered again");
    assert_eq!(leased.token, again.token);
    let unproven = named(wanted("chosen-lease", &lease(""), None), &leased.request);
    assert_eq!(code_and_advice(&acquired(&clients[1], unproven).await.expect_err("no handle")), ("invalid", "give_up"));
}

/// A lease is renewed with its handle, and the hold of a session with the session's proof and its token. Each answer
/// contains how long it stays valid.
#[tokio::test]
async fn a_lease_is_kept_alive() {
    let mut locks = locks(1).await;
    let session = opened(&locks).await;
    let held = Holder::Session(session.clone());
    let asked = pb::AcquireRequest { lease_ms: Some(30_000), ..wanted("kept-hold", &held, None) };
    let hold = acquired(&locks, asked).await.expect("free");
    let leased = acquired(&locks, wanted("kept-lease", &lease("of-the-lease"), None)).await.expect("free");
    let of_lease = |lease_ms| {
        let holder = Some(refresh_request::Holder::Handle("of-the-lease".to_owned()));
        pb::RefreshRequest { holder, lock: "kept-lease".to_owned(), lease_ms, ..Default::default() }
    };
    let of_hold = |token, lease_ms| {
        let holder = Some(refresh_request::Holder::Session(session.clone()));
        pb::RefreshRequest { holder, lock: "kept-hold".to_owned(), token, lease_ms, ..Default::default() }
    };
    for (asked, token, lease_ms) in [
        (of_lease(50_000), leased.token, 50_000),
        (of_lease(0), leased.token, 10_000),
        (of_hold(hold.token, 50_000), hold.token, 50_000),
    ] {
        let reply = locks.refresh(asked).await.expect("renewed").into_inner();
        assert_eq!((reply.token, reply.deadline_ms), (Some(token), reply.stamp_ms + lease_ms), "{reply:?}");
        assert_eq!(reply.valid_ms, 99 * lease_ms / 100, "{reply:?}");
    }
    let stranger = of_hold(hold.token + 1, 50_000);
    assert_eq!(code_and_advice(&locks.refresh(stranger).await.expect_err("another grant")).0, "not-held");
}

/// Closing a session ends the waits of its acquires.
#[tokio::test]
async fn a_closed_session_ends_its_waits() {
    let mut locks = locks(0).await;
    let (first, second) = (Holder::Session(opened(&locks).await), opened(&locks).await);
    let held = acquired(&locks, wanted("closed", &first, None)).await.expect("free");
    let waits = waiting(&locks, wanted("closed", &Holder::Session(second.clone()), None));
    in_use(&locks, "closed", 1, 1).await;
    let asked = pb::CloseSession { session: Some(second), ..Default::default() };
    locks.close_session(asked).await.expect("closed");
    let status =
        tokio::time::timeout(LONG, waits).await.expect("the wait ends").expect("no panic").expect_err("no hold");
    assert_eq!(code_and_advice(&status), ("session-ended", "give_up"), "{status:?}");
    released(&locks, "closed", &first, held.token).await.expect("released");
}

/// A wait continues while leadership moves: at the old leader, at the new leader and at the third node. Each waiter is
/// granted in its turn.
#[tokio::test]
async fn a_wait_outlasts_a_change_of_leader() {
    let folder = tempfile::tempdir().expect("a folder");
    let cluster = Cluster::start(3, Some(folder.path())).await.expect("a cluster");
    let leader = cluster.leader().await;
    let mut clients = Vec::new();
    for endpoint in cluster.endpoints() {
        clients.push(connected(endpoint).await);
    }
    let first = Holder::Session(opened(&clients[0]).await);
    let held = acquired(&clients[0], wanted("moved", &first, None)).await.expect("free");
    let mut waits = Vec::new();
    for (place, locks) in clients.iter().enumerate() {
        let holder = Holder::Session(opened(locks).await);
        let asked = named(wanted("moved", &holder, None), "1");
        waits.push((place, holder, waiting(locks, asked)));
        in_use(locks, "moved", 1, place + 1).await;
    }
    let status = leader.status().await.expect("a status");
    let next = status.nodes.iter().map(|node| node.id).find(|id| Some(*id) != status.leader).expect("another node");
    leader.operate(Operation::Transfer(next)).await.expect("transferred");

    released(&clients[0], "moved", &first, held.token).await.expect("released");
    let mut token = held.token;
    for (place, holder, wait) in waits {
        let grant = tokio::time::timeout(PATIENT, wait).await.expect("in time").expect("no panic").expect("granted");
        assert!(token < grant.token, "granted out of order");
        token = grant.token;
        released(&clients[place], "moved", &holder, token).await.expect("released");
    }
    in_use(&clients[0], "moved", 0, 0).await;
    cluster.close().await;
}
