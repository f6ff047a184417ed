//! The leader is killed during each family of operations. Afterwards every request that is repeated with its number
//! gets the same answer, and holders, waiters, counts and values are the same.

mod scenario;

use std::time::Duration;

use lockkeeper::model::{
    Access, Acquire, Alter, Alteration, Command, Extras, FencingToken, Handle, LeaseRequestId, LockKey, LockName,
    LockValue, Metadata, Mode, Namespace, Outcome, Owner, Patience, Reentry, Refusal, Release, SessionClose, TakeLease,
};

use self::scenario::{Caller, Op, Scenario, name};

/// The number of names that each operation uses: some operations are answered before the kill, some are in flight, and
/// some are sent after it.
const NAMES: usize = 18;
const DELAY: Duration = Duration::from_secs(50);

fn acquire(caller: &Caller, lock: LockName, access: impl Into<Access>, patience: Patience, extras: Extras) -> Command {
    let (request, answered_below) = caller.draw();
    let owner = (extras.reentry != Reentry::Refuse).then(|| Owner::parse("job").expect("short"));
    let metadata = Metadata::default();
    let extras = Some(Box::new(extras));
    let locks = (lock, access.into()).into();
    Command::Acquire(Acquire { request, answered_below, locks, owner, patience, metadata, lease_ms: None, extras })
}

fn plain(caller: &Caller, lock: LockName) -> Command {
    acquire(caller, lock, Mode::Exclusive, Patience::Session, Extras::default())
}

fn alter(caller: &Caller, lock: LockName, what: Alteration) -> Command {
    let (request, answered_below) = caller.draw();
    Command::Alter(Alter { request, answered_below, name: lock, what })
}

fn release(caller: &Caller, lock: LockName, token: FencingToken) -> Command {
    let (request, answered_below) = caller.draw();
    Command::Release(Release { request, answered_below, name: lock, token, acquire: 0 })
}

fn token(outcome: &Outcome) -> FencingToken {
    let Outcome::Granted(grant) = outcome else { panic!("{outcome:?}") };
    grant.token
}

fn reentrant() -> Extras {
    Extras { reentry: Reentry::Count, ..Extras::default() }
}

/// A repeated request gets the same grant or the same place in the queue, and the queue is served in its order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grants_and_queues_survive_the_leader() {
    let mut scenario = Scenario::begin("queue").await;
    let (holder, waiter) = (scenario.caller().await, scenario.caller().await);
    let ops = (0..NAMES).map(|at| Op::new(at, &holder, plain(&holder, name("queue", at))));
    let grants = scenario.through_a_kill(ops.collect()).await;
    let ops = (0..NAMES).map(|at| Op::new(at, &waiter, plain(&waiter, name("queue", at))));
    let places = scenario.through_a_kill(ops.collect()).await;
    for (grant, place) in grants.iter().zip(&places) {
        assert!(matches!(place.outcome, Outcome::Queued(_)), "{place:?}");
        scenario.answers(&grant.call, &grant.outcome).await;
    }
    let sequences: Vec<_> = places.iter().map(|place| place.sequence()).collect();
    for (at, sequence) in sequences.iter().enumerate() {
        let view = scenario.view("queue", at).await;
        assert_eq!((view.holders[0].token, view.holders.len()), (token(&grants[at].outcome), 1));
        assert_eq!(view.waiters.iter().map(|waiter| Some(waiter.sequence)).collect::<Vec<_>>(), [*sequence]);
    }
    let ops = grants.iter().map(|grant| {
        let release = release(&holder, name("queue", grant.at), token(&grant.outcome));
        Op::new(grant.at, &holder, release)
    });
    let releases = scenario.through_a_kill(ops.collect()).await;
    assert!(releases.iter().all(|release| release.outcome == Outcome::Released { left: 0 }));
    for (place, grant) in places.iter().zip(&grants) {
        let next = scenario.answer(&place.call).await;
        assert!(token(&grant.outcome) < token(&next.outcome), "{next:?}");
    }
}

