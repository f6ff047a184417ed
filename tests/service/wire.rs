//! What a node offers to clients that know only its proto files: reflection, health, and calls.

use lockkeeper::client::Client;
use lockkeeper::rpc::pb;
use lockkeeper::rpc::pb::command::Command;
use lockkeeper::rpc::pb::locks_client::LocksClient;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Response, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
use tonic_reflection::pb::v1alpha::ServerReflectionRequest as OlderReflectionRequest;
use tonic_reflection::pb::v1alpha::server_reflection_client::ServerReflectionClient as OlderReflectionClient;
use tonic_reflection::pb::v1alpha::server_reflection_request as older;
use tonic_reflection::pb::v1alpha::server_reflection_response::MessageResponse as OlderResponse;

use crate::changes::lose;
use crate::suite::{LONG, SHORT, in_use};

async fn node() -> Channel {
    let address = format!("http://{}", crate::shared().cluster.endpoints()[0]);
    Endpoint::from_shared(address).expect("an address").connect().await.expect("connected")
}

/// Sends one request to the reflection service.
async fn reflected(asked: MessageRequest) -> Result<MessageResponse, Code> {
    let mut client = ServerReflectionClient::new(node().await);
    let request = ServerReflectionRequest { host: String::new(), message_request: Some(asked) };
    let mut answers = client.server_reflection_info(tokio_stream::once(request)).await.expect("a stream").into_inner();
    let answer = answers.message().await.map_err(|status| status.code())?.expect("an answer");
    Ok(answer.message_response.expect("a message"))
}

/// Reflection lists the services of lockkeeper and the health service, and returns the file of each.
#[tokio::test]
async fn reflection_shows_every_service() {
    let Ok(MessageResponse::ListServicesResponse(listed)) =
        reflected(MessageRequest::ListServices(String::new())).await
    else {
        panic!("services are not listed");
    };
    let names: Vec<_> = listed.service.into_iter().map(|service| service.name).collect();
    for service in ["lockkeeper.v1.Locks", "lockkeeper.v1.Admin", "grpc.health.v1.Health"] {
        assert!(names.iter().any(|name| name == service), "{service} is not among {names:?}");
        let shown = reflected(MessageRequest::FileContainingSymbol(service.to_owned())).await;
        assert!(matches!(shown, Ok(MessageResponse::FileDescriptorResponse(_))), "{service}: {shown:?}");
    }
    let imported = reflected(MessageRequest::FileByFilename("lockkeeper/v1/documents.proto".to_owned())).await;
    assert!(matches!(imported, Ok(MessageResponse::FileDescriptorResponse(_))), "{imported:?}");
    let unknown = reflected(MessageRequest::FileContainingSymbol("lockkeeper.v1.Nothing".to_owned())).await;
    assert_eq!(unknown, Err(Code::NotFound));
}

/// Reflection does not describe the protocol between nodes, which clients may not call.
#[tokio::test]
async fn reflection_omits_the_peer_protocol() {
    for symbol in ["lockkeeper.peer.v1.Peer", "lockkeeper.peer.v1.AppendRequest"] {
        assert_eq!(reflected(MessageRequest::FileContainingSymbol(symbol.to_owned())).await, Err(Code::NotFound));
    }
    assert_eq!(reflected(MessageRequest::FileByFilename("peer.proto".to_owned())).await, Err(Code::NotFound));
}

