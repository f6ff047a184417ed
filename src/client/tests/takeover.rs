//! Sessions that clients take over from each other: a client that another one has replaced ends nothing.

use std::time::Duration;

use super::fake::{Asked, Fake, Reaction};
use super::time::until;
use crate::client::{ClientError, TakenOver, Takeover, Unattached, acquire_in};
use crate::limits::ATTEMPTS_A_TENURE_BITS;
use crate::model::{
    Access, Acquire, Attachment, Claim, Command, Instance, LockName, Metadata, Mode, Outcome, Patience, Refusal,
    RequestId, SessionId,
};
use crate::service::ServiceError;

const SECOND: Duration = Duration::from_secs(1);
const TTL: Duration = Duration::from_secs(10);

async fn taken(fake: &Fake) -> Result<TakenOver<Fake>, ClientError> {
    opened(fake).await?.take_over(&acquire()).await
}

async fn opened(fake: &Fake) -> Result<Unattached<Fake>, ClientError> {
    let takeover = Takeover { instance: Instance(7), renewals: 5, grace: Some(SECOND) };
    fake.client().session().ttl(TTL).open_unattached(takeover).await
}

/// What each client requests.
fn acquire() -> Acquire {
    Acquire {
        // The client sets the session and the number.
        request: RequestId { session: SessionId::new(0, 1), number: 1 },
        answered_below: 0,
        locks: [(LockName::parse("a").expect("legal"), Access { mode: Mode::Exclusive, limit: None })]
            .into_iter()
            .collect(),
        owner: None,
        patience: Patience::For { ms: 5_000 },
        metadata: Metadata::default(),
        lease_ms: None,
        extras: None,
    }
}

/// Whether a call ends the session, or what it holds.
fn ends(asked: &Asked) -> bool {
    matches!(asked, Asked::Submit(Command::CloseSession { .. } | Command::Release(_) | Command::Disconnected { .. }))
}

/// The number of an attach.
fn attach_of(asked: &Asked) -> Option<u64> {
    if let Asked::Submit(Command::Attach(attach)) = asked { Some(attach.attempt) } else { None }
}

fn is_attempt(asked: &Asked) -> bool {
    matches!(asked, Asked::Renew(_) | Asked::Submit(Command::Attach(_)))
}

fn attempts(fake: &Fake) -> Vec<u64> {
    let number = |(_, asked)| {
        if let Asked::Renew(renewal) = asked { renewal.attempt } else { attach_of(&asked).expect("an attach") }
    };
    fake.asked(is_attempt).into_iter().map(number).collect()
}

/// The numbers of a tenure are larger than those of each tenure before, and its first renewal follows at once.
#[tokio::test(start_paused = true)]
async fn numbers_grow_from_tenure_to_tenure() {
    let fake = Fake::new();
    let first = taken(&fake).await.expect("taken");
    let second = taken(&fake).await.expect("taken again");
    until(|| 6 <= fake.count(is_attempt)).await;
    let attempts = attempts(&fake);
    let index = |at: usize| attempts[at] >> ATTEMPTS_A_TENURE_BITS;
    assert!(index(0) < index(2) && attempts[0] < attempts[1], "{attempts:?}");
    drop((first, second));
    fake.answers(0).await;
    assert_eq!(fake.count(ends), 0, "the last reference closes nothing");
}

/// A renewal that sets no deadline of a whole TTL was overtaken by one of the next client: the tenure is over, and the
/// client sends nothing more.
#[tokio::test(start_paused = true)]
async fn an_overtaken_client_ends_nothing() {
    let fake = Fake::new();
    let TakenOver { session, .. } = taken(&fake).await.expect("taken");
    let guard = session.lock("a").acquire().await.expect("free");
    let clocks = fake.clone();
    fake.rule(move |asked| {
        let Asked::Renew(renewal) = asked else { return Reaction::Serve };
        let deadline = clocks.stamp().after_ms(9_999);
        Reaction::Outcome(Outcome::Renewed { deadline, attempt: renewal.attempt, token: None })
    });
    session.lost().await;
    assert!(session.is_superseded());
    let sent = fake.count(is_attempt);
    session.leave_broken(Duration::ZERO);
    drop((guard, session));
    tokio::time::sleep(TTL).await;
    assert_eq!((fake.count(is_attempt), fake.count(ends)), (sent, 0));
}

