//! Queries of listings: a query shows the part after the last one, and looks at a limited number of items.

use std::sync::Arc;

use super::costs::{acquire, apply};
use super::cycles::open;
use super::mirror::entry;
use super::work::{MANY, name, open_elsewhere, opened, take};
use crate::limits;
use crate::machine::Machine;
use crate::model::*;
use crate::state::count_of;

/// More locks or sessions than two queries look at.
const LONG: u64 = 2 * limits::LISTED_MAX as u64 + 500;

fn all() -> ListFilter {
    ListFilter {
        namespace: Namespace::default(),
        prefix: String::new(),
        show: ListShow::All,
        older_than_ms: 0,
        after: None,
        rows: 0,
    }
}

/// Returns the answer, and how many items the query looked at.
fn locks(machine: &Machine, filter: ListFilter) -> (Part<LockSummary, LockName>, usize) {
    let (reply, count) = count_of(|| machine.query(&Query::List(filter)));
    let QueryResult::Locks(part) = reply.answer else { panic!("another answer") };
    (part, count)
}

/// Returns all rows of a listing. No query of it looks at more than its bound, and one item to see that there is more.
fn in_parts<T, C: Clone>(mut query: impl FnMut(Option<C>) -> (Part<T, C>, usize)) -> (Vec<T>, usize) {
    let (mut rows, mut after, mut queries) = (Vec::new(), None, 0);
    loop {
        let (part, count) = query(after);
        assert!(count <= limits::LISTED_MAX + 1, "{count} were looked at");
        queries += 1;
        rows.extend(part.rows);
        if part.next.is_none() {
            return (rows, queries);
        }
        after = part.next;
    }
}

/// A page of a listing begins where the last page ended, and does not look at other namespaces.
#[test]
fn a_page_begins_where_the_last_one_ended() {
    let mut machine = opened(2);
    (3..=4).for_each(|session| drop(apply(&mut machine, open_elsewhere(session))));
    for number in 1..=MANY {
        apply(&mut machine, acquire(1, number, &format!("lock-{number:05}"), None));
        apply(&mut machine, acquire(3, number, &format!("lock-{number:05}"), None));
    }
    for namespace in ["default", "elsewhere"] {
        let namespace = Namespace::parse(namespace).expect("legal");
        let page = |prefix: &str, after: Option<&str>, rows| {
            let (prefix, after) = (prefix.to_owned(), after.map(name));
            let (part, count) =
                locks(&machine, ListFilter { namespace: namespace.clone(), prefix, after, rows, ..all() });
            assert!(part.rows.iter().all(|row| row.lock.namespace == namespace && row.oldest.is_some()));
            let rows = part.rows.into_iter().map(|row| row.lock.name.as_str().to_owned()).collect::<Vec<_>>();
            (rows, part.next.is_some(), count)
        };
        let names = |from: u64, to: u64| (from..=to).map(|number| format!("lock-{number:05}")).collect::<Vec<_>>();
        let (rows, more, count) = page("", Some("lock-00390"), 5);
        assert_eq!((rows, more), (names(391, 395), true));
        assert!(count < 10, "{count} locks were looked at for a page of five");
        let (rows, more, count) = page("lock-0039", Some("lock-00001"), 100);
        assert_eq!((rows, more), (names(390, 399), false));
        assert!(count < 15, "{count} locks were looked at for the ten with that prefix");
        assert_eq!(page("lock-0039", Some("lock-00400"), 100).0, names(1, 0), "nothing comes after");
        assert_eq!(page("\n", None, 100).0, names(1, 0), "no lock has such a name");
    }
}

