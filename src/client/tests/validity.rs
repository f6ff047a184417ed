//! Every validity counts from before the attempt was sent, because the entry that set its end may have been applied
//! right then, however long the answer took.

use std::time::Duration;

use super::fake::{Asked, Fake, Reaction, view};
use super::time::{TICK, until};
use crate::clock::{Clock, Instant};
use crate::model::{Command, FencingToken, Grant, Outcome, Place, Query, Refusal, RenewalTarget};
use crate::service::{ErrorCode, NotSent, ServiceError};

const SECOND: Duration = Duration::from_secs(1);
/// An answer takes longer than its request, so that all possible starting points differ.
const THERE: Duration = Duration::from_millis(300);
const BACK: Duration = Duration::from_millis(400);

fn slow() -> Fake {
    let fake = Fake::new();
    fake.ways(THERE, BACK);
    fake
}

/// Returns the rest of `length` counted from `sent`, minus the margin for the drift of clocks.
fn left(fake: &Fake, sent: Instant, length: Duration) -> Duration {
    (length * 99 / 100).saturating_sub(fake.clock.now().since(sent))
}

fn is_open(asked: &Asked) -> bool {
    matches!(asked, Asked::Submit(Command::OpenSession(_)))
}

fn is_attach(asked: &Asked) -> bool {
    matches!(asked, Asked::Submit(Command::Attach(_)))
}

fn is_acquire(asked: &Asked) -> bool {
    matches!(asked, Asked::Submit(Command::Acquire(_)))
}

fn is_take(asked: &Asked) -> bool {
    matches!(asked, Asked::Submit(Command::TakeLease(_)))
}

fn is_renewal(asked: &Asked) -> bool {
    matches!(asked, Asked::Renew(_))
}

fn is_renewal_of_a_hold(asked: &Asked) -> bool {
    matches!(asked, Asked::Renew(renewal) if matches!(renewal.target, RenewalTarget::Hold { .. }))
}

/// A session is valid from the sending of its open request, then from that of its last renewal or attach.
#[tokio::test(start_paused = true)]
async fn a_session_counts_from_the_sending() {
    let fake = slow();
    let ttl = 9 * SECOND;
    let session = fake.client().session().ttl(ttl).open().await.expect("opened");
    assert_eq!(session.valid_for(), left(&fake, fake.sent(is_open), ttl));
    fake.answers(1).await;
    assert_eq!(session.valid_for(), left(&fake, fake.sent(is_renewal), ttl));
    fake.attached(false);
    fake.answers(1).await;
    assert_eq!(session.valid_for(), left(&fake, fake.sent(is_attach), ttl));
}

/// With a grace, a session is valid from the last proof over its newest stream. An answer over the previous stream does
/// not count if it arrives after an attach was sent, because the node may have closed that stream since.
#[tokio::test(start_paused = true)]
async fn a_late_renewal_does_not_move_the_grace_once_an_attach_was_sent() {
    let fake = slow();
    let clocks = fake.clone();
    fake.rule(move |asked| match asked {
        Asked::Renew(renewal) => {
            let deadline = clocks.stamp().after_ms(60_000);
            Reaction::Late(2 * SECOND, Outcome::Renewed { deadline, attempt: renewal.attempt, token: None })
        }
        Asked::Submit(Command::Attach(_)) => Reaction::Silence,
        Asked::Submit(_) | Asked::Settled | Asked::Query(_) | Asked::Subscribe | Asked::Status => Reaction::Serve,
    });
    let grace = 9 * SECOND;
    let session = fake.client().session().ttl(60 * SECOND).disconnect_grace(grace).open().await.expect("opened");
    fake.answers(1).await;
    assert!(fake.sent(is_renewal) < fake.sent(is_attach));
    assert_eq!(session.valid_for(), left(&fake, fake.sent(is_open), grace));
}

/// A session that was opened by the second attempt is valid from the sending of that attempt.
#[tokio::test(start_paused = true)]
async fn validity_counts_from_the_answered_attempt() {
    let fake = slow();
    let mut tries = 0;
    fake.rule(move |asked| {
        tries += usize::from(is_open(asked));
        if is_open(asked) && tries == 1 { Reaction::Fail(ServiceError::unknown("lost")) } else { Reaction::Serve }
    });
    let ttl = 9 * SECOND;
    let session = fake.client().session().ttl(ttl).open().await.expect("opened");
    assert_eq!((fake.count(is_open), session.valid_for()), (2, left(&fake, fake.sent(is_open), ttl)));
}

