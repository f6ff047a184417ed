//! Secrets: a handle proves a session or a lease, and is not part of any answer or event.

use std::collections::BTreeSet;

use super::mirror::Watched;
use super::random::Scenario;
use crate::codec::{Kind, encode_entry, encode_message};
use crate::machine::Machine;
use crate::model::*;

const SCENARIOS: u64 = 8;
const ENTRIES_A_SCENARIO: usize = 400;
/// Number of entries between two rounds of queries.
const ASKED_EVERY: usize = 20;
/// The handles of a scenario differ in their last digits only. No other text in it has this many zeros.
const SECRET: &str = "0000000000000000000000000000";

fn reveals(bytes: &[u8]) -> bool {
    bytes.windows(SECRET.len()).any(|part| part == SECRET.as_bytes())
}

/// Every query that this machine can answer.
fn questions(machine: &Machine) -> Vec<Query> {
    let namespaces: BTreeSet<Namespace> = machine.state.index.usage.keys().cloned().collect();
    let mut queries = vec![Query::Totals];
    for namespace in namespaces {
        let (rows, of) = (u32::MAX, || namespace.clone());
        let (prefix, show) = (String::new(), ListShow::All);
        queries.extend([
            Query::List(ListFilter { namespace: of(), prefix, show, older_than_ms: 0, after: None, rows }),
            Query::Sessions { namespace: of(), after: None, rows },
            Query::History { namespace: of(), lock: None, after: None, rows },
            Query::Documents { namespace: of(), which: WhichDocuments::After(None), rows },
            Query::Pings { namespace: of(), which: WhichPings::After(None), rows },
        ]);
    }
    for (key, lock) in &machine.state.locks {
        queries.push(Query::Inspect { lock: key.clone() });
        queries.push(Query::Holders { lock: key.clone() });
        queries.push(Query::Explain(About::Lock(key.clone())));
        queries.push(Query::Tokens { lock: key.clone() });
        queries.extend(lock.holders.keys().map(|token| Query::Check { lock: key.clone(), token: *token }));
        queries.extend(lock.holders.keys().map(|token| Query::WouldBreak { lock: key.clone(), token: *token }));
        let claims = lock
            .holders
            .values()
            .map(|holder| holder.request.claim)
            .chain(lock.queue.values().map(|own| own.request.claim));
        queries.extend(claims.map(|claim| Query::Claim { lock: Some(key.clone()), claim }));
    }
    queries.extend(machine.state.sessions.keys().map(|session| Query::Explain(About::Session(*session))));
    queries
}

/// Stored records and queries contain handles; answers, events and printed values contain none.
#[test]
fn handles_are_never_returned() {
    let (mut asked, mut stored, mut answers) = (0, 0, 0);
    for seed in 0..SCENARIOS {
        let (mut scenario, mut watched) = (Scenario::new(seed), Watched::default());
        for at in 0..ENTRIES_A_SCENARIO {
            let entry = scenario.entry(watched.machine.next_deadline());
            asked += usize::from(reveals(&encode_entry(&entry)));
            assert!(!reveals(format!("{entry:?}").as_bytes()), "printed in full: scenario {seed}, entry {at}");
            let applied = watched.apply(&entry);
            scenario.learn(&entry, &applied);
            let reported = (&applied.renewals, &applied.commands, &*applied.events);
            assert!(!reveals(&encode_message(Kind::Answer, &reported)), "scenario {seed}, entry {at}: {applied:#?}");
            assert!(!reveals(format!("{applied:?}").as_bytes()), "scenario {seed}, entry {at}");
            if at % ASKED_EVERY != 0 {
                continue;
            }
            for question in questions(&watched.machine) {
                let answer = watched.machine.query(&question);
                answers += 1;
                assert!(!reveals(&encode_message(Kind::Answer, &answer)), "scenario {seed}, entry {at}: {question:?}");
            }
            let records = watched.machine.state().records();
            stored += records.filter(|(_, record)| reveals(&encode_message(Kind::Record, record))).count();
        }
    }
    assert!(100 <= asked && 100 <= stored && 1_000 <= answers, "{asked}, {stored}, {answers}: no secrets to look for");
}
