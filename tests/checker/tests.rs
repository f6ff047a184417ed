//! Hand-written histories, good and bad: each rule finds its violation and nothing else.

use lockkeeper::model::{EndReason, LogTime, Namespace, RequestId, Subject, WaitEndReason, WallTime};

use super::*;

const EXCLUSIVE: Mode = Mode::Exclusive;
const SHARED: Mode = Mode::Shared;

fn name() -> LockName {
    LockName::parse("red").expect("a name")
}

fn key() -> LockKey {
    LockKey { namespace: Namespace::default(), name: name() }
}

fn session(counter: u64) -> SessionId {
    SessionId::new(0, counter)
}

fn token(counter: u64) -> FencingToken {
    FencingToken::new(0, counter)
}

/// The claim of a client's request. Each client has one session, and its requests are numbered from one.
fn claim(client: u64, number: u64) -> Claim {
    Claim::Request(RequestId { session: session(client), number })
}

/// An event and its subject.
type What = (Subject, EventKind);

fn opened(client: u64) -> What {
    (Subject::Session(session(client)), EventKind::SessionOpened)
}

fn gone(client: u64) -> What {
    (Subject::Session(session(client)), EventKind::SessionEnded { reason: EndReason::Expired, why: None })
}

fn queued(claim: Claim, sequence: u64) -> What {
    (Subject::wait(&key(), claim), EventKind::Queued { sequence })
}

fn left(claim: Claim, sequence: u64) -> What {
    (Subject::wait(&key(), claim), EventKind::WaitEnded { sequence, why: WaitEndReason::TimedOut })
}

fn granted(claim: Claim, counter: u64, mode: Mode) -> What {
    (Subject::hold(&key(), claim, token(counter)), EventKind::Granted { mode, waited_ms: 0 })
}

fn released(claim: Claim, counter: u64) -> What {
    (Subject::hold(&key(), claim, token(counter)), EventKind::Released { held_ms: 0 })
}

fn event(index: u64, (subject, kind): What) -> Event {
    let position = Position { index, n: 0 };
    Event { position, at: LogTime(index), wall: WallTime(0), namespace: Some(Namespace::default()), subject, kind }
}

/// The report of a node with these events, each in its own entry, starting at the first entry.
fn event_log(kinds: impl IntoIterator<Item = What>) -> EventLog {
    let events: Vec<_> = (1..).zip(kinds).map(|(index, what)| event(index, what)).collect();
    let to = events.last().map_or(Position::default(), |event| event.position);
    EventLog { events, stretches: vec![(Position::default(), to)] }
}

fn history(kinds: impl IntoIterator<Item = What>) -> History {
    History { event_logs: vec![event_log(kinds)], ..History::default() }
}

fn belief(client: u64, counter: u64, mode: Mode, begin: u64, end: u64) -> Belief {
    Belief {
        client: client as usize,
        lock: name(),
        token: token(counter),
        session: session(client),
        mode,
        asked: Duration::ZERO,
        begin: Duration::from_millis(begin),
        end: Duration::from_millis(end),
    }
}

/// The rules that a history breaks, each listed once.
fn broken(history: &History) -> Vec<Rule> {
    let rules: BTreeSet<_> = check(history, true).into_iter().map(|violation| violation.rule).collect();
    rules.into_iter().collect()
}

/// A history that keeps all promises breaks no rule: a queue, a waiter that leaves, several readers, the end of a
/// session.
#[test]
fn a_good_history_is_good() {
    let (a, b, c, d) = (claim(1, 1), claim(2, 1), claim(3, 1), claim(2, 2));
    let mut good = history([
        opened(1),
        opened(2),
        opened(3),
        granted(a, 1, EXCLUSIVE),
        queued(b, 1),
        queued(c, 2),
        queued(claim(1, 2), 3),
        left(b, 1),
        released(a, 1),
        granted(c, 2, SHARED),
        granted(claim(1, 2), 3, SHARED),
        granted(d, 4, SHARED),
        released(c, 2),
        released(d, 4),
        released(claim(1, 2), 3),
        gone(1),
    ]);
    good.beliefs = vec![
        belief(1, 1, EXCLUSIVE, 10, 20),
        belief(3, 2, SHARED, 20, 40),
        belief(2, 4, SHARED, 30, 50),
        belief(1, 3, SHARED, 35, 35),
    ];
    good.releases = vec![(name(), token(1)), (name(), token(4))];
    assert_eq!(check(&good, true), []);
    assert_eq!(check(&good, false), []);
}

/// Two exclusive holders, or a reader and a writer at the same time.
#[test]
fn two_holders_are_seen() {
    for (one, other) in [(EXCLUSIVE, EXCLUSIVE), (EXCLUSIVE, SHARED), (SHARED, EXCLUSIVE)] {
        let bad = history([opened(1), opened(2), granted(claim(1, 1), 1, one), granted(claim(2, 1), 2, other)]);
        assert_eq!(broken(&bad), [Rule::OneHolder]);
    }
}

/// The second waiter is granted first, a grant that passes the queue, and places that do not increase.
#[test]
fn an_unfair_queue_is_seen() {
    let (a, b, c) = (claim(1, 1), claim(2, 1), claim(3, 1));
    let before = [opened(1), opened(2), opened(3), granted(a, 1, EXCLUSIVE), queued(b, 5)];
    let with = |rest: Vec<What>| broken(&history(before.iter().cloned().chain(rest)));
    assert_eq!(with(vec![queued(c, 6), released(a, 1), granted(c, 2, EXCLUSIVE)]), [Rule::FirstComeFirstServed]);
    assert_eq!(with(vec![released(a, 1), granted(c, 2, EXCLUSIVE)]), [Rule::FirstComeFirstServed]);
    assert_eq!(with(vec![queued(c, 4)]), [Rule::FirstComeFirstServed]);
}

