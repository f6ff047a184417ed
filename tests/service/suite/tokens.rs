//! Token filters of a resource, and the history of grants.

use lockkeeper::history::verify;
use lockkeeper::model::{EventKind, TokenVerdict};
use lockkeeper::service::LockService;

use super::client;

/// A filter follows one lock. A token is valid while its lock is held and stale afterwards, and is never reported as
/// valid once its end was seen.
pub(crate) async fn a_filter_follows_the_valid_tokens<S: LockService>(service: S) {
    let client = client(service, "filter");
    let mut filter = client.tokens("a").await.expect("followed");
    assert!(filter.valid().tokens.is_empty());
    let floor = filter.valid().floor();
    let guard = client.lock("a").acquire().await.expect("free");
    let first = guard.token();
    assert!(floor <= first, "a free name's floor is at most the next token");
    filter.wait_for(|valid| valid.judge(first) == TokenVerdict::Valid).await.expect("seen");
    assert!(filter.check(first).await.expect("asked"));
    guard.release().await.expect("released");
    let second = client.lock("a").acquire().await.expect("free");
    filter.wait_for(|valid| valid.judge(second.token()) == TokenVerdict::Valid).await.expect("seen");
    assert_eq!((filter.judge(first), filter.valid().floor()), (TokenVerdict::Stale, second.token()));
    assert!(!filter.check(first).await.expect("known without a query"));
    assert_eq!(client.tokens("a").await.expect("followed").judge(first), TokenVerdict::Stale);
}

/// The tokens of several shared holders are valid at the same time, in any order. Tokens of another lock do not matter.
pub(crate) async fn a_filter_knows_every_shared_holder<S: LockService>(service: S) {
    let client = client(service, "filter-shared");
    let one = client.session().open().await.expect("opened").lock("a").shared().acquire().await.expect("free");
    let other = client.session().open().await.expect("opened").lock("a").shared().acquire().await.expect("shared");
    let _elsewhere = client.lock("ab").acquire().await.expect("free");
    let mut filter = client.tokens("a").await.expect("followed");
    assert_eq!(filter.valid().tokens, [one.token(), other.token()].into());
    let released = one.token();
    one.release().await.expect("released");
    let valid = filter.wait_for(|valid| valid.judge(released) == TokenVerdict::Stale).await.expect("seen");
    assert_eq!((valid.tokens.clone(), valid.floor()), ([other.token()].into(), other.token()));
}

/// The history of a lock can be read page by page from any position, and verified.
pub(crate) async fn history_is_kept_and_verifies<S: LockService>(service: S) {
    let client = client(service, "history");
    for name in ["a", "b", "a"] {
        let request = client.lock(name).why("to be remembered");
        request.acquire().await.expect("free").release().await.expect("released");
    }
    let all = client.history(None, None).expect("a name").all().await.expect("read");
    let words: Vec<_> = all.iter().map(|record| record.event.kind.word()).collect();
    assert_eq!(words, ["granted", "released", "granted", "released", "granted", "released"]);
    assert_eq!(all[0].grant.as_ref().map(|grant| &*grant.why), Some("to be remembered"));
    assert_eq!(verify(&all).map(|proof| (proof.records, proof.locks, proof.grants)), Ok((6, 2, 3)));
    let alone = client.history(Some("a"), None).expect("a name").all().await.expect("read");
    assert!(verify(&alone).is_ok() && alone.len() == 4);
    let from = alone[1].event.position;
    let rest = client.history(Some("a"), Some(from)).expect("a name").all().await.expect("read");
    assert_eq!(rest, alone[2..]);
    assert!(matches!(rest[0].event.kind, EventKind::Granted { .. }));
}
