//! Whether a call that failed may have had an effect: a read never, a command if any of its attempts was not answered.

use super::fake::{Asked, Fake, Reaction};
use crate::client::ClientError;
use crate::model::{Command, Outcome, Setting};
use crate::service::{Advice, NotSent, ServiceError};

fn is_change(asked: &Asked) -> bool {
    matches!(asked, Asked::Submit(Command::ChangeSetting(_)))
}

/// Changes a setting of a service whose attempts fail with these errors, one after the other, and then succeed.
async fn changed(errors: impl IntoIterator<Item = ServiceError>) -> Result<(), ServiceError> {
    let (fake, mut errors) = (Fake::new(), errors.into_iter().collect::<Vec<_>>().into_iter());
    fake.rule(move |asked| match errors.next() {
        Some(error) if is_change(asked) => Reaction::Fail(error),
        Some(_) | None => Reaction::Outcome(Outcome::Done),
    });
    match fake.client().change_setting(Setting::TtlMax(60_000)).await {
        Err(ClientError::Service(error)) => Err(error),
        other => other.map_err(|error| panic!("{error}")),
    }
}

/// An attempt without an answer may have made the change, also if a later attempt is refused: the token may have
/// been revoked in between. An attempt that was not sent leaves no doubt.
#[tokio::test(start_paused = true)]
async fn a_later_error_does_not_end_the_doubt() {
    let revoked = || ServiceError::Unauthenticated { why: "the token is not known".to_owned() };
    let lost = || ServiceError::unknown("the leader changed");
    let not_sent = || ServiceError::not_sent(NotSent::NoLeader);
    assert_eq!(changed([lost(), not_sent()]).await, Ok(()));
    assert_eq!(changed([revoked()]).await, Err(revoked()));
    assert_eq!(changed([not_sent(), revoked()]).await, Err(revoked()));
    for last in [revoked(), ServiceError::Forbidden { why: "it may only read".to_owned() }] {
        let error = changed([lost(), not_sent(), last.clone()]).await.expect_err("refused");
        let ServiceError::Unknown { why, .. } = &error else { panic!("{error:?}") };
        assert!(why.ends_with(&last.to_string()), "{why}");
    }
    let outage = std::iter::once(lost()).chain(std::iter::repeat_with(not_sent).take(1_000));
    assert_eq!(changed(outage).await.expect_err("no leader").advice(), Advice::Ask);
    let outage = std::iter::repeat_with(not_sent).take(1_000);
    assert_eq!(changed(outage).await, Err(not_sent()));
}

/// A read that no node answers in time had no effect, so its error advises a retry. A command is in doubt then.
#[tokio::test(start_paused = true)]
async fn a_read_is_never_in_doubt() {
    let fake = Fake::new();
    fake.rule(|_| Reaction::Silence);
    let advice = |error: ClientError| error.advice();
    let client = fake.client();
    assert_eq!(client.totals().await.map(drop).map_err(advice), Err(Advice::Retry));
    assert_eq!(client.status().await.map(drop).map_err(advice), Err(Advice::Retry));
    assert_eq!(client.change_setting(Setting::TtlMax(60_000)).await.map_err(advice), Err(Advice::Ask));
}
