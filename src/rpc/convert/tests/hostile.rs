//! Damaged and synthetic messages of clients, and answers to them: they are refused or accepted, without a panic and
//! without more memory than ten times their length. Requests go through the handlers of the server.

use futures_util::FutureExt;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use prost::{Message, Name};
use tokio::sync::watch;
use tonic::{Request, Status as GrpcStatus};

use super::values::{answer, happening, outcome};
use super::*;
use crate::codec::tests::hostile::{Sample, attack, held, kept, within_memory_bound};
use crate::limits;
use crate::protobuf;
use crate::rpc::fake::Fake;
use crate::rpc::pb::admin_server::Admin as _;
use crate::rpc::pb::locks_server::Locks as _;
use crate::rpc::server::admin::Admin;
use crate::rpc::server::caller::OfCallers;
use crate::rpc::server::locks::Locks;
use crate::service::MemberChange;
use crate::service::ServerInfo;

mod commands;
mod lists;
pub(in crate::rpc) use lists::full_of_elements;

/// Number of random answers and events, so that some of each kind occur.
const DRAWN: usize = 120;

struct Server {
    locks: Locks<Fake>,
    admin: Admin<Fake>,
    /// Keeps the node running.
    _running: watch::Sender<bool>,
}

impl Server {
    fn new() -> Self {
        let service = OfCallers::new(Fake::new().0);
        let info = ServerInfo {
            cluster: "harbour".to_owned(),
            cluster_id: watch::channel(Some(0xabc)).1,
            node: 1,
            leaderless_max: std::time::Duration::MAX,
            leader: watch::channel(None).1,
            endpoints: watch::channel(vec![]).1,
            connections: crate::net::ConnectionsMax::default(),
            deadlocks: watch::channel(Default::default()).1,
        };
        let (running, stop) = watch::channel(false);
        Self {
            locks: Locks::new(service.clone(), info, stop, Default::default()),
            admin: Admin { service },
            _running: running,
        }
    }

    /// Whether a request was accepted: it was answered or submitted.
    fn understands(&self, name: &str, bytes: &[u8]) -> bool {
        let Self { locks, admin, .. } = self;
        match name {
            "Command" => call(bytes, |asked| locks.submit(asked)),
            "OpenSession" => call(bytes, |asked| locks.open_session(asked)),
            "KeepAliveRequest" => call(bytes, |asked| locks.keep_alive(asked)),
            "AcquireRequest" => call(bytes, |asked| locks.acquire(asked)),
            "RefreshRequest" => call(bytes, |asked| locks.refresh(asked)),
            "ReleaseRequest" => call(bytes, |asked| locks.release(asked)),
            "CloseSession" => call(bytes, |asked| locks.close_session(asked)),
            "RenewRequest" => call(bytes, |asked| locks.renew(asked)),
            "WaitOutcomeRequest" => call(bytes, |asked| locks.wait_outcome(asked)),
            "TokenOf" => call(bytes, |asked| locks.check(asked)),
            "LockKey" => call(bytes, |asked| locks.inspect(asked)),
            "ListFilter" => call(bytes, |asked| locks.list(asked)),
            "About" => call(bytes, |asked| locks.explain(asked)),
            "QueryRequest" => call(bytes, |asked| locks.query(asked)),
            "WatchRequest" => call(bytes, |asked| locks.watch(asked)),
            "WaitRequest" => call(bytes, |asked| locks.wait(asked)),
            "WatchTokensRequest" => call(bytes, |asked| locks.watch_tokens(asked)),
            "TransferRequest" => call(bytes, |asked| admin.transfer(asked)),
            "RaiseFeaturesRequest" => call(bytes, |asked| admin.raise_features(asked)),
            "ChangeMembersRequest" => read::<pb::ChangeMembersRequest, MemberChange>(bytes),
            other => panic!("{other}: no such request"),
        }
    }
}

fn call<M, R, F>(bytes: &[u8], serve: impl FnOnce(Request<M>) -> F) -> bool
where
    M: Message + Name + Default,
    F: Future<Output = Result<R, GrpcStatus>>,
{
    let Ok(message) = protobuf::read::<M, AsInvalid>(bytes) else { return false };
    !matches!(serve(Request::new(message)).now_or_never(), Some(Err(_)))
}

fn read<M: Message + Name + Default, T: Wire<M>>(bytes: &[u8]) -> bool {
    protobuf::read::<M, AsInvalid>(bytes).is_ok_and(|message| T::from_wire("message", message).is_ok())
}

fn whole<M: Message>(name: &str, message: M) -> Sample {
    (name.to_owned(), message.encode_to_vec())
}