/// Clients that support only the older reflection service get the same services and the same files.
#[tokio::test]
async fn the_older_reflection_service_shows_the_same() {
    let mut client = OlderReflectionClient::new(node().await);
    let asked = [
        older::MessageRequest::ListServices(String::new()),
        older::MessageRequest::FileContainingSymbol("lockkeeper.v1.Locks".to_owned()),
        older::MessageRequest::FileByFilename("lockkeeper/v1/documents.proto".to_owned()),
    ];
    let asked = asked.map(|asked| OlderReflectionRequest { host: String::new(), message_request: Some(asked) });
    let mut answers = client.server_reflection_info(tokio_stream::iter(asked)).await.expect("a stream").into_inner();
    let listed = answers.message().await.expect("answered").expect("a list").message_response.expect("a message");
    let OlderResponse::ListServicesResponse(listed) = listed else { panic!("services are not listed: {listed:?}") };
    assert!(listed.service.iter().any(|service| service.name == "lockkeeper.v1.Locks"), "{listed:?}");
    for asked in [
        MessageRequest::FileContainingSymbol("lockkeeper.v1.Locks".to_owned()),
        MessageRequest::FileByFilename("lockkeeper/v1/documents.proto".to_owned()),
    ] {
        let shown = answers.message().await.expect("answered").expect("a file").message_response.expect("a message");
        let OlderResponse::FileDescriptorResponse(shown) = shown else { panic!("no file is shown: {shown:?}") };
        let newer = reflected(asked).await;
        let Ok(MessageResponse::FileDescriptorResponse(newer)) = newer else { panic!("no file is shown: {newer:?}") };
        assert_eq!(shown.file_descriptor_proto, newer.file_descriptor_proto);
    }
}

/// The health service reports the node and each of its services as serving, and knows no other services.
#[tokio::test]
async fn health_says_that_services_serve() {
    let mut client = HealthClient::new(node().await);
    for service in ["", "lockkeeper.v1.Locks", "lockkeeper.v1.Admin"] {
        let request = HealthCheckRequest { service: service.to_owned() };
        let status = client.check(request).await.expect(service).into_inner().status;
        assert_eq!(status, i32::from(ServingStatus::Serving), "{service:?}");
    }
    let request = HealthCheckRequest { service: "lockkeeper.v1.Nothing".to_owned() };
    assert_eq!(client.check(request).await.expect_err("unknown").code(), Code::NotFound);
}

/// Returns the lock in the answer to a query.
fn lock_in(reply: tonic::Response<pb::QueryReply>) -> pb::LockView {
    match reply.into_inner().answer {
        Some(pb::query_reply::Answer::Lock(view)) => view,
        other => panic!("expected a lock, not {other:?}"),
    }
}

fn key(lock: &str) -> pb::LockKey {
    pb::LockKey { namespace: String::new(), name: lock.to_owned() }
}

async fn inspected(locks: &mut LocksClient<Channel>, lock: &str) -> pb::LockView {
    let query = Some(pb::query_request::Query::Inspect(key(lock)));
    lock_in(locks.query(pb::QueryRequest { freshness: 0, query }).await.expect("answered"))
}

/// Asserts that a position was refused as one after the end of the log.
fn assert_after_the_end<T>(answered: Result<T, Status>) {
    let refused = answered.map(drop).expect_err("a position after the end");
    assert_eq!(refused.metadata().get("lockkeeper-error").expect("a code"), "events-missed", "{refused:?}");
    assert!(refused.message().contains("the last one of this cluster"), "{refused:?}");
}

/// A watch or a read of the history after the end of the log would miss events without notice, as after the loss of a
/// log. Both calls refuse such a position, and name the last entry. A position that the log has reached is accepted.
#[tokio::test]
async fn a_position_after_the_end_of_the_log_is_refused() {
    let mut locks = LocksClient::new(node().await);
    let query = Some(pb::query_request::Query::Totals(pb::Empty {}));
    let last = locks.query(pb::QueryRequest { freshness: 0, query }).await.expect("answered").into_inner().index;
    let history = |index| {
        let after = Some(pb::Position { index, n: 0 });
        let filter = pb::HistoryFilter { after, rows: 1, ..Default::default() };
        pb::QueryRequest { freshness: 0, query: Some(pb::query_request::Query::History(filter)) }
    };
    locks.query(history(last)).await.expect("reached");
    assert_after_the_end(locks.query(history(u64::MAX)).await);

    let session = opened(&mut locks, "of-the-watch").await;
    let namespace = pb::watch_request::Scope::Namespace(pb::NamespaceScope::default());
    for scope in [namespace, pb::watch_request::Scope::Session(session)] {
        let watch = |index| {
            let after = Some(pb::Position { index, n: 0 });
            pb::WatchRequest { scope: Some(scope.clone()), after, cluster_id: String::new() }
        };
        locks.watch(watch(last)).await.expect("reached");
        assert_after_the_end(locks.watch(watch(u64::MAX)).await);
    }
    // The end of a session has no position to continue from.
    let scope = Some(pb::watch_request::Scope::SessionEnd(session));
    let after = Some(pb::Position { index: u64::MAX, n: 0 });
    let watch = pb::WatchRequest { scope, after, cluster_id: String::new() };
    locks.watch(watch).await.expect("the position has no effect");
}

