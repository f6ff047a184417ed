//! What belongs to another principal gets the answer of what does not exist, even with the right handle.

use lockkeeper::model::{
    About, Acquire, Claim, Command, DocumentCommand, DocumentId, EndReason, EndSession, Explanation, Extras, Grab,
    Handle, LeaseRequestId, Manage, Managing, Metadata, Mode, Namespace, OpenSession, Outcome, Owner, Parent, Patience,
    ProcessId, Query, QueryResult, Reason, Refusal, Release, RenewalTarget, RequestId, SessionClose, SessionId,
    TakeLease,
};
use lockkeeper::node::Node;
use lockkeeper::service::{
    Call, ClaimRef, Freshness, LockService, Proof, RenewalCall, Scope, ServiceError, Subscription,
};

use super::{Guarded, is_forbidden, key, named, namespace, open, sent, stranger, submit};

pub(super) fn unknown(session: SessionId) -> Refusal {
    Refusal::SessionEnded { session, reason: EndReason::Expired, why: None }
}

pub(super) fn acquire(session: SessionId, number: u64, name: &str, parent: Option<Parent>) -> Command {
    let extras = parent.map(|parent| Box::new(Extras { parent: Some(parent), ..Extras::default() }));
    Command::Acquire(Acquire {
        request: RequestId { session, number },
        answered_below: 0,
        locks: (key(name).name, Mode::Exclusive.into()).into(),
        owner: Some(Owner::parse("o").expect("legal")),
        patience: Patience::Try,
        metadata: Metadata::default(),
        lease_ms: None,
        extras,
    })
}

pub(super) async fn holders(node: &Node, name: &str) -> usize {
    let service = node.service();
    let inspected = sent(|| service.query(Query::Inspect { lock: key(name) }, Freshness::Linearizable)).await;
    let QueryResult::Lock(view) = inspected.expect("inspected").answer else { panic!("another answer") };
    view.holders.len()
}

/// Another's session is unknown to every command and renewal, even with the right handle. A principal that may
/// administer its namespace passes.
#[tokio::test]
async fn anothers_session_is_unknown() {
    let guarded = Guarded::start(3).await;
    for node in [guarded.cluster.leader().await, guarded.cluster.follower().await] {
        let (session, handle) = open(&named(&node, "lock-all"), u128::from(node.id())).await;
        let name = format!("a/{}", node.id());
        let granted = submit(&named(&node, "lock-all"), &handle, acquire(session, 1, &name, None)).await;
        let Ok(Outcome::Granted(grant)) = granted else { panic!("{granted:?}") };
        let request = |number| RequestId { session, number };
        let release = |number| Release {
            request: request(number),
            answered_below: 0,
            name: key(&name).name,
            token: grant.token,
            acquire: 0,
        };
        let thief = named(&node, "other");
        for command in [
            Command::Release(release(2)),
            Command::Cancel { request: request(1) },
            Command::CloseSession { session, end: SessionClose::Done },
            acquire(session, 3, "a/other", None),
        ] {
            for shown in [&handle, &Handle::from_random(9)] {
                let answered = submit(&thief, shown, command.clone()).await;
                assert_eq!(answered, Ok(Outcome::Refused(unknown(session))), "{command:?}");
            }
        }
        let renewal = || {
            let (target, handle) = (RenewalTarget::Session(session), handle.clone());
            vec![RenewalCall { target, proof: Proof::Handle { handle, namespace: namespace() }, attempt: 1 }]
        };
        let renewed = sent(|| thief.renew(renewal())).await.expect("answered").remove(0).outcome;
        assert_eq!(renewed, Outcome::Refused(unknown(session)));
        let owner = named(&node, "lock-all");
        let owner = sent(|| owner.renew(renewal())).await.expect("answered").remove(0).outcome;
        assert!(matches!(owner, Outcome::Renewed { .. }), "{owner:?}");
        let instance_taken = open_again(&thief, &handle).await;
        assert!(matches!(instance_taken, Outcome::Refused(Refusal::AlreadyOpen { .. })), "{instance_taken:?}");
        assert_eq!(holders(&node, &name).await, 1);
        let admin = submit(&named(&node, "admin-all"), &handle, Command::Release(release(4))).await;
        assert_eq!(admin, Ok(Outcome::Released { left: 0 }));
    }
}

async fn open_again(node: &Node, handle: &Handle) -> Outcome {
    open_in(node, namespace(), handle).await
}