/// A client that is partitioned loses the session by its own clock, and does not close it: the next client may have it.
#[tokio::test(start_paused = true)]
async fn a_client_that_is_cut_off_closes_nothing() {
    let fake = Fake::new();
    let TakenOver { session, .. } = taken(&fake).await.expect("taken");
    fake.rule(|asked| if is_attempt(asked) { Reaction::Fail(ServiceError::unknown("cut")) } else { Reaction::Serve });
    session.lost().await;
    assert!(!session.is_superseded());
    drop(session);
    tokio::time::sleep(2 * TTL).await;
    assert_eq!(fake.count(ends), 0);
}

/// A request that waits is ended by the cluster alone, because another client may have continued it: neither the
/// client's own clock nor a dropped future withdraws it.
#[tokio::test(start_paused = true)]
async fn a_wait_is_left_to_the_next_client() {
    let fake = Fake::new();
    let TakenOver { session, .. } = taken(&fake).await.expect("taken");
    let is_acquire = |asked: &Asked| matches!(asked, Asked::Submit(Command::Acquire(_)));
    let before = fake.count(is_acquire);
    fake.rule(move |asked| if is_acquire(asked) { Reaction::Silence } else { Reaction::Serve });
    let waiting = tokio::time::timeout(3 * TTL, acquire_in(&session, acquire(), None)).await;
    assert!(waiting.is_err(), "only the cluster ends the wait");
    fake.answers(1).await;
    let withdrawn = |asked: &Asked| matches!(asked, Asked::Submit(Command::Cancel { .. }));
    assert_eq!((fake.count(is_acquire) - before, fake.count(withdrawn), fake.count(ends)), (1, 0, 0));
}

/// A client whose acquire differs from the first that the cluster got is refused before it attaches the session, so the
/// first client keeps it, even if both opened it before either of them acquired. The same acquire takes it over.
#[tokio::test(start_paused = true)]
async fn another_acquire_takes_nothing_over() {
    let fake = Fake::new();
    let mut first: Option<Acquire> = None;
    fake.rule(move |asked| {
        let Asked::Submit(Command::Acquire(acquire)) = asked else { return Reaction::Serve };
        if first.get_or_insert_with(|| acquire.clone()).metadata == acquire.metadata {
            return Reaction::Serve;
        }
        let claim = Claim::Request(acquire.request);
        Reaction::Outcome(Outcome::Refused(Refusal::RequestReused { claim }))
    });
    let (one, two) = (opened(&fake).await.expect("open"), opened(&fake).await.expect("open"));
    let TakenOver { session, .. } = one.take_over(&acquire()).await.expect("taken");
    let attaches = |asked: &Asked| attach_of(asked).is_some();
    let before = fake.count(attaches);
    let differs = Acquire { metadata: Metadata { pid: 2, ..Metadata::default() }, ..acquire() };
    let refused = two.take_over(&differs).await.err();
    assert!(matches!(refused, Some(ClientError::Refused(Refusal::RequestReused { .. }))), "{refused:?}");
    assert_eq!((fake.count(attaches), fake.count(ends), session.is_superseded()), (before, 0, false));
    taken(&fake).await.expect("the same request");
    assert_eq!(fake.count(attaches), before + 1);
}

/// The break of a stream is reported with the attachment of the tenure, after the pause, and again after an error that
/// a retry of a caller cannot fix. The holds are not released.
#[tokio::test(start_paused = true)]
async fn a_break_names_the_attachment() {
    let fake = Fake::new();
    let TakenOver { session, .. } = taken(&fake).await.expect("taken");
    let guard = session.lock("a").acquire().await.expect("free");
    let attachment = Attachment(attempts(&fake)[0]);
    let is_break = |asked: &Asked| matches!(asked, Asked::Submit(Command::Disconnected { .. }));
    let mut revoked = Some(ServiceError::Unauthenticated { why: "the token is being replaced".to_owned() });
    fake.rule(move |asked| match revoked.take_if(|_| is_break(asked)) {
        Some(error) => Reaction::Fail(error),
        None if is_break(asked) => Reaction::Outcome(Outcome::Done),
        None => Reaction::Serve,
    });
    let left = fake.clock.begun.elapsed();
    session.leave_broken(3 * SECOND);
    drop((guard, session));
    until(|| fake.count(ends) == 2).await;
    assert!(left + 3 * SECOND <= fake.clock.begun.elapsed());
    let found = fake.asked(ends).into_iter().map(|(_, asked)| asked).next();
    let Some(Asked::Submit(Command::Disconnected { attachment: named, .. })) = found else { panic!("{found:?}") };
    assert_eq!(named, attachment);
}