const LOCK: &str = "free";
const SESSION: u64 = 7;
const HANDLE: &str = "secret";

fn texts() -> (String, String, String) {
    (String::new(), LOCK.to_owned(), HANDLE.to_owned())
}

fn described() -> Option<pb::Metadata> {
    Some(pb::Metadata { who: "ida".to_owned(), why: "rebuild".to_owned(), pid: 4, ..Default::default() })
}

fn permits() -> Option<pb::Mode> {
    Some(pb::Mode { how: Some(pb::mode::How::Permits(2)) })
}

fn patient() -> Option<u64> {
    Some(30_000)
}

/// Returns every extra option of an acquire.
pub(in crate::rpc) fn full_extras() -> Option<pb::Extras> {
    let parent = Some(pb::Parent { session: 9, owner: "main".to_owned() });
    let value = Some("n1".to_owned());
    let reentry = pb::Reentry::Count.into();
    Some(pb::Extras {
        reentry,
        unfair: true,
        delay_ms: 9,
        value,
        parent,
        wait_in_cycles: true,
        at_least_ms: Some(6_000),
        at_most_ms: Some(7_000),
        cached: true,
    })
}

/// Returns an acquire of one lock with every option set. Its session is the stream's.
pub(in crate::rpc) fn full_acquire() -> pb::Acquire {
    pb::Acquire {
        session: None,
        request: 12,
        answered_below: 11,
        lock: LOCK.to_owned(),
        mode: permits(),
        limit: Some(5),
        others: vec![],
        owner: Some("job".to_owned()),
        wait_ms: patient(),
        metadata: described(),
        extras: full_extras(),
        lease_ms: Some(5_000),
    }
}

/// Returns an acquire of several locks with every field set.
pub(in crate::rpc) fn full_set() -> pb::Acquire {
    let member = |lock: &str| pb::SetMember { lock: lock.to_owned(), mode: permits(), limit: Some(5) };
    pb::Acquire { lock: "a".to_owned(), others: vec![member("b"), member("c")], ..full_acquire() }
}

/// Returns an open of a session with every field set.
pub(in crate::rpc) fn full_open() -> pb::OpenSession {
    pb::OpenSession {
        namespace: "default".to_owned(),
        handle: "secret".to_owned(),
        instance: "05".repeat(16),
        ttl_ms: 10_000,
        disconnect_grace_ms: Some(4_000),
        metadata: described(),
        accepts_hand_over: true,
    }
}

/// Returns one of each change of a hold.
pub(in crate::rpc) fn full_alterations() -> Vec<pb::Alter> {
    use pb::alter::What;
    let token = 77;
    let changes = [
        What::Downgrade(pb::Downgrade { token }),
        What::Upgrade(pb::Upgrade { token, wait_ms: patient() }),
        What::Resume(pb::Resume { token, handle: "old".to_owned(), lease_ms: Some(4_000) }),
        What::SetValue(pb::SetValue { token, value: Some("n2".to_owned()) }),
        What::ReturnPermits(pb::ReturnPermits { token, count: 2 }),
    ];
    let alter =
        |what| pb::Alter { session: None, request: 12, answered_below: 11, lock: LOCK.to_owned(), what: Some(what) };
    changes.map(alter).into()
}

/// Returns the proof of the session.
fn proof() -> Option<pb::SessionProof> {
    Some(pb::SessionProof { id: SESSION, handle: HANDLE.to_owned(), namespace: String::new() })
}

fn key() -> Option<pb::LockKey> {
    Some(pb::LockKey { namespace: String::new(), name: LOCK.to_owned() })
}

fn command(command: pb::command::Command) -> Sample {
    whole("Command", pb::Command { command: Some(command) })
}

fn claim() -> Option<pb::Claim> {
    Some(pb::Claim { who: Some(pb::claim::Who::Request(pb::RequestId { session: SESSION, number: 12 })) })
}