/// The lease of a lock is valid from before the acquire was sent, then from the sending of its last renewal.
#[tokio::test(start_paused = true)]
async fn the_lease_of_a_hold_counts_from_the_sending() {
    let fake = slow();
    let session = fake.client().session().ttl(60 * SECOND).open().await.expect("opened");
    let lease = 3 * SECOND;
    let guard = session.lock("a").lease(lease).acquire().await.expect("free");
    let (valid, longest) = (guard.valid_for(), left(&fake, fake.sent(is_acquire), lease));
    assert!(valid <= longest && longest < valid + lease / 100, "{valid:?} of {longest:?}");
    for _ in 0..3 {
        fake.answers(1).await;
        assert_eq!(guard.valid_for(), left(&fake, fake.sent(is_renewal_of_a_hold), lease));
    }
}

/// A hold with a separate lease is valid no longer than its session.
#[tokio::test(start_paused = true)]
async fn a_hold_is_valid_no_longer_than_its_session() {
    let fake = slow();
    let ttl = 9 * SECOND;
    let session = fake.client().session().ttl(ttl).open().await.expect("opened");
    let guard = session.lock("a").lease(60 * SECOND).acquire().await.expect("free");
    assert!(!guard.valid_for().is_zero() && guard.valid_for() <= ttl, "{:?}", guard.valid_for());
    assert_eq!(guard.valid_for(), session.valid_for());
    fake.rule(|_| Reaction::Silence);
    session.lost().await;
    assert_eq!(guard.valid_for(), Duration::ZERO);
}

/// A token lease is valid from the sending of the attempt that took it, then from that of its last refresh. The refresh
/// reports the same validity.
#[tokio::test(start_paused = true)]
async fn a_token_lease_counts_from_the_sending() {
    let fake = slow();
    let mut tries = 0;
    fake.rule(move |asked| {
        tries += usize::from(is_take(asked));
        if is_take(asked) && tries == 1 {
            Reaction::Fail(ServiceError::not_sent(NotSent::NoLeader))
        } else {
            Reaction::Serve
        }
    });
    let length = 5 * SECOND;
    let mut lease = fake.client().lease("a").duration(length).take().await.expect("free");
    assert_eq!((fake.count(is_take), lease.valid_for()), (2, left(&fake, fake.sent(is_take), length)));
    for _ in 0..2 {
        let refreshed = lease.refresh().await.expect("held");
        assert_eq!(lease.valid_for(), left(&fake, fake.sent(is_renewal), length));
        assert_eq!(refreshed.valid_for, length * 99 / 100);
    }
}

/// A refresh that was not answered, or that its caller dropped, may have shortened a token lease, at the earliest when
/// it was first sent. The next answered refresh sets the end again. A refresh that was not sent changes nothing.
#[tokio::test(start_paused = true)]
async fn a_token_lease_in_doubt_ends_at_the_earlier_time() {
    let (fake, length, shorter) = (slow(), 60 * SECOND, 20 * SECOND);
    let client = fake.client().request_wait(2 * SECOND);
    let mut lease = client.lease("a").duration(length).take().await.expect("free");
    for dropped_after in [SECOND, 60 * SECOND] {
        fake.rule(|asked| if is_renewal(asked) { Reaction::Silence } else { Reaction::Serve });
        let began = fake.clock.now();
        let refreshed = tokio::time::timeout(dropped_after, lease.refresh_for(shorter)).await;
        assert!(!matches!(refreshed, Ok(Ok(_))), "{refreshed:?}");
        assert_eq!(lease.valid_for(), left(&fake, began, shorter));
        fake.rule(|_| Reaction::Serve);
        lease.refresh().await.expect("held");
        assert_eq!(lease.valid_for(), left(&fake, fake.sent(is_renewal), length));
    }
    let answered = fake.sent(is_renewal);
    fake.rule(|_| Reaction::Fail(ServiceError::not_sent(NotSent::NoLeader)));
    assert_eq!(lease.refresh_for(shorter).await.expect_err("no leader").code(), ErrorCode::NoLeader);
    assert_eq!(lease.valid_for(), left(&fake, answered, length));
}

/// A token lease that had to wait is valid from the sending of a refresh, because no earlier attempt shows when it was
/// granted.
#[tokio::test(start_paused = true)]
async fn a_token_lease_that_had_to_wait_counts_from_a_refresh() {
    let fake = slow();
    let (length, waits, clocks) = (5 * SECOND, 2 * SECOND, fake.clone());
    fake.valid(&[9]);
    fake.rule(move |asked| match asked {
        Asked::Submit(Command::TakeLease(take)) => {
            let lock = take.lock.name.clone();
            Reaction::Outcome(Outcome::Queued(Place { lock, place: 1, sequence: 1, held_by: None }))
        }
        Asked::Settled => {
            let deadline = Some(clocks.stamp().after_ms(7_000));
            let token = FencingToken::new(0, 9);
            Reaction::Late(waits, Outcome::Granted(Grant { token, deadline, ends: None, waited_ms: 2_000 }))
        }
        Asked::Submit(_) | Asked::Renew(_) | Asked::Query(_) | Asked::Subscribe | Asked::Status => Reaction::Serve,
    });
    let lease = fake.client().lease("a").duration(length).wait(60 * SECOND).take().await.expect("granted");
    assert_eq!((fake.count(is_renewal), lease.valid_for()), (1, left(&fake, fake.sent(is_renewal), length)));
}