/// Each request enters a hold once, even if it is repeated, and each release decrements the count by one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reentry_counts_survive_the_leader() {
    let mut scenario = Scenario::begin("reentry").await;
    let owner = scenario.caller().await;
    let enter = |owner: &Caller, at| acquire(owner, name("reentry", at), Mode::Exclusive, Patience::Try, reentrant());
    let mut tokens = Vec::new();
    for at in 0..NAMES {
        let call = owner.call(enter(&owner, at));
        tokens.push(token(&scenario.answer(&call).await.outcome));
    }
    let ops: Vec<_> = (0..NAMES).map(|at| Op::new(at, &owner, enter(&owner, at))).collect();
    let again = scenario.through_a_kill(ops).await;
    for entered in &again {
        assert_eq!(token(&entered.outcome), tokens[entered.at]);
    }
    for left in [1, 0] {
        let ops: Vec<_> =
            (0..NAMES).map(|at| Op::new(at, &owner, release(&owner, name("reentry", at), tokens[at]))).collect();
        for released in scenario.through_a_kill(ops).await {
            assert_eq!(released.outcome, Outcome::Released { left });
        }
    }
    for at in 0..NAMES {
        assert!(scenario.view("reentry", at).await.holders.is_empty());
    }
}

/// A set is granted as a whole, under the same tokens for each repetition of the request.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sets_survive_the_leader() {
    let mut scenario = Scenario::begin("sets").await;
    let owner = scenario.caller().await;
    let members = |at: usize| (0..3).map(move |part| LockName::parse(&format!("sets/{at}/{part}")).expect("short"));
    let ops: Vec<_> = (0..NAMES)
        .map(|at| {
            let (request, answered_below) = owner.draw();
            let locks = members(at).map(|name| (name, Mode::Exclusive.into())).collect();
            let (patience, metadata) = (Patience::Session, Metadata::default());
            let set = Acquire {
                request,
                answered_below,
                locks,
                owner: None,
                patience,
                metadata,
                lease_ms: None,
                extras: None,
            };
            Op::new(at, &owner, Command::Acquire(set))
        })
        .collect();
    for granted in scenario.through_a_kill(ops).await {
        let Outcome::GrantedSet(grants) = &granted.outcome else { panic!("{granted:?}") };
        assert!(grants.iter().map(|(name, _)| name.clone()).eq(members(granted.at)));
        for (name, grant) in grants {
            let view = scenario.client.inspect(name.as_str()).await.expect("inspected").value;
            assert_eq!(view.holders.iter().map(|holder| holder.token).collect::<Vec<_>>(), [grant.token]);
        }
    }
}

/// Permits are counted once for each request, and the limit does not change.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permits_survive_the_leader() {
    let mut scenario = Scenario::begin("permits").await;
    let owner = scenario.caller().await;
    let ask = |owner: &Caller, at, count, limit| {
        acquire(owner, name("permits", at), Access::permits(count, limit), Patience::Try, Extras::default())
    };
    let ops: Vec<_> = (0..NAMES).map(|at| Op::new(at, &owner, ask(&owner, at, 2, Some(3)))).collect();
    let granted = scenario.through_a_kill(ops).await;
    for grant in &granted {
        let view = scenario.view("permits", grant.at).await;
        assert_eq!((view.limit, view.holders.len(), view.holders[0].token), (Some(3), 1, token(&grant.outcome)));
        let two = owner.call(ask(&owner, grant.at, 2, None));
        assert!(matches!(scenario.answer(&two).await.outcome, Outcome::Refused(Refusal::Held { .. })));
        let one = owner.call(ask(&owner, grant.at, 1, None));
        token(&scenario.answer(&one).await.outcome);
    }
}

/// A value stays set, a downgrade happens once, and an upgrade gives one new token.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_of_holds_survive_the_leader() {
    let mut scenario = Scenario::begin("changes").await;
    let owner = scenario.caller().await;
    let mut tokens = Vec::new();
    for at in 0..NAMES {
        let call = owner.call(plain(&owner, name("changes", at)));
        tokens.push(token(&scenario.answer(&call).await.outcome));
    }
    let change = |owner: &Caller, at, what| Op::new(at, owner, alter(owner, name("changes", at), what));
    let value = |at: usize| LockValue::parse(&format!("value {at}")).expect("short");
    let set =
        (0..NAMES).map(|at| change(&owner, at, Alteration::SetValue { token: tokens[at], value: Some(value(at)) }));
    for done in scenario.through_a_kill(set.collect()).await {
        assert_eq!(done.outcome, Outcome::Done);
        assert_eq!(scenario.view("changes", done.at).await.value, Some(value(done.at)));
    }
    let down = (0..NAMES).map(|at| change(&owner, at, Alteration::Downgrade { token: tokens[at] }));
    for done in scenario.through_a_kill(down.collect()).await {
        assert_eq!(done.outcome, Outcome::Downgraded);
        let view = scenario.view("changes", done.at).await;
        assert_eq!((view.holders[0].mode, view.holders[0].token), (Mode::Shared, tokens[done.at]));
    }
    let up =
        (0..NAMES).map(|at| change(&owner, at, Alteration::Upgrade { token: tokens[at], patience: Patience::Try }));
    for done in scenario.through_a_kill(up.collect()).await {
        let view = scenario.view("changes", done.at).await;
        assert_eq!((view.holders[0].mode, view.holders[0].token), (Mode::Exclusive, token(&done.outcome)));
        assert!(tokens[done.at] < token(&done.outcome));
        assert_eq!(view.value, Some(value(done.at)));
    }
}