async fn open_in(node: &Node, namespace: Namespace, handle: &Handle) -> Outcome {
    let open = OpenSession {
        namespace,
        handle: handle.clone(),
        instance: lockkeeper::model::Instance(1),
        ttl_ms: 60_000,
        disconnect_grace_ms: None,
        metadata: Metadata::default(),
        accepts_hand_over: false,
    };
    sent(|| node.submit(Call::new(Command::OpenSession(open.clone())))).await.expect("answered").outcome
}

/// What a caller without a principal made is proven by its handle alone, so that `[auth]` can be switched on.
#[tokio::test]
async fn handles_prove_what_has_no_principal() {
    let guarded = Guarded::start(1).await;
    let leader = guarded.cluster.leader().await;
    let (session, handle) = open(&stranger(&leader), 1).await;
    let granted = submit(&stranger(&leader), &handle, acquire(session, 1, "a/1", None)).await;
    let Ok(Outcome::Granted(grant)) = granted else { panic!("{granted:?}") };
    let name = key("a/1").name;
    let release =
        Release { request: RequestId { session, number: 2 }, answered_below: 0, name, token: grant.token, acquire: 0 };
    let none = named(&leader, "none");
    let wrong = submit(&none, &Handle::from_random(9), Command::Release(release.clone())).await;
    assert_eq!(wrong, Err(ServiceError::Refused(Refusal::WrongHandle)));
    assert_eq!(submit(&none, &handle, Command::Release(release)).await, Ok(Outcome::Released { left: 0 }));
}

/// Tokens and ids of sessions are public. A caller without a principal, who shows no handle for them, can neither take
/// a hold of another one nor name its session as parent.
#[tokio::test]
async fn numbers_prove_nothing_without_a_principal() {
    let guarded = Guarded::start(1).await;
    let leader = guarded.cluster.leader().await;
    let (victim, handle) = open(&stranger(&leader), 1).await;
    let granted = submit(&stranger(&leader), &handle, acquire(victim, 1, "a/1", None)).await;
    let Ok(Outcome::Granted(grant)) = granted else { panic!("{granted:?}") };
    let (session, handle) = open(&stranger(&leader), 2).await;
    let hand_over = Manage { lock: key("a/1"), what: Managing::HandOver { token: grant.token, to: session } };
    let hand_over = || Call::new(Command::Manage(hand_over.clone()));
    assert!(is_forbidden(&stranger(&leader).submit(hand_over()).await));
    assert!(!is_forbidden(&named(&leader, "admin").submit(hand_over()).await));
    let parent = |session| Some(Parent { session, owner: Owner::parse("p").expect("legal") });
    let foreign = acquire(session, 1, "a/2", parent(victim));
    assert!(is_forbidden(&submit(&stranger(&leader), &handle, foreign).await));
    let granted = submit(&stranger(&leader), &handle, acquire(session, 2, "a/2", parent(session))).await;
    assert!(matches!(granted, Ok(Outcome::Granted(_))), "{granted:?}");
}

/// Another's lease is unknown, and an answer names no holder of a lock that the caller may not read.
#[tokio::test]
async fn anothers_lease_is_unknown() {
    let guarded = Guarded::start(1).await;
    let leader = guarded.cluster.leader().await;
    let (handle, take) = (Handle::from_random(5), LeaseRequestId(5));
    let taken = TakeLease {
        lock: key("b/1"),
        take,
        handle: handle.clone(),
        access: Mode::Exclusive.into(),
        lease_ms: 60_000,
        patience: Patience::Try,
        metadata: Metadata::default(),
        claim_ms: None,
    };
    let owner = named(&leader, "lock-all");
    owner.submit(Call::new(Command::TakeLease(taken))).await.expect("taken");
    let not_held = || Outcome::Refused(Refusal::NotHeld { lock: key("b/1") });
    let renewal = |handle: &Handle| {
        let target = RenewalTarget::Lease { lock: key("b/1"), handle: handle.clone(), lease_ms: 60_000 };
        vec![RenewalCall { target, proof: Proof::Trusted, attempt: 1 }]
    };
    for shown in [handle.clone(), Handle::from_random(9)] {
        // This principal may not even read the name.
        let thief = named(&leader, "lock");
        let drop = Command::DropLease { lock: key("b/1"), handle: shown.clone() };
        assert_eq!(thief.submit(Call::new(drop)).await.map(|reply| reply.outcome), Ok(not_held()));
        assert_eq!(thief.renew(renewal(&shown)).await.expect("answered").remove(0).outcome, not_held());
    }
    let cancel = || Call::new(Command::CancelTake { lock: key("b/1"), take, handle: handle.clone() });
    assert!(is_forbidden(&named(&leader, "lock").submit(cancel()).await));
    let withdrawn = named(&leader, "other").submit(cancel()).await.map(|reply| reply.outcome);
    assert_eq!((withdrawn, holders(&leader, "b/1").await), (Ok(Outcome::Withdrawn), 1));
    owner.submit(cancel()).await.expect("cancelled");
    assert_eq!(holders(&leader, "b/1").await, 0);
}