/// The break of a stream is reported when the renewals that were on their way are answered: one that is applied later
/// would lengthen the session again.
#[tokio::test(start_paused = true)]
async fn a_break_is_reported_after_the_last_renewal() {
    let fake = Fake::new();
    let TakenOver { session, .. } = taken(&fake).await.expect("taken");
    let is_renewal = |asked: &Asked| matches!(asked, Asked::Renew(_));
    let clocks = fake.clone();
    fake.rule(move |asked| match asked {
        Asked::Renew(renewal) => {
            let deadline = clocks.stamp().after_ms(60_000);
            Reaction::Late(SECOND, Outcome::Renewed { deadline, attempt: renewal.attempt, token: None })
        }
        asked if ends(asked) => Reaction::Outcome(Outcome::Done),
        Asked::Submit(_) | Asked::Settled | Asked::Query(_) | Asked::Subscribe | Asked::Status => Reaction::Serve,
    });
    let before = fake.count(is_renewal);
    until(|| before < fake.count(is_renewal)).await;
    let sent = fake.sent(is_renewal);
    session.leave_broken(Duration::ZERO);
    drop(session);
    until(|| fake.count(ends) == 1).await;
    assert!(sent.after(SECOND) <= fake.sent(ends), "a renewal was still on its way");
}

/// An attach whose tenure has a newer attempt is made again, far ahead of it: the client that made the newer attempt
/// renews in the same rhythm, and none of its counts may equal one of this client. An attach that another client has
/// overtaken is refused.
#[tokio::test(start_paused = true)]
async fn an_attach_finds_out_who_overtook_it() {
    let fake = Fake::new();
    let mut copies = 0;
    fake.rule(move |asked| {
        let Some(newest) = attach_of(asked) else { return Reaction::Serve };
        copies += 1;
        if copies == 1 {
            Reaction::Outcome(Outcome::Refused(Refusal::StaleAttempt { newest }))
        } else {
            Reaction::Serve
        }
    });
    let TakenOver { resumed, .. } = taken(&fake).await.expect("taken");
    assert!(resumed);
    let numbers = attempts(&fake);
    assert!(numbers[0] + 1_000 < numbers[1], "{numbers:?}");
    fake.rule(|asked| {
        let Some(attempt) = attach_of(asked) else { return Reaction::Serve };
        let newest = attempt + (1 << ATTEMPTS_A_TENURE_BITS);
        Reaction::Outcome(Outcome::Refused(Refusal::StaleAttempt { newest }))
    });
    let refused = taken(&fake).await.err();
    assert!(matches!(refused, Some(ClientError::Refused(Refusal::StaleAttempt { .. }))), "{refused:?}");
}

/// An attach whose answer was lost is repeated with a larger number. The attachment before it is then its own, and no
/// other client had the session.
#[tokio::test(start_paused = true)]
async fn a_lost_answer_to_the_first_attach_is_no_other_client() {
    for (attachment, lost, expected) in [(1, false, false), (2, false, true), (2, true, false), (3, true, true)] {
        let fake = Fake::new();
        let (clocks, mut copies) = (fake.clone(), if lost { 0 } else { 2 });
        fake.rule(move |asked| {
            let Some(newest) = attach_of(asked) else { return Reaction::Serve };
            copies += 1;
            match copies {
                1 => Reaction::Fail(ServiceError::unknown("cut")),
                2 => Reaction::Outcome(Outcome::Refused(Refusal::StaleAttempt { newest })),
                _ => {
                    let deadline = clocks.stamp().after_ms(10_000);
                    Reaction::Outcome(Outcome::Attached { attachment: Attachment(attachment), deadline })
                }
            }
        });
        let TakenOver { resumed, .. } = taken(&fake).await.expect("taken");
        assert_eq!(resumed, expected, "attachment {attachment}, and a lost answer: {lost}");
    }
}
