//! Rates of principals: only the one that sends too much is refused, and what it has is given back and renewed.

use futures_util::future::join_all;
use lockkeeper::model::{
    Command, Handle, LeaseRequestId, Metadata, Mode, Outcome, Patience, RenewalTarget, SessionClose, SessionId,
    TakeLease,
};
use lockkeeper::node::Node;
use lockkeeper::service::{Call, LockService, NotSent, Proof, RenewalCall, ServiceError};

use super::{Guarded, key, named, namespace, open, rules_with, sent, submit};

/// The rules with these rates of the principal `lock-all`.
fn rules(rates: &str) -> String {
    let entry = "name = \"lock-all\"\nroles = [\"lock-all\"]\n";
    rules_with("").replace(entry, &format!("{entry}{rates}"))
}

fn take(number: u128) -> Call {
    Call::new(Command::TakeLease(TakeLease {
        lock: key("a/shared"),
        take: LeaseRequestId(number),
        handle: Handle::from_random(number),
        access: Mode::Shared.into(),
        lease_ms: 60_000,
        patience: Patience::Try,
        metadata: Metadata::default(),
        claim_ms: None,
    }))
}

fn is_limited<T>(answered: &Result<T, ServiceError>, limit: &str) -> bool {
    let Err(error @ ServiceError::NotSent { why: NotSent::LimitReached { .. }, .. }) = answered else { return false };
    let expected = format!("principal \"lock-all\" may send {limit} a second; try again in ");
    0 < error.pause_ms() && error.to_string().contains(&expected)
}

async fn renewed(node: &Node, session: SessionId, handle: &Handle) -> Result<(), ServiceError> {
    let proof = Proof::Handle { handle: handle.clone(), namespace: namespace() };
    let target = RenewalTarget::Session(session);
    node.renew(vec![RenewalCall { target, proof, attempt: 1 }]).await.map(drop)
}

/// Takes a hundred leases at once, with numbers from this one on.
async fn flood(node: &Node, principal: &str, from: u128) -> Vec<Result<(), ServiceError>> {
    let node = &named(node, principal);
    join_all((from..from + 100).map(|number| async move { sent(|| node.submit(take(number))).await.map(drop) })).await
}

/// A principal that sends ten times its rate is refused with the rate and a pause. Another principal is not refused.
/// The first one renews its session and closes it meanwhile. Renewals have a separate rate, and a reload changes both.
#[tokio::test]
async fn a_principal_at_its_rate_slows_no_other() {
    let guarded = Guarded::start(1).await;
    let leader = guarded.cluster.leader().await;
    let node = named(&leader, "lock-all");
    let (session, handle) = open(&node, 7).await;
    let renew = || sent(|| renewed(&node, session, &handle));
    guarded.reload(&rules("commands_a_second = 10\n"));
    let begun = std::time::Instant::now();
    let answers = flood(&leader, "lock-all", 0).await;
    assert!(answers.iter().all(|answer| answer.is_ok() || is_limited(answer, "10 commands")), "{answers:?}");
    let served = answers.iter().filter(|answer| answer.is_ok()).count();
    let most = 10 * (2 + begun.elapsed().as_millis() / 1_000);
    assert!(served < 100 && served as u128 <= most, "{served} of 100 were served, and not {most}");
    for answer in flood(&leader, "other", 100).await {
        answer.expect("another principal");
    }
    join_all((0..5).map(|_| renew())).await.into_iter().for_each(|renewal| renewal.expect("renewals have no rate"));

    guarded.reload(&rules("commands_a_second = 10\nrenewals_a_second = 1\n"));
    let renewals = join_all((0..20).map(|_| renew())).await;
    assert!(renewals.iter().any(|renewal| is_limited(renewal, "1 renewals")), "{renewals:?}");
    assert!(renewals[0].is_ok(), "{renewals:?}");
    guarded.reload(&rules(""));
    for answer in flood(&leader, "lock-all", 1_000).await {
        answer.expect("no rate any more");
    }
    guarded.reload(&rules("commands_a_second = 1\n"));
    let answers = flood(&leader, "lock-all", 2_000).await;
    assert!(answers.iter().any(|answer| is_limited(answer, "1 commands")), "{answers:?}");
    let closed = submit(&node, &handle, Command::CloseSession { session, end: SessionClose::Done }).await;
    assert!(matches!(closed, Ok(Outcome::Closed)), "giving back is never refused: {closed:?}");
}

/// The leader counts the commands that a follower forwards, for the principal that the follower names.
#[tokio::test]
async fn a_rate_applies_through_a_follower() {
    let guarded = Guarded::start(3).await;
    let follower = guarded.cluster.follower().await;
    guarded.reload(&rules("commands_a_second = 10\n"));
    let mut number = 0;
    while !flood(&follower, "lock-all", number).await.iter().any(|answer| is_limited(answer, "10 commands")) {
        number += 100;
    }
    for answer in flood(&follower, "other", 1_000_000).await {
        answer.expect("another principal");
    }
}
