//! Each operation as each principal: it is refused without its right, and only then.

use lockkeeper::auth::{ClusterRight, Right};
use lockkeeper::client::Client;
use lockkeeper::compat::config_locks::{ConfigLocks, ConfigSettings, WaitFor};
use lockkeeper::model::{
    About, Acquire, Alter, Alteration, Attach, Claim, Command, DocumentCommand, DocumentId, EndSession, FencingToken,
    Grab, Handle, LeaseRequestId, ListFilter, ListShow, LockKey, LogTime, Manage, Managing, Metadata, Mode, Patience,
    ProcessId, Query, Reason, Release, RequestId, SessionClose, SessionId, Setting, TakeLease, WhichDocuments,
    WhichPings,
};
use lockkeeper::node::Node;
use lockkeeper::service::{
    Call, ClaimRef, Freshness, LockService, MemberChange, Operation, Proof, Scope, Subscription,
};

use super::{Guarded, is_forbidden, key, named, namespace, open, sent, stranger};

/// The right that an operation needs, besides proof of what is the caller's own.
#[derive(Debug, Clone, Copy)]
enum Needs {
    Nothing,
    /// A right on the name `a/1`.
    Name(Right),
    /// A right on all names.
    All(Right),
    Cluster(ClusterRight),
}

use Needs::{All, Cluster, Name, Nothing};
use Right::{Admin, Lock, Read};

impl Needs {
    /// Whether the principal of this name has the right. The names say what their rules give.
    fn are_met_by(self, principal: &str) -> bool {
        let (given, everywhere) = match principal.strip_suffix("-all") {
            Some(given) => (given, true),
            None => (principal, false),
        };
        let right = match given {
            "read" => Some(Read),
            "lock" => Some(Lock),
            "admin" => Some(Admin),
            _ => None,
        };
        match self {
            Nothing => true,
            Name(needed) => right >= Some(needed),
            All(needed) => everywhere && right >= Some(needed),
            Cluster(ClusterRight::Metrics) => principal == "metrics",
            Cluster(ClusterRight::Backup) => principal == "backup",
            Cluster(ClusterRight::Operate) => principal == "operate",
        }
    }
}

const PRINCIPALS: [&str; 10] =
    ["none", "read", "lock", "admin", "read-all", "lock-all", "admin-all", "metrics", "backup", "operate"];

fn lock() -> LockKey {
    key("a/1")
}

fn token() -> FencingToken {
    FencingToken::new(0, 999_999)
}

fn why() -> Reason {
    Reason::parse("a test").expect("legal")
}

/// Commands of a session whose principal proved nothing: its handle suffices for what is own.
fn of_session(session: SessionId, handle: &Handle, number: &mut u64) -> Vec<(Command, Needs)> {
    let mut request = || {
        *number += 1;
        RequestId { session, number: *number }
    };
    let name = lock().name;
    let mut altered = |what| Command::Alter(Alter { request: request(), answered_below: 0, name: name.clone(), what });
    let token = token();
    let mut commands = vec![
        (altered(Alteration::Downgrade { token }), Nothing),
        (altered(Alteration::ReturnPermits { token, count: 1 }), Nothing),
        (altered(Alteration::Upgrade { token, patience: Patience::Try }), Name(Lock)),
        (altered(Alteration::SetValue { token, value: None }), Name(Lock)),
        (altered(Alteration::Resume { token, handle: handle.clone(), lease_ms: None }), Name(Lock)),
    ];
    let acquire = Acquire {
        request: request(),
        answered_below: 0,
        locks: (name.clone(), Mode::Exclusive.into()).into(),
        owner: None,
        patience: Patience::Try,
        metadata: Metadata::default(),
        lease_ms: None,
        extras: None,
    };
    commands.push((Command::Acquire(acquire), Name(Lock)));
    commands.push((Command::Cancel { request: request() }, Nothing));
    commands
        .push((Command::Release(Release { request: request(), answered_below: 0, name, token, acquire: 0 }), Nothing));
    let attach = Attach { namespace: namespace(), session, handle: handle.clone(), attempt: *number };
    commands.push((Command::Attach(attach), Nothing));
    commands
}

