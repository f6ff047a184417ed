//! Fields of the unary calls that only one kind of holder has, and the calls that are named after queries.

use lockkeeper::rpc::pb;
use lockkeeper::rpc::pb::query_request::Query;

use super::calls::{
    Holder, acquired, code_and_advice, in_use, key, lease, locks, named, opened, release_of, released, wanted,
};

/// A field that only a session or only a lease has is refused by its name in a request of the other kind, and the
/// request changes nothing. A request without a holder, or with another namespace than its session's, is refused as
/// well.
#[tokio::test]
async fn a_field_of_the_other_kind_of_holder_is_refused() {
    let mut locks = locks(2).await;
    let session = Holder::Session(opened(&locks).await);
    let of_session = || wanted("misplaced", &session, Some(0));
    let of_lease = || wanted("misplaced", &lease("misplaced"), Some(0));
    let acquires = [
        ("holder", pb::AcquireRequest { holder: None, ..of_lease() }),
        ("owner", pb::AcquireRequest { owner: Some("thread-1".to_owned()), ..of_lease() }),
        ("extras", pb::AcquireRequest { extras: Some(pb::Extras::default()), ..of_lease() }),
        ("age_ms", pb::AcquireRequest { age_ms: 1, ..of_session() }),
        ("since_ms", pb::AcquireRequest { since_ms: Some(1), ..of_session() }),
        ("namespace", pb::AcquireRequest { namespace: "billing".to_owned(), ..of_session() }),
        ("request", named(of_session(), "first")),
        ("request", named(of_session(), "0")),
        ("request", named(of_lease(), "first")),
    ];
    for (field, asked) in acquires {
        let status = locks.acquire(asked).await.expect_err(field);
        assert_eq!(code_and_advice(&status), ("invalid", "give_up"), "{field}: {status:?}");
        assert!(status.message().starts_with(&format!("{field}: ")), "{status:?}");
    }
    let released = |holder| release_of("misplaced", holder, 7);
    let releases = [
        ("holder", pb::ReleaseRequest { holder: None, ..released(&session) }),
        ("token", pb::ReleaseRequest { token: 7, ..released(&lease("misplaced")) }),
        ("request", pb::ReleaseRequest { request: "1".to_owned(), ..released(&lease("misplaced")) }),
        ("age_ms", pb::ReleaseRequest { age_ms: 1, ..released(&session) }),
        ("since_ms", pb::ReleaseRequest { since_ms: Some(1), ..released(&session) }),
        ("namespace", pb::ReleaseRequest { namespace: "billing".to_owned(), ..released(&session) }),
    ];
    for (field, asked) in releases {
        let status = locks.release(asked).await.expect_err(field);
        assert!(status.message().starts_with(&format!("{field}: ")), "{status:?}");
    }
    in_use(&locks, "misplaced", 0, 0).await;
}

/// N-CAC-39: A program that uses the unary calls requests a cached hold and learns of its recall with the next renewal.
#[tokio::test]
async fn n_cac_39_a_recall_is_in_the_answer_to_a_renewal() {
    let mut locks = locks(2).await;
    let [caching, other] = [opened(&locks).await, opened(&locks).await];
    let (proof, caching) = (caching.clone(), Holder::Session(caching));
    let extras = Some(pb::Extras { cached: true, ..Default::default() });
    let held = acquired(&locks, pb::AcquireRequest { extras, ..wanted("kept", &caching, None) }).await.expect("free");
    assert!(held.recalled.is_empty(), "{held:?}");
    let kept = pb::KeepAliveRequest { session: Some(proof), attempt: 0 };
    let alive = locks.keep_alive(kept.clone()).await.expect("alive").into_inner();
    assert!(alive.recalled.is_empty(), "{alive:?}");
    let next = tokio::spawn({
        let (locks, asked) = (locks.clone(), wanted("kept", &Holder::Session(other), None));
        async move { acquired(&locks, asked).await }
    });
    in_use(&locks, "kept", 1, 1).await;
    let alive = locks.keep_alive(kept).await.expect("alive").into_inner();
    assert_eq!(alive.recalled, [held.token]);
    let another = acquired(&locks, wanted("another", &caching, None)).await.expect("free");
    assert_eq!(another.recalled, [held.token]);
    assert_eq!(released(&locks, "kept", &caching, held.token).await.expect("released"), 0);
    assert!(held.token < next.await.expect("no panic").expect("granted").token);
}

/// The calls that are named after queries return the same answers as `Query`.
#[tokio::test]
async fn each_query_has_its_own_call() {
    let mut locks = locks(1).await;
    let session = Holder::Session(opened(&locks).await);
    let held = acquired(&locks, wanted("named/question", &session, None)).await.expect("free");
    let token = pb::TokenOf { lock: Some(key("named/question")), token: held.token };
    let filter = pb::ListFilter { prefix: "named/".to_owned(), ..Default::default() };
    let about = pb::About { about: Some(pb::about::About::Lock(key("named/question"))) };
    let pairs = [
        (locks.check(token.clone()).await, Query::Check(token)),
        (locks.inspect(key("named/question")).await, Query::Inspect(key("named/question"))),
        (locks.list(filter.clone()).await, Query::List(filter)),
        (locks.explain(about.clone()).await, Query::Explain(about)),
    ];
    for (answer, query) in pairs {
        let answer = answer.expect("answered").into_inner().answer;
        let asked = pb::QueryRequest { query: Some(query), ..Default::default() };
        assert_eq!(answer, locks.query(asked).await.expect("answered").into_inner().answer);
        assert!(answer.is_some());
    }
    released(&locks, "named/question", &session, held.token).await.expect("released");
}
