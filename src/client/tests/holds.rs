//! The states that a guard reports, and how its permits are released.

use std::time::Duration;

use super::fake::{Asked, Fake, Reaction};
use super::time::until;
use crate::client::{ClientError, HoldState, Session};
use crate::clock::Clock;
use crate::limits::PERMITS_MAX;
use crate::model::{Alteration, Command, EndReason, Outcome, RenewalTarget};

const SECOND: Duration = Duration::from_secs(1);

async fn session(fake: &Fake) -> Session<Fake> {
    fake.client().session().ttl(60 * SECOND).open().await.expect("opened")
}

/// A hold whose lease renewal is overdue is unsure long before it is lost, although its session is renewed. It is sure
/// again after the next renewal.
#[tokio::test(start_paused = true)]
async fn an_overdue_lease_makes_a_hold_unsure() {
    let fake = Fake::new();
    let session = session(&fake).await;
    // The test begins at a moment when the session's last renewal is long ago, which must not affect a new lease.
    fake.answers(1).await;
    tokio::time::sleep(19 * SECOND).await;
    let guard = session.lock("a").lease(9 * SECOND).acquire().await.expect("free");
    let (watch, permit) = (guard.watch(), session.lock("b").lease(9 * SECOND).acquire().await.expect("free"));
    let permit = permit.into_permits().next().expect("one");
    let states = || [guard.state(), watch.state(), permit.state()];
    assert_eq!(states(), [HoldState::Held; 3]);
    fake.rule(|asked| {
        let of_hold = matches!(asked, Asked::Renew(renewal) if matches!(renewal.target, RenewalTarget::Hold { .. }));
        if of_hold { Reaction::Silence } else { Reaction::Serve }
    });
    until(|| states() == [HoldState::Unsure; 3]).await;
    assert!(!guard.valid_for().is_zero());
    assert_eq!(session.state(), HoldState::Held);
    fake.rule(|_| Reaction::Serve);
    until(|| states() == [HoldState::Held; 3]).await;
}

/// Returns how many permits each call releases, in order; `None` for the whole hold.
fn given_back(fake: &Fake) -> Vec<Option<u32>> {
    let given_back = fake.asked(|_| true).into_iter().filter_map(|(_, asked)| match asked {
        Asked::Submit(Command::Release(_)) => Some(None),
        Asked::Submit(Command::Alter(alter)) => match alter.what {
            Alteration::ReturnPermits { count, .. } => Some(Some(count)),
            Alteration::Downgrade { .. }
            | Alteration::Upgrade { .. }
            | Alteration::SetValue { .. }
            | Alteration::Resume { .. } => None,
        },
        Asked::Submit(_) | Asked::Renew(_) | Asked::Settled | Asked::Query(_) | Asked::Subscribe | Asked::Status => {
            None
        }
    });
    given_back.collect()
}

/// Two thousand million permits are created one at a time; dropping the iterator releases the remaining ones together.
#[tokio::test(start_paused = true)]
async fn permits_are_created_lazily() {
    let fake = Fake::new();
    fake.rule(|asked| match asked {
        Asked::Submit(Command::Alter(_)) => Reaction::Outcome(Outcome::Released { left: 1 }),
        Asked::Submit(_) | Asked::Renew(_) | Asked::Settled | Asked::Query(_) | Asked::Subscribe | Asked::Status => {
            Reaction::Serve
        }
    });
    let session = session(&fake).await;
    let acquire = || session.lock("s").permits(PERMITS_MAX, PERMITS_MAX).acquire();
    let mut permits = acquire().await.expect("free").into_permits();
    let (one, other) = (permits.next().expect("many"), permits.next().expect("many"));
    one.release().await.expect("released");
    drop(permits);
    until(|| given_back(&fake).len() == 2).await;
    assert_eq!(other.state(), HoldState::Held);
    drop(other);
    until(|| given_back(&fake).len() == 3).await;
    assert_eq!(given_back(&fake), [Some(1), Some(PERMITS_MAX - 2), Some(1)]);
    drop(acquire().await.expect("free").into_permits());
    until(|| given_back(&fake).len() == 4).await;
    assert_eq!(given_back(&fake)[3], None, "the whole hold");
}

/// A guard splits into all its permits, and each is released separately.
#[tokio::test(start_paused = true)]
async fn a_guard_splits_into_all_its_permits() {
    let fake = Fake::new();
    let session = session(&fake).await;
    let permits: Vec<_> = session.lock("s").permits(3, 3).acquire().await.expect("free").into_permits().collect();
    assert_eq!(permits.len(), 3);
    drop(permits);
    until(|| given_back(&fake).len() == 3).await;
    assert_eq!(given_back(&fake), [Some(1); 3]);
}

/// A hold with an at-most duration is valid no longer than that, although its session is renewed, and its guard reports
/// the loss before the cluster may grant the lock to another client.
#[tokio::test(start_paused = true)]
async fn n_atm_07_at_most_bounds_the_validity_of_a_guard() {
    let fake = Fake::new();
    let session = session(&fake).await;
    let length = 30 * SECOND;
    let guard = session.lock("a").at_most(length).acquire().await.expect("free");
    let leased = session.lock("b").lease(9 * SECOND).at_most(length).acquire().await.expect("free");
    let granted = tokio::time::Instant::now();
    assert!(guard.valid_for() <= length && length / 2 < guard.valid_for(), "{:?}", guard.valid_for());
    assert!(leased.valid_for() <= 9 * SECOND, "the earlier end counts: {:?}", leased.valid_for());
    let lost = guard.lost().await;
    assert!(granted.elapsed() < length, "{:?} after the grant", granted.elapsed());
    assert_eq!((lost.alone, lost.reason), (true, Some(EndReason::TimeOver)));
    assert_eq!((guard.valid_for(), guard.state()), (Duration::ZERO, HoldState::Lost));
    assert_eq!(leased.lost().await.reason, Some(EndReason::TimeOver), "no renewal of the lease moves it");
    assert_eq!(session.state(), HoldState::Held);
}

/// Each renewal of the session relates the client's clock and log time again, so the margin for the drift of clocks
/// does not grow with the length of at-most.
#[tokio::test(start_paused = true)]
async fn the_margin_of_at_most_does_not_grow_with_its_length() {
    let fake = Fake::new();
    let session = session(&fake).await;
    let hour = 3_600 * SECOND;
    let guard = session.lock("a").at_most(hour).acquire().await.expect("free");
    let granted = fake.clock.now();
    guard.lost().await;
    let lasted = fake.clock.now().since(granted);
    assert!(hour - SECOND < lasted && lasted < hour, "{lasted:?}");
}

/// Options that every cluster refuses are refused before they are sent: a duration of zero or of more than a day, and
/// at-least for a shared lock.
#[tokio::test(start_paused = true)]
async fn n_atl_12_bounds_are_known_to_the_client() {
    let fake = Fake::new();
    let session = session(&fake).await;
    let day = 24 * 60 * 60 * SECOND;
    let refused = [
        session.lock("a").at_least(Duration::ZERO).acquire().await,
        session.lock("a").at_least(day + SECOND).acquire().await,
        session.lock("a").shared().at_least(SECOND).acquire().await,
        session.lock("a").at_most(Duration::ZERO).acquire().await,
        session.lock("a").at_most(day + SECOND).acquire().await,
    ];
    let fields = refused.map(|refused| {
        let Err(ClientError::Invalid(invalid)) = refused else { panic!("{refused:?}") };
        invalid.field.to_string()
    });
    assert_eq!(fields, ["at_least", "at_least", "at_least", "at_most", "at_most"]);
}