/// H-15: the `ts` of a document and the name of its process are public, and free or overtake only a document of the
/// same owner. With a right on those of others, the audit log has it.
#[tokio::test]
async fn documents_have_owners() {
    let guarded = Guarded::start(1).await;
    let leader = guarded.cluster.leader().await;
    let (ts, process) = (DocumentId([7; 12]), ProcessId::parse("p").expect("legal"));
    let grab = |ts: DocumentId, seen| {
        let metadata = Metadata { process: "p".into(), ..Metadata::default() };
        Command::Document(DocumentCommand::Grab(Grab {
            lock: key("a/1"),
            ts,
            metadata,
            term: None,
            prepare: false,
            seen,
        }))
    };
    let submitted = async |principal: &str, command: Command| {
        named(&leader, principal).submit(Call::new(command)).await.map(|reply| reply.outcome)
    };
    let granted = submitted("lock-all", grab(ts, None)).await;
    assert!(matches!(granted, Ok(Outcome::Granted(_))), "{granted:?}");
    let unlock = |name| Command::Document(DocumentCommand::Unlock { namespace: namespace(), ts, name });
    let process = DocumentCommand::UnlockAll { namespace: namespace(), process, term: None };
    for command in [unlock(Some(key("a/1").name)), unlock(None), Command::Document(process.clone())] {
        assert_eq!(submitted("other", command.clone()).await, Ok(Outcome::Freed { locks: 0 }), "{command:?}");
    }
    let confirm = |ts| Command::Document(DocumentCommand::Confirm { lock: key("a/1"), ts });
    for shown in [ts, DocumentId([9; 12])] {
        let answered = submitted("other", grab(shown, None)).await;
        assert!(matches!(answered, Ok(Outcome::Refused(Refusal::Held { .. }))), "{shown:?}: {answered:?}");
        let answered = submitted("other", confirm(shown)).await;
        assert!(matches!(answered, Ok(Outcome::Refused(Refusal::HeldByOther { .. }))), "{shown:?}: {answered:?}");
    }
    assert!(matches!(submitted("lock-all", confirm(ts)).await, Ok(Outcome::Granted(_))));
    assert!(is_forbidden(&submitted("other", grab(DocumentId([8; 12]), Some(ts))).await));
    assert_eq!(holders(&leader, "a/1").await, 1);
    let overtaken = submitted("admin", grab(DocumentId([8; 12]), Some(ts))).await;
    assert!(matches!(overtaken, Ok(Outcome::Granted(_))), "{overtaken:?}");
    assert_eq!(submitted("lock-all", Command::Document(process.clone())).await, Ok(Outcome::Freed { locks: 0 }));
    assert_eq!(submitted("admin-all", Command::Document(process)).await, Ok(Outcome::Freed { locks: 1 }));
    let lines = super::audit::lines(&guarded);
    let done: Vec<_> = lines.iter().filter(|line| line["phase"] == "done" && line["lock"] == "a/1").collect();
    let acts: Vec<_> = done.iter().map(|line| format!("{} {}", line["principal"], line["act"])).collect();
    assert_eq!(acts, ["\"admin\" \"overtake\"", "\"admin-all\" \"unlock\""], "{lines:?}");
}