/// Operations on holds of others, on the cluster, or on several objects at once.
fn acts() -> Vec<Sample> {
    use pb::command::Command as Asked;
    use pb::manage::What;
    use pb::renewal::Target;
    let (namespace, _, handle) = texts();
    let (token, why, lease_ms) = (77, "stuck".to_owned(), 9_000);
    let manage = |what| command(Asked::Manage(pb::Manage { lock: key(), what: Some(what) }));
    let targets = [
        Target::Session(proof().expect("a proof")),
        Target::Lease(pb::LeaseTarget { lock: key(), handle, lease_ms }),
        Target::Hold(pb::HoldTarget { lock: key(), session: proof(), token, lease_ms }),
    ];
    let renewals = targets.map(|target| pb::Renewal { target: Some(target), attempt: 5 });
    let join = MemberChange::Add { node: 4, client: "a:1".to_owned(), peer: "a:2".to_owned() };
    let replace = MemberChange::Promote { node: 4, instead_of: Some(3) };
    vec![
        whole("RenewRequest", pb::RenewRequest { renewals: renewals.into() }),
        manage(What::SetLimit(7)),
        manage(What::BreakHold(pb::Break { token, why: why.clone() })),
        manage(What::Ask(pb::Ask { token, why: why.clone() })),
        manage(What::HandOver(pb::HandOver { token, to: SESSION })),
        command(Asked::ChangeSetting(Setting::TtlMax(3_600_000).to_wire())),
        command(Asked::EndSession(pb::EndSession { namespace, session: SESSION, why })),
        whole("TransferRequest", pb::TransferRequest { to: 2 }),
        whole("RaiseFeaturesRequest", pb::RaiseFeaturesRequest { to: 1 }),
        whole::<pb::ChangeMembersRequest>("ChangeMembersRequest", join.to_wire()),
        whole::<pb::ChangeMembersRequest>("ChangeMembersRequest", replace.to_wire()),
    ]
}

/// Returns one of every query.
fn questions() -> Vec<Sample> {
    use pb::query_request::Query as Asked;
    let (namespace, name, _) = texts();
    let freshness = pb::Freshness::Stale.into();
    let (rows, after) = (20, Some(pb::Position { index: 8, n: 2 }));
    let lock = || pb::LockKey { namespace: namespace.clone(), name: name.clone() };
    let token_of = || pb::TokenOf { lock: Some(lock()), token: 77 };
    let list = pb::ListFilter {
        prefix: "fr".to_owned(),
        show: pb::ListShow::Held.into(),
        older_than_ms: 9,
        after: Some("fa".to_owned()),
        rows,
        namespace: namespace.clone(),
    };
    let about = Some(pb::about::About::Request(pb::RequestId { session: SESSION, number: 3 }));
    let history = pb::HistoryFilter { namespace: namespace.clone(), lock: Some(name.clone()), after, rows };
    let mut asked = vec![
        Asked::List(list.clone()),
        Asked::Sessions(pb::SessionsFilter { namespace: namespace.clone(), after: Some(3), rows }),
        Asked::Explain(pb::About { about: about.clone() }),
        Asked::Totals(pb::Empty {}),
        Asked::Check(token_of()),
        Asked::WouldBreak(token_of()),
        Asked::Inspect(lock()),
        Asked::Holders(lock()),
        Asked::Claim(pb::ClaimOf { lock: Some(lock()), claim: claim() }),
        Asked::History(history),
        Asked::Tokens(lock()),
    ];
    use pb::{documents_filter, pings_filter};
    for which in [
        documents_filter::Which::Named(name.clone()),
        documents_filter::Which::Stamped("07".repeat(12)),
        documents_filter::Which::After(name.clone()),
    ] {
        asked.push(Asked::Documents(pb::DocumentsFilter { namespace: String::new(), which: Some(which), rows: 5 }));
    }
    let process = "h:27017:1:2".to_owned();
    for which in [pings_filter::Which::Of(process.clone()), pings_filter::Which::After(process)] {
        asked.push(Asked::Pings(pb::PingsFilter { namespace: String::new(), which: Some(which), rows: 5 }));
    }
    let ask = |query| whole("QueryRequest", pb::QueryRequest { freshness, query: Some(query) });
    let mut samples: Vec<_> = asked.into_iter().map(ask).collect();
    let prefix = pb::NamespaceScope { namespace: namespace.clone(), prefix: "fr".to_owned() };
    let scope = Some(pb::watch_request::Scope::Namespace(prefix));
    samples.extend([
        whole("TokenOf", token_of()),
        whole("LockKey", lock()),
        whole("ListFilter", list),
        whole("About", pb::About { about }),
        whole("WatchRequest", pb::WatchRequest { scope, after, cluster_id: "03".repeat(16) }),
        whole("WaitRequest", pb::WaitRequest { lock: key(), wait_ms: Some(5) }),
        whole("WatchTokensRequest", pb::WatchTokensRequest { lock: key() }),
    ]);
    samples
}