/// Commands without a session, and those about others.
fn of_names(number: u128) -> Vec<(Command, Needs)> {
    let (handle, take) = (Handle::from_random(number), LeaseRequestId(number));
    let (metadata, lease_ms) = (Metadata { process: "p".into(), ..Metadata::default() }, 1_000);
    let ts = DocumentId(number.to_be_bytes()[4..].try_into().expect("twelve bytes"));
    let process = ProcessId::parse("p").expect("legal");
    let manage = |what| Command::Manage(Manage { lock: lock(), what });
    let taken = TakeLease {
        lock: lock(),
        take,
        handle: handle.clone(),
        access: Mode::Exclusive.into(),
        lease_ms,
        patience: Patience::Try,
        metadata: metadata.clone(),
        claim_ms: None,
    };
    let grab = Grab { lock: lock(), ts, metadata, term: None, prepare: false, seen: None };
    let document = |what, needs| (Command::Document(what), needs);
    let session = SessionId::new(0, 999_999);
    vec![
        (Command::TakeLease(taken), Name(Lock)),
        (Command::CancelTake { lock: lock(), take: LeaseRequestId(number + 1), handle: handle.clone() }, Name(Lock)),
        (Command::DropLease { lock: lock(), handle: Handle::from_random(number + 1) }, Nothing),
        (manage(Managing::SetLimit { limit: 2 }), Name(Admin)),
        (manage(Managing::RemoveLimit), Name(Admin)),
        (manage(Managing::BreakHold { token: token(), why: why() }), Name(Admin)),
        (manage(Managing::HandOver { token: token(), to: session }), Name(Admin)),
        (manage(Managing::Ask { token: token(), why: why() }), Name(Lock)),
        document(DocumentCommand::Grab(grab), Name(Lock)),
        document(DocumentCommand::Confirm { lock: lock(), ts }, Name(Lock)),
        document(DocumentCommand::RemoveExpired { lock: lock(), token: token(), deadline: LogTime(1) }, Name(Lock)),
        document(DocumentCommand::SwapValue { lock: lock(), handle, seen: None, value: None }, Name(Lock)),
        document(DocumentCommand::Unlock { namespace: namespace(), ts, name: Some(lock().name) }, Name(Lock)),
        document(DocumentCommand::Unlock { namespace: namespace(), ts, name: None }, All(Lock)),
        document(DocumentCommand::Ping { namespace: namespace(), process: process.clone() }, All(Lock)),
        document(DocumentCommand::StopPing { namespace: namespace(), process: process.clone() }, All(Lock)),
        document(DocumentCommand::UnlockAll { namespace: namespace(), process, term: None }, All(Lock)),
        (Command::EndSession(EndSession { namespace: namespace(), session, why: why() }), All(Admin)),
        (Command::ChangeSetting(Setting::TtlMax(600_000)), Cluster(ClusterRight::Operate)),
    ]
}

fn queries() -> Vec<(Query, Needs)> {
    let list = |prefix: &str| {
        let (prefix, show) = (prefix.to_owned(), ListShow::All);
        Query::List(ListFilter { namespace: namespace(), prefix, show, older_than_ms: 0, after: None, rows: 0 })
    };
    let documents = |which| Query::Documents { namespace: namespace(), which, rows: 0 };
    let history = |lock| Query::History { namespace: namespace(), lock, after: None, rows: 0 };
    let session = SessionId::new(0, 999_999);
    vec![
        (Query::Check { lock: lock(), token: token() }, Name(Read)),
        (Query::Inspect { lock: lock() }, Name(Read)),
        (Query::Holders { lock: lock() }, Name(Read)),
        (Query::Tokens { lock: lock() }, Name(Read)),
        (Query::WouldBreak { lock: lock(), token: token() }, Name(Admin)),
        (Query::Explain(About::Lock(lock())), Name(Read)),
        (Query::Explain(About::Session(session)), Nothing),
        (Query::Explain(About::Request(RequestId { session, number: 1 })), Nothing),
        (list("a/"), Name(Read)),
        (list(""), All(Read)),
        (history(Some(lock().name)), Name(Read)),
        (history(None), All(Read)),
        (documents(WhichDocuments::Named(lock().name)), Name(Read)),
        (documents(WhichDocuments::After(None)), All(Read)),
        (documents(WhichDocuments::Stamped(DocumentId([1; 12]))), All(Read)),
        (Query::Sessions { namespace: namespace(), after: None, rows: 0 }, All(Read)),
        (Query::Pings { namespace: namespace(), which: WhichPings::After(None), rows: 0 }, All(Read)),
        (Query::Claim { lock: Some(lock()), claim: Claim::Lease(LeaseRequestId(7)) }, Name(Read)),
        (Query::Claim { lock: Some(lock()), claim: Claim::Request(RequestId { session, number: 1 }) }, Nothing),
        (Query::Totals, Nothing),
    ]
}

fn scopes() -> Vec<(Scope, Needs)> {
    let session = SessionId::new(0, 999_999);
    let names = |prefix: &str| Scope::Namespace { namespace: namespace(), prefix: prefix.to_owned() };
    let of_session = [Scope::Session(session), Scope::SessionEnd(session), Scope::Holds(session)];
    let mut scopes = vec![(names("a/"), Name(Read)), (names(""), All(Read))];
    scopes.extend(of_session.map(|scope| (scope, Nothing)));
    scopes
}