/// H-13, X-21: a request may name only a session of its own principal as parent: its waits would otherwise look like
/// part of a deadlock to others.
#[tokio::test]
async fn a_parent_is_ones_own() {
    let guarded = Guarded::start(1).await;
    let leader = guarded.cluster.leader().await;
    let (victim, _) = open(&named(&leader, "lock-all"), 1).await;
    let (session, handle) = open(&named(&leader, "other"), 2).await;
    let (older, _) = open(&named(&leader, "other"), 3).await;
    let parent = |session| Some(Parent { session, owner: Owner::parse("o").expect("legal") });
    let other = named(&leader, "other");
    // The next sessions get the next ids, which a victim may have soon.
    let next = SessionId::new(older.epoch(), older.counter() + 1);
    for (foreign, number) in [(victim, 1), (next, 2)] {
        let refused = submit(&other, &handle, acquire(session, number, "a/1", parent(foreign))).await;
        let text = refused.expect_err("refused").to_string();
        assert!(text.ends_with("a parent must be a session of your own"), "{text}");
    }
    let granted = submit(&other, &handle, acquire(session, 3, "a/1", parent(older))).await;
    assert!(matches!(granted, Ok(Outcome::Granted(_))), "{granted:?}");
}

/// A leader that was partitioned does not know the sessions that the next leader opened, so it refuses none as parent.
#[tokio::test]
async fn a_leader_without_a_quorum_refuses_no_parent() {
    let guarded = Guarded::start(3).await;
    let leader = guarded.cluster.leader().await;
    let (session, handle) = open(&named(&leader, "lock-all"), 1).await;
    for follower in guarded.cluster.nodes().iter().filter(|node| node.id() != leader.id()) {
        follower.close().await;
    }
    let opened_elsewhere = Parent { session: SessionId::new(0, 99), owner: Owner::parse("p").expect("legal") };
    let proof = Proof::Handle { handle, namespace: namespace() };
    let call = Call { proof, ..Call::new(acquire(session, 1, "a/1", Some(opened_elsewhere))) };
    let answered = named(&leader, "lock-all").submit(call).await;
    assert!(matches!(answered, Err(ServiceError::NotSent { .. })), "{answered:?}");
}

/// H-14, X-21: the id of a session opens nothing in a namespace that the caller may not read.
#[tokio::test]
async fn an_id_opens_no_namespace() {
    let guarded = Guarded::start(1).await;
    let leader = guarded.cluster.leader().await;
    let (session, handle) = open(&named(&leader, "lock-all"), 1).await;
    let request = RequestId { session, number: 1 };
    submit(&named(&leader, "lock-all"), &handle, acquire(session, 1, "a/1", None)).await.expect("granted");
    let thief = named(&leader, "lock");
    let claim = |lock| Query::Claim { lock, claim: Claim::Request(request) };
    let unseen = || QueryResult::Claim { outcome: Some(Outcome::Refused(unknown(session))), recalled: Vec::new() };
    let nothing = || QueryResult::Explained(Explanation::default());
    for (query, answer) in [
        (claim(None), unseen()),
        (claim(Some(key("a/1"))), unseen()),
        (Query::Explain(About::Session(session)), nothing()),
        (Query::Explain(About::Request(request)), nothing()),
    ] {
        for freshness in [Freshness::Stale, Freshness::Linearizable] {
            let answered = thief.query(query.clone(), freshness).await.expect("answered").answer;
            assert_eq!(answered, answer, "{query:?}");
        }
    }
    let claim = ClaimRef { lock: key("a/1"), claim: Claim::Request(request) };
    assert_eq!(thief.wait_outcome(claim).await.expect("answered").outcome, Outcome::Refused(unknown(session)));
    // Without principals, the namespace that a caller names must be the session's.
    let elsewhere = lockkeeper::model::LockKey { namespace: lockkeeper::model::Namespace::default(), ..key("a/1") };
    let query = Query::Claim { lock: Some(elsewhere), claim: Claim::Request(request) };
    assert_eq!(leader.service().query(query, Freshness::Stale).await.expect("answered").answer, unseen());

    let subscription = || Subscription { scope: Scope::Session(session), after: None, cluster_id: None };
    let mut hidden = thief.subscribe(subscription()).await.expect("subscribed");
    let mut seen = named(&leader, "lock-all").subscribe(subscription()).await.expect("subscribed");
    submit(&named(&leader, "lock-all"), &handle, acquire(session, 2, "a/2", None)).await.expect("granted");
    seen.next().await.expect("an event");
    let waited = tokio::time::timeout(std::time::Duration::from_millis(200), hidden.next()).await;
    assert!(waited.is_err(), "{waited:?}");
}