/// A query of a listing looks at a limited number of locks, however few of them it shows. Its answer names the lock
/// after which the next query continues, and all queries together show every lock.
#[test]
fn few_of_many_locks_are_listed_in_parts() {
    let mut machine = opened(2);
    (1..=LONG).for_each(|number| drop(apply(&mut machine, take(number, &format!("lock-{number:05}"), 60_000))));
    let last = format!("lock-{LONG:05}");
    apply(&mut machine, acquire(1, 1, &last, None));
    let waiting = ListFilter { show: ListShow::Waiting, ..all() };
    let (rows, queries) = in_parts(|after| locks(&machine, ListFilter { after, ..waiting.clone() }));
    let names: Vec<_> = rows.iter().map(|row| row.lock.name.as_str()).collect();
    assert_eq!((names, queries), (vec![&*last], 3));
    let (rows, _) = in_parts(|after| locks(&machine, ListFilter { after, ..all() }));
    assert!(rows.iter().map(|row| &row.lock.name).is_sorted());
    assert_eq!(rows.len() as u64, LONG);
}

/// A query for the holders of a lock looks at no waiter, of which there may be thousands. Otherwise its answer is that
/// of an inspection.
#[test]
fn the_holders_of_a_lock_are_found_without_its_waiters() {
    let mut machine = opened(MANY);
    (1..=MANY).for_each(|session| drop(apply(&mut machine, acquire(session, 1, "hot", None))));
    for lock in ["hot", "never"] {
        let lock = LockKey { namespace: Namespace::default(), name: name(lock) };
        let view = |query: Query| {
            let (reply, count) = count_of(|| machine.query(&query));
            let QueryResult::Lock(view) = reply.answer else { panic!("another answer") };
            (view, count)
        };
        let (whole, walked) = view(Query::Inspect { lock: lock.clone() });
        assert_eq!(walked, whole.waiters.len());
        let expected = LockView { waiters: vec![], ..whole };
        assert_eq!(view(Query::Holders { lock }), (expected, 0));
    }
}

/// A query of the sessions of one namespace looks at no other sessions. Its answer names only sessions of this
/// namespace, because the caller may have no right in another.
#[test]
fn sessions_of_other_namespaces_are_not_looked_at() {
    let mut machine = opened(LONG - 1);
    apply(&mut machine, open_elsewhere(LONG));
    apply(&mut machine, open(LONG + 1));
    let sessions = |namespace: &str| {
        let namespace = Namespace::parse(namespace).expect("legal");
        in_parts(|after| {
            let (reply, count) =
                count_of(|| machine.query(&Query::Sessions { namespace: namespace.clone(), after, rows: 0 }));
            let QueryResult::Sessions(part) = reply.answer else { panic!("another answer") };
            (part, count)
        })
    };
    let ids = |rows: Vec<SessionView>| rows.into_iter().map(|row| row.session).collect::<Vec<_>>();
    let (rows, queries) = sessions("elsewhere");
    assert_eq!((ids(rows), queries), (vec![SessionId::new(0, LONG)], 1));
    let of_default: Vec<_> = (1..LONG).chain([LONG + 1]).map(|number| SessionId::new(0, number)).collect();
    assert_eq!(ids(sessions("default").0), of_default);
    let two =
        |after| Query::Sessions { namespace: Namespace::default(), after: Some(SessionId::new(0, after)), rows: 2 };
    let (reply, count) = count_of(|| machine.query(&two(LONG - 3)));
    let QueryResult::Sessions(part) = reply.answer else { panic!("another answer") };
    assert_eq!((part.next, count), (Some(SessionId::new(0, LONG - 1)), 3), "and not the session elsewhere");
}

/// Opens a session of this process.
fn open_of(number: u64, process: &str) -> Command {
    let Command::OpenSession(open) = open(number) else { panic!("an open") };
    let metadata = Metadata { process: process.into(), ..Metadata::default() };
    Command::OpenSession(OpenSession { metadata, ..open })
}

/// Returns a page of signs of life, and how many of them the query looked at.
fn pings(machine: &Machine, which: WhichPings) -> (Page<ProcessPing>, usize) {
    let query = Query::Pings { namespace: Namespace::default(), which, rows: 0 };
    let (reply, count) = count_of(|| machine.query(&query));
    let QueryResult::Pings(page) = reply.answer else { panic!("another answer") };
    (page, count)
}

