//! Documents are unchanged after a round trip.

use proptest::option;
use proptest::prelude::*;

use super::super::Question;
use super::values::{lock, metadata, token};
use crate::model::{
    Command, Document, DocumentCommand, DocumentId, DocumentState, Grab, Handle, LockKey, LockValue, LogTime,
    Namespace, ProcessId, ProcessPing, Query, WallTime, WhichDocuments, WhichPings,
};
use crate::rpc::pb;
use crate::service::{Call, Freshness};

fn ts() -> impl Strategy<Value = DocumentId> {
    any::<[u8; 12]>().prop_map(DocumentId)
}

fn text() -> impl Strategy<Value = std::sync::Arc<str>> {
    "[a-zé:]{0,40}".prop_map(Into::into)
}

fn process() -> impl Strategy<Value = ProcessId> {
    "[a-z:0-9]{1,255}".prop_map(|text| ProcessId::parse(&text).expect("legal"))
}

pub(super) fn document() -> impl Strategy<Value = Document> {
    let state = prop_oneof![Just(DocumentState::Free), Just(DocumentState::Held), Just(DocumentState::Prepared)];
    ((lock(), state, ts(), token()), (text(), text(), text()), any::<u64>(), option::of(any::<u64>()), any::<bool>())
        .prop_map(|((lock, state, ts, token), (process, who, why), when, term, native)| Document {
            lock: LockKey { namespace: Namespace::parse("team-a").expect("legal"), name: lock.name },
            state,
            ts,
            process,
            who,
            why,
            when: WallTime(when),
            term,
            token,
            native,
        })
}

pub(super) fn ping() -> impl Strategy<Value = ProcessPing> {
    (text(), any::<u64>()).prop_map(|(process, ping)| ProcessPing { process, ping: WallTime(ping) })
}

fn command() -> impl Strategy<Value = DocumentCommand> {
    let grab = || {
        (lock(), ts(), metadata(), option::of(any::<u64>()), any::<bool>(), option::of(ts()))
            .prop_map(|(lock, ts, metadata, term, prepare, seen)| Grab { lock, ts, metadata, term, prepare, seen })
    };
    let value = || option::of("[a-z]{0,9}".prop_map(|text| LockValue::parse(&text).expect("legal")));
    let handle = "[a-z]{1,128}".prop_map(|text| Handle::parse(&text).expect("legal"));
    prop_oneof![
        grab().prop_map(DocumentCommand::Grab),
        (lock(), ts(), any::<bool>()).prop_map(|(LockKey { namespace, name }, ts, named)| {
            DocumentCommand::Unlock { namespace, ts, name: Some(name).filter(|_| named) }
        }),
        (lock(), process(), option::of(any::<u64>())).prop_map(|(lock, process, term)| {
            DocumentCommand::UnlockAll { namespace: lock.namespace, process, term }
        }),
        (lock(), process()).prop_map(|(lock, process)| DocumentCommand::Ping { namespace: lock.namespace, process }),
        (lock(), process())
            .prop_map(|(lock, process)| DocumentCommand::StopPing { namespace: lock.namespace, process }),
        (lock(), token(), any::<u64>()).prop_map(|(lock, token, at)| DocumentCommand::RemoveExpired {
            lock,
            token,
            deadline: LogTime(at)
        }),
        (lock(), handle, value(), value()).prop_map(|(lock, handle, seen, value)| DocumentCommand::SwapValue {
            lock,
            handle,
            seen,
            value
        }),
        (lock(), ts()).prop_map(|(lock, ts)| DocumentCommand::Confirm { lock, ts }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(128) })]

    /// A change of a document arrives unchanged.
    #[test]
    fn changes_of_documents_read_back(command in command(), age_ms in any::<u64>(), since in option::of(any::<u64>())) {
        let since = since.map(LogTime);
        let call = Call { age_ms, since, ..Call::new(Command::Document(command)) };
        super::reads_back(call)?;
    }

    /// A query arrives unchanged. No process has an empty name: "after" the empty name means from the first one.
    #[test]
    fn questions_for_documents_read_back(lock in lock(), ts in ts(), process in "[a-zé:]{1,40}".prop_map(std::sync::Arc::<str>::from), rows in 1..=1000_u32) {
        let LockKey { namespace, name } = lock;
        for which in [
            WhichDocuments::Named(name.clone()),
            WhichDocuments::Stamped(ts),
            WhichDocuments::After(Some(name)),
            WhichDocuments::After(None),
        ] {
            let query = Query::Documents { namespace: namespace.clone(), which, rows };
            let question = Question { query, freshness: Freshness::Stale };
            prop_assert_eq!(super::over::<Question, pb::QueryRequest>(&question), Ok(question));
        }
        for which in [WhichPings::Of(process.clone()), WhichPings::After(Some(process)), WhichPings::After(None)] {
            let query = Query::Pings { namespace: namespace.clone(), which, rows };
            let question = Question { query, freshness: Freshness::Stale };
            prop_assert_eq!(super::over::<Question, pb::QueryRequest>(&question), Ok(question));
        }
    }
}