/// H-14: how a session ended is known to its own principal, and to those that read its namespace. Each call of another
/// principal gets the answer of a session that never existed.
#[tokio::test]
async fn the_end_of_anothers_session_is_hidden() {
    let guarded = Guarded::start(1).await;
    let leader = guarded.cluster.leader().await;
    let (session, handle) = open(&named(&leader, "lock"), 1).await;
    let why = Reason::parse("a secret of the operators").expect("legal");
    let end = EndSession { namespace: namespace(), session, why: why.clone() };
    named(&leader, "admin-all").submit(Call::new(Command::EndSession(end))).await.expect("ended");
    let broken = || Refusal::SessionEnded { session, reason: EndReason::Broken, why: Some(why.clone()) };
    let request = RequestId { session, number: 1 };
    for (principal, refusal) in [("lock", broken()), ("read-all", broken()), ("admin", unknown(session))] {
        let caller = named(&leader, principal);
        let claim = Query::Claim { lock: None, claim: Claim::Request(request) };
        let answered = caller.query(claim, Freshness::Linearizable).await.expect("answered").answer;
        let outcome = Some(Outcome::Refused(refusal.clone()));
        assert_eq!(answered, QueryResult::Claim { outcome, recalled: Vec::new() }, "{principal}");
    }
    for (principal, refusal) in [("lock", broken()), ("other", unknown(session))] {
        let caller = named(&leader, principal);
        for command in [acquire(session, 1, "a/1", None), Command::Cancel { request }] {
            let answered = submit(&caller, &handle, command.clone()).await;
            assert_eq!(answered, Ok(Outcome::Refused(refusal.clone())), "{principal}: {command:?}");
        }
        let proof = Proof::Handle { handle: handle.clone(), namespace: namespace() };
        let renewal = RenewalCall { target: RenewalTarget::Session(session), proof, attempt: 1 };
        let renewed = caller.renew(vec![renewal]).await.expect("answered").remove(0).outcome;
        assert_eq!(renewed, Outcome::Refused(refusal), "{principal}");
    }
}

/// H-14: a principal that may hand over its own hold to any session learns neither how the session of another principal
/// ended, nor which ones are open in other namespaces.
#[tokio::test]
async fn a_hand_over_shows_no_end_of_anothers_session() {
    let guarded = Guarded::start(1).await;
    let leader = guarded.cluster.leader().await;
    let (session, handle) = open(&named(&leader, "lock"), 1).await;
    let granted = submit(&named(&leader, "lock"), &handle, acquire(session, 1, "a/1", None)).await;
    let Ok(Outcome::Granted(grant)) = granted else { panic!("{granted:?}") };
    let (ended, _) = open(&named(&leader, "other"), 2).await;
    let (here, _) = open(&named(&leader, "other"), 3).await;
    let elsewhere = open_in(&leader.service(), Namespace::parse("test").expect("legal"), &Handle::from_random(4)).await;
    let Outcome::Opened { session: elsewhere, .. } = elsewhere else { panic!("{elsewhere:?}") };
    let why = Reason::parse("a secret of the operators").expect("legal");
    let end = EndSession { namespace: namespace(), session: ended, why: why.clone() };
    named(&leader, "admin-all").submit(Call::new(Command::EndSession(end))).await.expect("ended");
    let hand_over = async |principal: &str, to| {
        let what = Managing::HandOver { token: grant.token, to };
        let call = Call::new(Command::Manage(Manage { lock: key("a/1"), what }));
        named(&leader, principal).submit(call).await.map(|reply| reply.outcome)
    };
    let never = SessionId::new(elsewhere.epoch(), elsewhere.counter() + 1);
    for to in [ended, elsewhere, never] {
        assert_eq!(hand_over("lock", to).await, Ok(Outcome::Refused(unknown(to))));
    }
    let not_accepted = Refusal::NotAccepted { lock: key("a/1"), session: here };
    assert_eq!(hand_over("lock", here).await, Ok(Outcome::Refused(not_accepted)));
    let broken = Refusal::SessionEnded { session: ended, reason: EndReason::Broken, why: Some(why.clone()) };
    assert_eq!(hand_over("admin-all", ended).await, Ok(Outcome::Refused(broken)));
    // The end is in the log before the hand-over, but not applied when the node decides about the hand-over.
    let end = Command::EndSession(EndSession { namespace: namespace(), session: here, why });
    let ending = named(&leader, "admin-all");
    let (ended, handed_over) = tokio::join!(ending.submit(Call::new(end)), hand_over("lock", here));
    ended.expect("ended");
    assert_eq!(handed_over, Ok(Outcome::Refused(unknown(here))));
}
