//! Fields of one type are not exchanged. A round trip cannot show this, because both directions use the same row.

use super::*;
use crate::model::{Kind, LockSummary};

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

    /// The options of an acquire have the same names in the message.
    #[test]
    fn options_keep_their_names(extras in extras()) {
        let sent: pb::Extras = extras.to_wire();
        let durations = (extras.delay_ms, extras.at_least_ms, extras.at_most_ms);
        prop_assert_eq!((sent.delay_ms, sent.at_least_ms, sent.at_most_ms), durations);
    }

    /// The counts of a lock have the same names in the message.
    #[test]
    fn counts_keep_their_names(lock in lock(), holders in any::<u64>(), waiters in any::<u64>()) {
        let (kind, limit, oldest, delay_ms, value) = (Kind::Lock, None, None, None, None);
        let summary = LockSummary { lock, kind, limit, holders, waiters, oldest, delay_ms, value };
        let sent: pb::LockSummary = summary.to_wire();
        prop_assert_eq!((sent.holders, sent.waiters), (holders, waiters));
    }
}