/// An adopted hold keeps the rest of its lease, counted from the sending of the renewal that found it, and the lease is
/// renewed.
#[tokio::test(start_paused = true)]
async fn an_adopted_hold_keeps_its_lease() {
    let fake = slow();
    let session = fake.client().session().ttl(60 * SECOND).open().await.expect("opened");
    let (token, clocks) = (FencingToken::new(0, 5), fake.clone());
    fake.rule(move |asked| match asked {
        Asked::Query(Query::Holders { .. }) => Reaction::Answer(view(token, clocks.stamp().after_ms(3_000))),
        Asked::Submit(_) | Asked::Renew(_) | Asked::Settled | Asked::Query(_) | Asked::Subscribe | Asked::Status => {
            Reaction::Serve
        }
    });
    let guard = session.adopt("a", token).await.expect("held by this session");
    for renewals in 1..=3 {
        assert_eq!(fake.count(is_renewal_of_a_hold), renewals);
        assert_eq!(guard.valid_for(), left(&fake, fake.sent(is_renewal_of_a_hold), 3 * SECOND));
        fake.answers(1).await;
    }
}

/// An adopted hold without a lease is valid as long as its session. A hold whose lease expired in the meantime is not
/// held.
#[tokio::test(start_paused = true)]
async fn an_adopted_hold_without_a_lease_lives_with_its_session() {
    let fake = slow();
    let session = fake.client().session().ttl(60 * SECOND).open().await.expect("opened");
    let (token, clocks) = (FencingToken::new(0, 5), fake.clone());
    let mut looks_left = 3;
    fake.rule(move |asked| match asked {
        Asked::Query(Query::Holders { .. }) if looks_left > 0 => {
            looks_left -= 1;
            Reaction::Answer(view(token, clocks.stamp().after_ms(1_000)))
        }
        Asked::Renew(renewal) => match &renewal.target {
            RenewalTarget::Hold { lock, .. } => {
                Reaction::Outcome(Outcome::Refused(Refusal::NotHeld { lock: lock.clone() }))
            }
            RenewalTarget::Session(_) | RenewalTarget::Lease { .. } => Reaction::Serve,
        },
        Asked::Submit(_) | Asked::Settled | Asked::Query(_) | Asked::Subscribe | Asked::Status => Reaction::Serve,
    });
    let guard = session.adopt("a", token).await.expect("held by this session");
    assert_eq!(guard.valid_for(), session.valid_for());
    let gone = session.adopt("a", token).await.expect_err("held at the first look only");
    assert_eq!(gone.code(), ErrorCode::NotHeld);
}

/// A token lease whose handle now holds a newer grant is not held: a refresh of the newer grant does not make the old
/// token valid again.
#[tokio::test(start_paused = true)]
async fn a_refresh_does_not_revive_an_older_grant() {
    let fake = slow();
    let mut first = fake.client().lease("a").duration(SECOND).take().await.expect("free");
    until(|| first.valid_for().is_zero()).await;
    let second = fake.client().lease("a").duration(60 * SECOND).handle(first.handle().clone()).take().await;
    let second = second.expect("free again");
    assert_eq!(first.refresh().await.expect_err("another grant").code(), ErrorCode::NotHeld);
    assert_eq!(first.valid_for(), Duration::ZERO);
    assert!(first.token() < second.token() && !second.valid_for().is_zero());
}

/// A token lease that the cluster reports as not held is not valid any more, although its time is not over.
#[tokio::test(start_paused = true)]
async fn a_refused_refresh_ends_the_lease() {
    let fake = slow();
    let mut lease = fake.client().lease("a").duration(60 * SECOND).take().await.expect("free");
    fake.rule(|asked| match asked {
        Asked::Renew(renewal) => match &renewal.target {
            RenewalTarget::Lease { lock, .. } => {
                Reaction::Outcome(Outcome::Refused(Refusal::NotHeld { lock: lock.clone() }))
            }
            RenewalTarget::Session(_) | RenewalTarget::Hold { .. } => Reaction::Serve,
        },
        Asked::Submit(_) | Asked::Settled | Asked::Query(_) | Asked::Subscribe | Asked::Status => Reaction::Serve,
    });
    tokio::time::sleep(TICK).await;
    assert!(!lease.valid_for().is_zero());
    assert_eq!(lease.refresh().await.expect_err("given back").code(), ErrorCode::NotHeld);
    assert_eq!(lease.valid_for(), Duration::ZERO);
}