/// A token that is not larger than an earlier one, even one of another lock.
#[test]
fn tokens_that_do_not_grow_are_seen() {
    let (a, b) = (claim(1, 1), claim(1, 2));
    for second in [1, 2] {
        let bad = [opened(1), granted(a, 2, EXCLUSIVE), released(a, 2), granted(b, second, EXCLUSIVE)];
        assert_eq!(broken(&history(bad)), [Rule::TokensGrow]);
    }
}

/// A request that is granted twice, or waits again after its grant.
#[test]
fn a_request_that_ran_twice_is_seen() {
    let a = claim(1, 1);
    let twice = [opened(1), granted(a, 1, EXCLUSIVE), released(a, 1), granted(a, 2, EXCLUSIVE)];
    assert_eq!(broken(&history(twice)), [Rule::OnceARequest]);
    let again = [opened(1), granted(a, 1, EXCLUSIVE), queued(a, 1)];
    assert_eq!(broken(&history(again)), [Rule::OnceARequest]);
}

/// The end of a hold or of a wait that did not exist.
#[test]
fn an_end_without_a_beginning_is_seen() {
    assert_eq!(broken(&history([released(claim(1, 1), 1)])), [Rule::EndsWhatWas]);
    assert_eq!(broken(&history([left(claim(1, 1), 1)])), [Rule::EndsWhatWas]);
}

/// A grant to a session that has ended, and a session that ends without its hold.
#[test]
fn a_holder_without_a_session_is_seen() {
    assert_eq!(broken(&history([opened(1), gone(1), granted(claim(1, 1), 1, EXCLUSIVE)])), [Rule::LiveSessions]);
    assert_eq!(broken(&history([opened(1), granted(claim(1, 1), 1, EXCLUSIVE), gone(1)])), [Rule::LiveSessions]);
}

/// A grant or a release that a client received and that no node reported.
#[test]
fn what_was_acknowledged_and_lost_is_seen() {
    let mut bad = history([opened(1), granted(claim(1, 1), 1, EXCLUSIVE)]);
    bad.releases = vec![(name(), token(1))];
    assert_eq!(broken(&bad), [Rule::AcknowledgedHappened]);
    bad.releases.clear();
    bad.beliefs = vec![belief(1, 2, EXCLUSIVE, 0, 1)];
    assert_eq!(broken(&bad), [Rule::AcknowledgedHappened]);
    assert_eq!(check(&bad, false), [], "during the run the event may still arrive");
}

/// A token that is not larger than one that was granted before it was requested; one that was requested earlier may be.
#[test]
fn tokens_that_decrease_for_clients_are_seen() {
    let (a, b) = (claim(1, 1), claim(2, 1));
    let kinds = [opened(1), opened(2), granted(b, 1, SHARED), granted(a, 2, SHARED)];
    let mut run = history(kinds);
    let late = |asked: u64| Belief { asked: Duration::from_millis(asked), ..belief(2, 1, SHARED, 30, 40) };
    run.beliefs = vec![late(10), belief(1, 2, SHARED, 10, 20)];
    assert_eq!(broken(&run), []);
    run.beliefs = vec![late(11), belief(1, 2, SHARED, 10, 20)];
    assert_eq!(broken(&run), [Rule::TokensGrow]);
}

/// Two clients that believe at the same time in holds that exclude each other; adjacent intervals do not overlap.
#[test]
fn beliefs_that_overlap_are_seen() {
    let (a, b) = (claim(1, 1), claim(2, 1));
    let kinds = [opened(1), opened(2), granted(a, 1, EXCLUSIVE), released(a, 1), granted(b, 2, EXCLUSIVE)];
    let mut bad = history(kinds);
    bad.beliefs = vec![belief(2, 2, EXCLUSIVE, 19, 30), belief(1, 1, EXCLUSIVE, 10, 20)];
    assert_eq!(broken(&bad), [Rule::BeliefsDisjoint]);
    bad.beliefs[0].begin = Duration::from_millis(20);
    assert_eq!(broken(&bad), []);
}

/// Events that are repeated or out of order, nodes that contradict each other, and a node that omits an event.
#[test]
fn tellings_that_differ_are_seen() {
    let mut twice = history([opened(1)]);
    twice.event_logs[0].events.push(event(1, opened(1)));
    assert_eq!(broken(&twice), [Rule::PositionsGrow]);
    let mut differ = history([opened(1), opened(2)]);
    differ.event_logs.push(event_log([opened(1), opened(3)]));
    assert_eq!(broken(&differ), [Rule::NodesAgree]);
    let mut silent = history([opened(1), opened(2), opened(3)]);
    silent.event_logs.push(event_log([opened(1), opened(2), opened(3)]));
    silent.event_logs[1].events.remove(1);
    assert_eq!(broken(&silent), [Rule::NodesAgree]);
}

/// Another node fills the gap of one node; a gap of all nodes is reported.
#[test]
fn a_gap_is_filled_by_another_node() {
    let at = |index| Position { index, n: 0 };
    let mut gap = history([opened(1), opened(2), opened(3)]);
    gap.event_logs[0].events.remove(1);
    gap.event_logs[0].stretches = vec![(at(0), at(1)), (at(2), at(3))];
    assert_eq!(reported_until(&gap.event_logs), at(1));
    assert_eq!(broken(&gap), [Rule::NothingMissing]);
    gap.event_logs.push(event_log([opened(1), opened(2)]));
    assert_eq!(reported_until(&gap.event_logs), at(3));
    assert_eq!(broken(&gap), []);
}