/// A unary wait for a free name is answered at once. For a held name it is answered when there is no holder left;
/// events of other locks, and a grant to the next waiter, do not end it.
#[tokio::test]
async fn a_unary_wait_ends_when_the_name_is_free() {
    let client = Client::new(crate::remote().await);
    let mut locks = LocksClient::new(node().await);
    let request = || pb::WaitRequest { lock: Some(key("awaited")), wait_ms: None };
    assert!(lock_in(locks.wait(request()).await.expect("free")).holders.is_empty());

    let first = client.lock("awaited").acquire().await.expect("free");
    let mut second = Box::pin(client.lock("awaited").acquire());
    assert!(tokio::time::timeout(SHORT, &mut second).await.is_err(), "held");
    let seen = lock_in(locks.wait(pb::WaitRequest { wait_ms: Some(0), ..request() }).await.expect("answered"));
    assert_eq!((seen.holders.len(), seen.waiters.len()), (1, 0), "a wait copies no waiters");
    let mut waits = Box::pin(locks.wait(request()));
    assert!(tokio::time::timeout(SHORT, &mut waits).await.is_err(), "held");
    client.lock("awaited.not").acquire().await.expect("free").release().await.expect("released");
    first.release().await.expect("released");
    let second = second.await.expect("the next waiter");
    assert!(tokio::time::timeout(SHORT, &mut waits).await.is_err(), "held by the next waiter");
    second.release().await.expect("released");
    let reply = lock_in(waits.await.expect("answered"));
    assert!(reply.holders.is_empty() && reply.waiters.is_empty(), "{reply:?}");
}

/// A unary wait ends with the hold, whether an operator breaks it, its holder releases it, or its lease expires.
#[tokio::test]
async fn a_unary_wait_ends_however_the_hold_ends() {
    let client = Client::new(crate::remote().await);
    let mut locks = LocksClient::new(node().await);
    for end in ["broken", "released", "expired"] {
        let lock = format!("awaited-{end}");
        let request = pb::WaitRequest { lock: Some(key(&lock)), wait_ms: None };
        let lease = if end == "expired" { 4 * SHORT } else { LONG };
        let held = client.lease(&lock).duration(lease).take().await.expect("free");
        let mut waits = Box::pin(locks.wait(request));
        assert!(tokio::time::timeout(SHORT, &mut waits).await.is_err(), "held");
        if end == "broken" {
            client.break_hold(&lock, held.token(), "stuck").await.expect("broken");
        }
        if end == "released" {
            held.release().await.expect("released");
        }
        let reply = lock_in(tokio::time::timeout(LONG, waits).await.expect("the wait ends").expect("answered"));
        assert!(reply.holders.is_empty(), "{reply:?}");
    }
}

/// A unary wait with a limit is answered when the limit is over. The answer says that the name is not free if it has a
/// holder, one permit of a semaphore is taken, or a lock-delay keeps it closed. A limit of 0 checks once. A name that
/// was never used is free.
#[tokio::test]
async fn a_unary_wait_with_a_limit_says_whether_the_name_is_free() {
    let service = crate::remote().await;
    let client = Client::new(service.clone());
    let locks = LocksClient::new(node().await);
    let free = async |lock: &str, wait_ms: u64| {
        let request = pb::WaitRequest { lock: Some(key(&format!("limited.{lock}"))), wait_ms: Some(wait_ms) };
        lock_in(locks.clone().wait(request).await.expect("answered")).free
    };
    let _held = client.lock("limited.held").acquire().await.expect("free");
    let _permit = client.lock("limited.pool").permits(1, 3).acquire().await.expect("free");
    let lost = client.session().open().await.expect("opened");
    let _lost = lost.lock("limited.closed").delay(LONG).acquire().await.expect("free");
    lose(&service, &lost).await;
    in_use(&client, "limited.closed", 0, 0).await;
    for wait_ms in [0, 50] {
        for name in ["held", "pool", "closed"] {
            assert!(!free(name, wait_ms).await, "{name} within {wait_ms} ms");
        }
        assert!(free("never", wait_ms).await);
    }
}