/// Returns one of every change of documents.
fn documents() -> Vec<Sample> {
    use pb::document::What;
    let (namespace, name, handle) = texts();
    let ts = "07".repeat(12);
    let process = pb::Process { namespace: namespace.clone(), process: "h:27017:1:2".to_owned() };
    let metadata = Some(pb::Metadata { process: process.process.clone(), ..Default::default() });
    let grab = pb::Grab { lock: key(), ts: ts.clone(), metadata, term: Some(4), prepare: true, seen: None };
    let swap = pb::SwapValue { lock: key(), handle, seen: Some("n1".to_owned()), value: Some("n2".to_owned()) };
    let all = pb::UnlockAll { namespace: namespace.clone(), process: process.process.clone(), term: Some(4) };
    let changes = [
        What::Grab(grab.clone()),
        What::Grab(pb::Grab { seen: Some("08".repeat(12)), ..grab }),
        What::Unlock(pb::Unlock { namespace, ts: ts.clone(), name: Some(name) }),
        What::UnlockAll(all),
        What::Ping(process.clone()),
        What::StopPing(process),
        What::RemoveExpired(pb::RemoveExpired { lock: key(), token: 77, deadline_ms: 9 }),
        What::SwapValue(swap),
        What::Confirm(pb::Confirm { lock: key(), ts }),
    ];
    let asked = |what| pb::Document { age_ms: 4, since_ms: Some(3), what: Some(what) };
    changes.map(|what| command(pb::command::Command::Document(asked(what)))).into()
}

/// Every kind of request that a node serves is served or refused when it is damaged.
#[tokio::test]
async fn hostile_requests_of_clients_are_served_or_refused() {
    let today: Vec<Sample> = [commands::samples(), acts(), questions(), documents()].concat();
    let server = Server::new();
    attack(6, &kept("requests-of-clients.bin", &today), |name, bytes| server.understands(name, bytes));
}

/// Whether a client accepts an answer of a node.
fn understood(name: &str, bytes: &[u8]) -> bool {
    match name {
        "Reply" => read::<pb::Reply, Reply>(bytes),
        "QueryReply" => read::<pb::QueryReply, QueryReply>(bytes),
        "Event" => read::<pb::Event, Event>(bytes),
        "StatusReply" => read::<pb::StatusReply, Status>(bytes),
        "Error" => pb::Error::decode(bytes).map(|error| drop(error_from_wire(&error))).is_ok(),
        other => panic!("{other}: no such answer"),
    }
}

/// Returns random values of each kind, the same each time.
fn answers() -> Vec<Sample> {
    let mut runner = TestRunner::deterministic();
    let mut samples = Vec::new();
    for number in 0..DRAWN as u64 {
        let answer = answer().new_tree(&mut runner).expect("drawn").current();
        if number % 2 == 0 {
            let answered = QueryReply { index: number, now: LogTime(9), answer };
            samples.push(whole::<pb::QueryReply>("QueryReply", answered.to_wire()));
        }
        let (subject, kind) = happening().new_tree(&mut runner).expect("drawn").current();
        let namespace = subject.lock().map(|lock| lock.namespace.clone());
        let position = Position { index: number, n: 1 };
        if number % 4 == 0 {
            let event = Event { position, at: LogTime(8), wall: WallTime(9), namespace, subject, kind };
            samples.push(whole::<pb::Event>("Event", event.to_wire()));
            let outcome = outcome().new_tree(&mut runner).expect("drawn").current();
            let recalled = vec![FencingToken::new(0, 7), FencingToken::new(1, 300)];
            let reply = Reply { index: number, stamp: LogTime(8), outcome, recalled };
            samples.push(whole::<pb::Reply>("Reply", reply.to_wire()));
        }
    }
    samples.push(whole::<pb::StatusReply>("StatusReply", sample_status().to_wire()));
    samples.extend(one_error_of_each_kind().iter().map(|error| whole("Error", error_to_wire(error))));
    samples
}

/// Every kind of answer and event that a client reads is a value or an error when it is damaged.
#[test]
fn hostile_answers_to_clients_are_values_or_errors() {
    attack(7, &kept("answers-to-clients.bin", &answers()), understood);
}

/// A length beyond the end of a request allocates nothing, in any of its fields.
#[tokio::test]
async fn a_huge_length_in_a_request_takes_no_memory() {
    let server = Server::new();
    for field in 1..16 {
        let bytes = [&[field << 3 | 2][..], &[255, 255, 255, 127], &[0; 8]].concat();
        for name in ["AcquireRequest", "RenewRequest", "Command", "ReleaseRequest"] {
            let understood = within_memory_bound(name, bytes.len(), || server.understands(name, &bytes));
            assert!(!understood, "{name}: nothing of it is there");
        }
    }
}