/// A query for the sign of life of one process looks at its record and its sessions, and at one other to see that there
/// are no more. The newest of them counts.
#[test]
fn one_sign_of_life_is_found_without_a_walk() {
    let mut machine = opened(MANY);
    apply(&mut machine, open_of(MANY + 1, "h1"));
    for number in 1..=MANY {
        let (namespace, process) = (Namespace::default(), ProcessId::parse(&format!("p{number}")).expect("legal"));
        apply(&mut machine, Command::Document(DocumentCommand::Ping { namespace, process }));
    }
    let (namespace, process) = (Namespace::default(), ProcessId::parse("h1").expect("legal"));
    let ping = Command::Document(DocumentCommand::Ping { namespace, process });
    let pinged = entry(5, vec![], vec![ping]);
    machine.apply(machine.applied() + 1, &pinged);
    for (process, ping) in [("h1", Some(pinged.wall)), ("7", Some(entry(0, vec![], vec![]).wall)), ("h", None)] {
        let (page, count) = pings(&machine, WhichPings::Of(process.into()));
        let row = ping.map(|ping| ProcessPing { process: process.into(), ping });
        assert_eq!((page.rows, page.more), (row.into_iter().collect::<Vec<_>>(), false));
        assert!(count <= 3, "{count} were looked at for {process}");
    }
}

/// A query of signs of life looks at a limited number of sessions, however few processes these have. All queries
/// together show every process once, and none of another namespace.
#[test]
fn signs_of_life_are_listed_in_parts() {
    const PROCESSES: u64 = 1_100;
    const SESSIONS: u64 = 20 * PROCESSES;
    let mut machine = Machine::new();
    let process = |number| format!("h{:04}", number % PROCESSES);
    let opens = (1..=SESSIONS).map(|number| open_of(number, &process(number)));
    machine.apply(1, &entry(0, vec![], opens.collect()));
    apply(&mut machine, open_elsewhere(SESSIONS + 1));
    let (rows, queries) = in_parts(|after: Option<Arc<str>>| {
        let (page, count) = pings(&machine, WhichPings::After(after));
        let next = page.rows.last().map(|row| Arc::clone(&row.process)).filter(|_| page.more);
        (Part { rows: page.rows, next }, count)
    });
    let names: Vec<_> = rows.iter().map(|row| row.process.to_string()).collect();
    assert_eq!((names, queries), ((0..PROCESSES).map(process).collect::<Vec<_>>(), 3));
}

/// A query of documents looks at a limited number of locks, and at none of another namespace, although most locks are
/// semaphores without a holder, and the first query finds no document at all. Its answer names the lock after which the
/// next query continues.
#[test]
fn documents_are_listed_in_parts() {
    let mut machine = Machine::new();
    let defined = |namespace: &str, number: u64| {
        let namespace = Namespace::parse(namespace).expect("legal");
        let lock = LockKey { namespace, name: name(&format!("lock-{number:05}")) };
        Command::Manage(Manage { lock, what: Managing::SetLimit { limit: 1 } })
    };
    for number in 1..=LONG {
        let held = number % 15_000 == 0 || number == LONG;
        let lock = format!("lock-{number:05}");
        apply(&mut machine, if held { take(number, &lock, 60_000) } else { defined("default", number) });
    }
    (1..=MANY).for_each(|number| drop(apply(&mut machine, defined("elsewhere", number))));
    let documents = |after| {
        let which = WhichDocuments::After(after);
        let query = Query::Documents { namespace: Namespace::default(), which, rows: 0 };
        let (reply, count) = count_of(|| machine.query(&query));
        let QueryResult::Documents(part) = reply.answer else { panic!("another answer") };
        (part, count)
    };
    assert!(documents(None).0.rows.is_empty(), "the first document is beyond the first query");
    let (rows, queries) = in_parts(documents);
    let names: Vec<_> = rows.iter().map(|row| row.lock.name.as_str()).collect();
    assert_eq!((names, queries), (vec!["lock-15000", &*format!("lock-{LONG:05}")], 3));
    let (part, count) = documents(Some(name(&format!("lock-{LONG:05}"))));
    assert_eq!((part.rows.len(), part.next, count), (0, None, 0), "nothing comes after");
}