/// Opens a session with this handle in the namespace `default`. Returns its id.
async fn opened(locks: &mut LocksClient<Channel>, handle: &str) -> u64 {
    let asked = pb::OpenSession { handle: handle.to_owned(), ..Default::default() };
    locks.open_session(asked).await.expect("opened").into_inner().session.expect("its proof").id
}

/// Returns the proof of the session with this handle, in this namespace.
fn proof(id: u64, handle: &str, namespace: &str) -> pb::SessionProof {
    pb::SessionProof { id, handle: handle.to_owned(), namespace: namespace.to_owned() }
}

/// Submits a command. Returns its outcome, or why it was refused.
async fn commanded(locks: &mut LocksClient<Channel>, command: Command) -> Result<Option<pb::reply::Outcome>, String> {
    decided(locks.submit(pb::Command { command: Some(command) }).await)
}

/// Returns the outcome in a reply, or the text of the refusal.
fn decided(answered: Result<Response<pb::Reply>, Status>) -> Result<Option<pb::reply::Outcome>, String> {
    match answered.map_err(|status| message(&status))?.into_inner().outcome {
        Some(pb::reply::Outcome::Refused(error)) => Err(error.detail),
        outcome => Ok(outcome),
    }
}

/// Returns the message of a call that was refused as invalid.
fn message(status: &Status) -> String {
    assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
    status.message().to_owned()
}

fn acquire_of(session: &pb::SessionProof, lock: &str, request: u64) -> pb::Acquire {
    let session = Some(session.clone());
    pb::Acquire { session, request, lock: lock.to_owned(), wait_ms: Some(0), ..Default::default() }
}

/// Sends renewals in one call. Returns for each whether it was renewed, or why not.
async fn renewed(locks: &mut LocksClient<Channel>, targets: Vec<pb::renewal::Target>) -> Vec<String> {
    let renewal = |(attempt, target)| pb::Renewal { target: Some(target), attempt: 1 + attempt as u64 };
    let renewals = targets.into_iter().enumerate().map(renewal).collect();
    let replies = locks.renew(pb::RenewRequest { renewals }).await.expect("answered").into_inner().replies;
    let why = |reply: pb::Reply| match reply.outcome {
        Some(pb::reply::Outcome::Renewed(_)) => "renewed".to_owned(),
        Some(pb::reply::Outcome::Refused(error)) => error.detail,
        other => panic!("neither renewed nor refused: {other:?}"),
    };
    replies.into_iter().map(why).collect()
}

/// Each renewal in a call gets its own answer: a wrong handle or a wrong namespace refuses only its own renewal.
#[tokio::test]
async fn a_wrong_proof_refuses_its_own_renewal_only() {
    let mut locks = LocksClient::new(node().await);
    let session = opened(&mut locks, "renewed").await;
    let target = |(handle, namespace)| pb::renewal::Target::Session(proof(session, handle, namespace));
    let targets =
        [("wrong", ""), ("renewed", ""), ("wrong", ""), ("renewed", "billing"), ("wrong", "billing"), ("renewed", "")];
    let answers = renewed(&mut locks, targets.map(target).into()).await;
    let wrong = "the handle does not belong to this session or lease";
    assert!(answers[3].contains("default") && answers[3].contains("billing"), "{answers:?}");
    let others: Vec<_> = [0, 1, 2, 4, 5].map(|place: usize| answers[place].as_str()).into();
    assert_eq!(
        others,
        [wrong, "renewed", wrong, wrong, "renewed"],
        "a wrong handle must not reveal the namespace of the session"
    );
}