/// A repeated cancel gets the same answer, and the cancelled request is never granted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn withdrawals_survive_the_leader() {
    let mut scenario = Scenario::begin("cancel").await;
    let (holder, waiter) = (scenario.caller().await, scenario.caller().await);
    let mut waits = Vec::new();
    for at in 0..NAMES {
        let held = holder.call(plain(&holder, name("cancel", at)));
        token(&scenario.answer(&held).await.outcome);
        let call = waiter.call(plain(&waiter, name("cancel", at)));
        assert!(matches!(scenario.answer(&call).await.outcome, Outcome::Queued(_)));
        waits.push(call);
    }
    let cancels = waits.iter().enumerate().map(|(at, call)| {
        let Command::Acquire(acquire) = &call.command else { panic!("{call:?}") };
        Op::new(at, &waiter, Command::Cancel { request: acquire.request })
    });
    for cancelled in scenario.through_a_kill(cancels.collect()).await {
        assert_eq!(cancelled.outcome, Outcome::Withdrawn);
        scenario.answers(&waits[cancelled.at], &Outcome::Withdrawn).await;
        assert!(scenario.view("cancel", cancelled.at).await.waiters.is_empty());
    }
}

/// A lost hold keeps its name closed for the delay, and another session resumes it once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn delays_survive_the_leader() {
    let mut scenario = Scenario::begin("delay").await;
    let (lost, successor) = (scenario.caller().await, scenario.caller().await);
    let delay_ms = u64::try_from(DELAY.as_millis()).expect("short");
    let mut tokens = Vec::new();
    for at in 0..NAMES {
        let extras = Extras { delay_ms, ..Extras::default() };
        let acquire = acquire(&lost, name("delay", at), Mode::Exclusive, Patience::Try, extras);
        tokens.push(token(&scenario.answer(&lost.call(acquire)).await.outcome));
    }
    let close = Command::CloseSession { session: lost.session(), end: SessionClose::Lost };
    let closed = scenario.through_a_kill(vec![Op::new(0, &lost, close)]).await;
    assert_eq!(closed[0].outcome, Outcome::Closed);
    for at in 0..NAMES {
        let view = scenario.view("delay", at).await;
        assert!(view.delay_ms.is_some() && view.holders.is_empty(), "{view:?}");
    }
    let resume = (0..NAMES).map(|at| {
        let what = Alteration::Resume { token: tokens[at], handle: lost.handle(), lease_ms: None };
        Op::new(at, &successor, alter(&successor, name("delay", at), what))
    });
    for resumed in scenario.through_a_kill(resume.collect()).await {
        assert!(tokens[resumed.at] < token(&resumed.outcome));
        let view = scenario.view("delay", resumed.at).await;
        assert_eq!((view.holders[0].token, view.delay_ms), (token(&resumed.outcome), None));
    }
}

/// Each request takes a lease once, under the same token, and the lease is refreshed with its handle.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_survive_the_leader() {
    let mut scenario = Scenario::begin("lease").await;
    let handle = |at: usize| Handle::parse(&format!("secret {at}")).expect("short");
    let takes = (0..NAMES).map(|at| {
        let lock = LockKey { namespace: Namespace::default(), name: name("lease", at) };
        let take = LeaseRequestId(0xfeed_0000 + at as u128);
        let (access, lease_ms, patience) = (Mode::Exclusive.into(), 120_000, Patience::Try);
        let metadata = Metadata::default();
        let take = TakeLease { lock, take, handle: handle(at), access, lease_ms, patience, metadata, claim_ms: None };
        Op::sessionless(at, Command::TakeLease(take))
    });
    for taken in scenario.through_a_kill(takes.collect()).await {
        let view = scenario.view("lease", taken.at).await;
        assert_eq!(view.holders.iter().map(|holder| holder.token).collect::<Vec<_>>(), [token(&taken.outcome)]);
        let lock = name("lease", taken.at);
        let refreshed = scenario.client.refresh(lock.as_str(), &handle(taken.at), DELAY).await.expect("held");
        assert_eq!(refreshed.token, Some(token(&taken.outcome)));
    }
}
