//! Pages of history.

use proptest::prelude::*;

use super::*;

/// Records of any kind: the wire does not judge whether they make a history.
pub(super) fn page() -> impl Strategy<Value = HistoryPage> {
    let position = || any::<(u64, u32)>().prop_map(|(index, n)| Position { index, n });
    let records =
        some_of((happening(), option::of(access()), option::of(facts()), any::<[u64; 2]>(), any::<[u128; 3]>()));
    (records, option::of(position()), position()).prop_map(|(records, next, floor)| {
        let record = |((subject, kind), access, grant, [at, wall], hashes): (
            (Subject, _),
            Option<Access>,
            _,
            [u64; 2],
            [u128; 3],
        )| {
            let [previous, before, hash] = hashes.map(|hash| ChainHash(hash.to_be_bytes()));
            let namespace = subject.lock().map(|lock| lock.namespace.clone());
            let position = Position { index: at, n: 3 };
            let event = Event { position, at: LogTime(at), wall: WallTime(wall), namespace, subject, kind };
            let (mode, limit) = (access.map(|access| access.mode), access.and_then(|access| access.limit));
            HistoryRecord { event, mode, limit, grant, previous, before, hash }
        };
        HistoryPage { records: records.into_iter().map(record).collect(), next, floor }
    })
}

fn facts() -> impl Strategy<Value = GrantFacts> {
    (any::<u64>(), any::<[bool; 4]>(), owner(), "[a-z]{1,20}", "[a-zé]{0,9}").prop_map(
        |(sequence, [queued, barging, set, passing], owner, principal, text)| GrantFacts {
            arrival: Arrival { sequence, queued },
            fairness: if barging { Fairness::Barging } else { Fairness::Fair },
            set,
            passing,
            owner,
            principal: Principal::parse(&principal).expect("legal"),
            who: text.clone().into(),
            why: text.into(),
        },
    )
}