/// The lease of a hold can be renewed only with the handle of its session. The session id and the token are public and
/// prove nothing.
#[tokio::test]
async fn a_hold_is_renewed_by_the_handle_of_its_session_only() {
    let mut locks = LocksClient::new(node().await);
    let session = opened(&mut locks, "of-the-hold").await;
    let (lock, lease_ms) = ("leased-and-renewed", 60_000);
    let acquire = acquire_of(&proof(session, "of-the-hold", ""), lock, 1);
    let acquire = Command::Acquire(pb::Acquire { lease_ms: Some(lease_ms), ..acquire });
    let outcome = commanded(&mut locks, acquire).await.expect("answered");
    let Some(pb::reply::Outcome::Granted(grant)) = outcome else { panic!("not granted: {outcome:?}") };
    let hold = |handle| {
        let (lock, session, token) = (Some(key(lock)), Some(proof(session, handle, "")), grant.token);
        pb::renewal::Target::Hold(pb::HoldTarget { session, lock, token, lease_ms })
    };
    let answers = renewed(&mut locks, ["wrong", "of-the-hold", "renewed"].map(hold).into()).await;
    let wrong = "the handle does not belong to this session or lease";
    assert_eq!(answers, [wrong, "renewed", wrong]);
}

/// A command with a number of the cluster's own requests is refused, because no node would know the answer when the
/// command is repeated. The error names the field and the bound, and the command changes nothing. The number below them
/// is accepted, and a repeated acquire gets the first answer.
#[tokio::test]
async fn a_number_of_the_clusters_own_requests_is_refused() {
    let mut locks = LocksClient::new(node().await);
    let proof = proof(opened(&mut locks, "numbered").await, "numbered", "");
    let (lock, last) = ("numbered".to_owned(), (1 << 63) - 1);
    let acquire = |request| Command::Acquire(acquire_of(&proof, &lock, request));
    let held = commanded(&mut locks, acquire(last)).await.expect("the last number");
    assert!(matches!(held, Some(pb::reply::Outcome::Granted(_))), "{held:?}");
    assert_eq!(commanded(&mut locks, acquire(last)).await, Ok(held.clone()));
    let Some(pb::reply::Outcome::Granted(pb::Granted { token, .. })) = held else { return };

    let (session, answered_below, request) = (Some(proof.clone()), 0, last + 1);
    let what = Some(pb::alter::What::SetValue(pb::SetValue { token, value: Some("x".to_owned()) }));
    let release =
        pb::Release { session: session.clone(), request, answered_below, lock: lock.clone(), token, acquire: 0 };
    let alter = pb::Alter { session, request, answered_below, lock: lock.clone(), what };
    let elsewhere = acquire_of(&proof, "numbered.elsewhere", request);
    for command in [Command::Acquire(elsewhere), Command::Release(release), Command::Alter(alter)] {
        let refused = commanded(&mut locks, command).await.expect_err("a number of the cluster's own");
        assert!(refused.starts_with("request: ") && refused.contains("9223372036854775808"), "{refused}");
    }
    let view = inspected(&mut locks, &lock).await;
    assert_eq!((view.holders.len(), view.value), (1, None));
    assert!(inspected(&mut locks, "numbered.elsewhere").await.holders.is_empty());
}