/// Makes every call as one principal, and asserts that it is refused only without its right.
async fn calls_of(node: &Node, principal: &str, session: (SessionId, &Handle), number: &mut u64) {
    let caller = named(node, principal);
    let check = |what: String, refused: bool, needs: Needs| {
        assert_eq!(refused, !needs.are_met_by(principal), "{principal}: {what} needs {needs:?}");
    };
    let (id, handle) = session;
    let proof = || Proof::Handle { handle: handle.clone(), namespace: namespace() };
    for (command, needs) in of_session(id, handle, number) {
        let answered = sent(|| caller.submit(Call { proof: proof(), ..Call::new(command.clone()) })).await;
        check(format!("{command:?}: {answered:?}"), is_forbidden(&answered), needs);
    }
    *number += 10;
    for (command, needs) in of_names(u128::from(*number)) {
        let answered = sent(|| caller.submit(Call::new(command.clone()))).await;
        check(format!("{command:?}: {answered:?}"), is_forbidden(&answered), needs);
    }
    for (query, needs) in queries() {
        for freshness in [Freshness::Stale, Freshness::Linearizable] {
            let answered = sent(|| caller.query(query.clone(), freshness)).await;
            check(format!("{query:?}: {answered:?}"), is_forbidden(&answered), needs);
        }
    }
    for (scope, needs) in scopes() {
        let subscription = Subscription { scope: scope.clone(), after: None, cluster_id: None };
        check(format!("{scope:?}"), is_forbidden(&caller.subscribe(subscription).await), needs);
    }
    let claim = ClaimRef { lock: lock(), claim: Claim::Lease(LeaseRequestId(7)) };
    check("wait".to_owned(), is_forbidden(&sent(|| caller.wait_outcome(claim.clone())).await), Name(Read));
    let operate = Cluster(ClusterRight::Operate);
    let change = Operation::ChangeMembers(MemberChange::Remove { node: 999 });
    for operation in [Operation::Transfer(999), Operation::RaiseFeatures(1), change] {
        let refused = is_forbidden(&sent(|| caller.operate(operation.clone())).await);
        check(format!("{operation:?}"), refused, operate);
    }
    check("backup".to_owned(), is_forbidden(&caller.backup().await), Cluster(ClusterRight::Backup));
    let metrics = ClusterRight::Metrics;
    check("metrics".to_owned(), is_forbidden(&caller.permits(metrics)), Cluster(metrics));
    check("status".to_owned(), is_forbidden(&caller.status().await), Nothing);
}

/// H-07, X-05: every operation as each principal, at the leader and through a follower.
#[tokio::test]
async fn every_operation_needs_its_right() {
    let guarded = Guarded::start(3).await;
    let (leader, follower) = (guarded.cluster.leader().await, guarded.cluster.follower().await);
    let (session, handle) = open(&stranger(&leader), 1).await;
    let mut number = 100;
    for node in [&leader, &follower] {
        for principal in PRINCIPALS {
            calls_of(node, principal, (session, &handle), &mut number).await;
        }
        // The application that embeds the node may do everything.
        let all = node.service();
        for (query, _) in queries() {
            sent(|| all.query(query.clone(), Freshness::Linearizable)).await.expect("answered");
        }
        all.permits(ClusterRight::Operate).expect("permitted");
        drop(sent(|| all.backup()).await.expect("a backup"));
    }
    let closed = Command::CloseSession { session, end: SessionClose::Done };
    super::submit(&named(&follower, "none"), &handle, closed).await.expect("its handle proves it");
}

/// Opening a session needs the right to lock any name of its namespace.
#[tokio::test]
async fn sessions_are_for_principals_that_may_lock() {
    let guarded = Guarded::start(1).await;
    let leader = guarded.cluster.leader().await;
    for (principal, number) in PRINCIPALS.into_iter().zip(1..) {
        let handle = Handle::from_random(number);
        let client = Client::new(named(&leader, principal)).namespace(namespace());
        let opened = client.session().handle(handle).open().await;
        let refused = opened.as_ref().is_err_and(|error| error.to_string().contains("has no right to lock any name"));
        assert_eq!(!refused, Name(Lock).are_met_by(principal), "{principal}: {opened:?}");
    }
}

/// The legacy manager of the config server's locks reads the service's time before its first lock. That needs no right
/// to read the namespace.
#[tokio::test]
async fn a_legacy_manager_needs_only_the_right_to_lock() {
    let guarded = Guarded::start(1).await;
    let client = Client::new(named(&guarded.cluster.leader().await, "lock")).namespace(namespace());
    let process = ProcessId::parse("a:27017:1:7").expect("legal");
    let locks = ConfigLocks::silent(client, process, ConfigSettings::legacy());
    let held = locks.lock("a/1", "round", WaitFor::SingleAttempt).await.expect("permitted");
    held.unlock().await.expect("held");
}

/// H-06: a backup contains the handles of all sessions, and needs its own right.
#[tokio::test]
async fn backup_needs_its_right() {
    let guarded = Guarded::start(1).await;
    let leader = guarded.cluster.leader().await;
    for principal in ["admin-all", "operate", "metrics", "anonymous"] {
        let refused = named(&leader, principal).backup().await.expect_err("refused").to_string();
        assert!(refused.ends_with(&format!("principal \"{principal}\" may not make a backup")), "{refused}");
    }
    let mut pieces = named(&leader, "backup").backup().await.expect("permitted");
    assert!(pieces.next().await.expect("a piece").is_some());
}