/// Returns all commands of a session that holds this lock with this token by this request.
fn commands(proof: &pb::SessionProof, lock: &str, token: u64, request: u64) -> [(&'static str, Command); 6] {
    let (session, answered_below) = (Some(proof.clone()), 0);
    let others = vec![pb::SetMember { lock: "another".to_owned(), mode: None, limit: None }];
    let set = pb::Acquire { others, ..acquire_of(proof, "elsewhere", 3) };
    let what = Some(pb::alter::What::SetValue(pb::SetValue { token, value: Some("x".to_owned()) }));
    let release =
        pb::Release { session: session.clone(), request: 4, answered_below, lock: lock.to_owned(), token, acquire: 0 };
    let alter = pb::Alter { session: session.clone(), request: 5, answered_below, lock: lock.to_owned(), what };
    [
        ("submit acquire", Command::Acquire(acquire_of(proof, "elsewhere", 2))),
        ("submit a set", Command::Acquire(set)),
        ("submit release", Command::Release(release)),
        ("submit alter", Command::Alter(alter)),
        ("submit cancel", Command::Cancel(pb::Cancel { session: session.clone(), request })),
        ("submit close", Command::CloseSession(pb::CloseSession { session, end: 0 })),
    ]
}

/// A call that names another namespace than the session's is refused, and the refusal names both. All calls with a
/// session and a namespace are tried, with the correct handle; none changes anything.
#[tokio::test]
async fn a_session_is_refused_in_another_namespace() {
    let mut locks = LocksClient::new(node().await);
    let session = opened(&mut locks, "of-default").await;
    let (lock, request) = ("only-in-default".to_owned(), 1);

    let acquire = Command::Acquire(acquire_of(&proof(session, "of-default", ""), &lock, request));
    let held = commanded(&mut locks, acquire).await.expect("its own namespace");
    let Some(pb::reply::Outcome::Granted(pb::Granted { token, .. })) = held else { panic!("{held:?}") };

    let mut refusals = Vec::new();
    let proof = proof(session, "of-default", "billing");
    for (call, command) in commands(&proof, &lock, token, request) {
        refusals.push((call, commanded(&mut locks, command).await.map(drop)));
    }
    let session_proof = Some(proof.clone());
    let holder = Some(pb::acquire_request::Holder::Session(proof.clone()));
    let acquire = pb::AcquireRequest { holder, lock: "elsewhere".to_owned(), ..Default::default() };
    refusals.push(("acquire", locks.acquire(acquire).await.map(drop).map_err(|status| message(&status))));
    let holder = Some(pb::release_request::Holder::Session(proof.clone()));
    let release = pb::ReleaseRequest { holder, lock: lock.clone(), token, ..Default::default() };
    refusals.push(("release", locks.release(release).await.map(drop).map_err(|status| message(&status))));
    let holder = Some(pb::refresh_request::Holder::Session(proof.clone()));
    let refresh = pb::RefreshRequest { holder, lock: lock.clone(), token, ..Default::default() };
    refusals.push(("refresh", locks.refresh(refresh).await.map(drop).map_err(|status| message(&status))));
    let alive = pb::KeepAliveRequest { session: session_proof.clone(), attempt: 0 };
    refusals.push(("keep alive", locks.keep_alive(alive).await.map(drop).map_err(|status| message(&status))));
    let closed = pb::CloseSession { session: session_proof, end: 0 };
    refusals.push(("close", locks.close_session(closed).await.map(drop).map_err(|status| message(&status))));
    let claim = || Some(pb::Claim { who: Some(pb::claim::Who::Request(pb::RequestId { session, number: request })) });
    let elsewhere = pb::LockKey { namespace: "billing".to_owned(), name: lock.clone() };
    let asked = pb::WaitOutcomeRequest { lock: Some(elsewhere), claim: claim() };
    // This call proves no session, so its answer does not say where the session is.
    let unproven = decided(locks.wait_outcome(asked).await).map(drop).expect_err("another namespace");
    assert!(unproven.contains("has ended") && !unproven.contains("default"), "{unproven}");

    for (call, refused) in refusals {
        let text = refused.expect_err(call);
        assert!(text.contains("default") && text.contains("billing"), "{call}: {text}");
    }
    let seen = inspected(&mut locks, "elsewhere").await;
    assert!(seen.holders.is_empty(), "the lock was acquired in the namespace of the session: {seen:?}");
    let seen = inspected(&mut locks, &lock).await;
    let kept: Vec<_> = seen.holders.iter().map(|holder| holder.token).collect();
    assert_eq!((kept, seen.value), (vec![token], None), "the hold is unchanged");
}
