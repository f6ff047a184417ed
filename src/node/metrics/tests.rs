//! The number of series of a node, and what events count, with the recorder of the command line.

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};

use super::*;
use crate::clock::Instant;
use crate::config::{LockClass, MetricsLabels};
use crate::limits;
use crate::machine::NamespaceSizes;
use crate::model::{
    Claim, EndReason, Event, EventKind, FencingToken, LeaseRequestId, LockKey, LockName, LogTime, Member, Mode,
    Namespace, Position, Principal, RequestId, SessionId, Subject, WaitEndReason, WallTime,
};
use crate::raft::{MemberView, View};
use crate::telemetry::{CallKind, CallMetrics, CallNames};

/// Runs a closure whose metrics are recorded, and returns them as text.
fn recorded(record: impl FnOnce()) -> String {
    let histogram = |builder: PrometheusBuilder, name: &str, bounds| {
        builder.set_buckets_for_metric(Matcher::Suffix(name.to_owned()), bounds).expect("buckets")
    };
    let builder = histogram(PrometheusBuilder::new(), "_duration_seconds", limits::SECONDS_BUCKETS);
    let recorder = histogram(builder, "_commands", limits::COUNT_BUCKETS).build_recorder();
    metrics::with_local_recorder(&recorder, record);
    recorder.handle().render()
}

fn events(labels: &MetricsLabels) -> EventMetrics {
    EventMetrics::new(&Series::new(1), labels)
}

fn namespace(name: &str) -> Namespace {
    Namespace::parse(name).expect("legal")
}

fn event(of: &str, lock: &str, kind: EventKind) -> Event {
    let key = LockKey { namespace: namespace(of), name: LockName::parse(lock).expect("legal") };
    let subject = Subject::hold(&key, Claim::Lease(LeaseRequestId(1)), FencingToken::new(0, 1));
    let (position, at, wall) = (Position::default(), LogTime(0), WallTime(0));
    Event { position, at, wall, namespace: Some(namespace(of)), subject, kind }
}

fn granted(waited_ms: u64) -> EventKind {
    EventKind::Granted { mode: Mode::Exclusive, waited_ms }
}

/// The value of a series.
fn value(text: &str, series: &str) -> f64 {
    let found = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    found.unwrap_or_else(|| panic!("no {series} in\n{text}")).parse().expect("a number")
}

/// A grant after a wait ends the wait; one at once does not. Each end of a hold has its reason and its length.
#[test]
fn events_have_their_reasons() {
    let text = recorded(|| {
        let metrics = events(&MetricsLabels::default());
        metrics.count(
            &[
                event("ci", "a", granted(0)),
                event("ci", "b", EventKind::Queued { sequence: 1 }),
                event("ci", "b", granted(2_000)),
                event("ci", "a", EventKind::Released { held_ms: 500 }),
                event("ci", "b", EventKind::Expired { reason: EndReason::Lost, held_ms: 1_500 }),
                event("ci", "c", EventKind::WaitEnded { sequence: 2, why: WaitEndReason::Deadlock }),
            ],
            &[],
        );
        let (subject, namespace) = (Subject::Session(SessionId::from_u64(1).expect("legal")), Some(namespace("ci")));
        let ended = EventKind::SessionEnded { reason: EndReason::Expired, why: None };
        metrics.count(&[Event { subject, namespace, ..event("ci", "a", ended) }], &[]);
        let gap = EventKind::LeaderlessGap { gap_ms: 250 };
        metrics.count(&[Event { subject: Subject::Cluster, namespace: None, ..event("ci", "a", gap) }], &[]);
    });
    let of = |name: &str, further: &str| value(&text, &format!("lockkeeper_{name}{{node=\"1\"{further}}}"));
    let in_ci = |name: &str| of(name, ",namespace=\"ci\"");
    let because = |name: &str, reason: &str| of(name, &format!(",namespace=\"ci\",reason=\"{reason}\""));
    assert_eq!((in_ci("grants_total"), in_ci("waits_total")), (2.0, 1.0));
    assert_eq!((because("waits_ended_total", "granted"), because("waits_ended_total", "deadlock")), (1.0, 1.0));
    let held = ["released", "lost", "expired"].map(|reason| because("holds_ended_total", reason));
    assert_eq!(held, [1.0, 1.0, 0.0]);
    assert_eq!(of("hold_duration_seconds_sum", ",class=\"other\""), 2.0);
    assert_eq!(of("wait_duration_seconds_count", ",class=\"other\""), 2.0);
    assert_eq!(of("sessions_ended_total", ",reason=\"expired\""), 1.0);
    assert_eq!((of("raft_leader_changes_total", ""), of("leaderless_seconds_total", "")), (1.0, 0.25));
}

/// A hand-over to a request in the queue ends its wait, which is in the histogram like that of any other grant. A
/// hand-over to a session that did not wait ends none. Each ends a hold.
#[test]
fn a_hand_over_to_a_waiter_ends_its_wait() {
    let session = SessionId::from_u64(1).expect("legal");
    let of = |number: u64, kind: EventKind| {
        let request = Claim::Request(RequestId { session, number });
        let key = LockKey { namespace: namespace("ci"), name: LockName::parse("a").expect("legal") };
        Event { subject: Subject::hold(&key, request, FencingToken::new(0, 2)), ..event("ci", "a", kind) }
    };
    let handed_over = || {
        let (was, from) = (Claim::Lease(LeaseRequestId(1)), FencingToken::new(0, 1));
        EventKind::HandedOver { was, from, mode: Mode::Exclusive, by: Principal::default() }
    };
    let text = recorded(|| {
        events(&MetricsLabels::default()).count(
            &[
                of(7, EventKind::Queued { sequence: 1 }),
                of(7, handed_over()),
                of(limits::OWN_REQUESTS_MIN | 3, handed_over()),
                of(8, handed_over()),
            ],
            &[Some(2_000), None, Some(0)],
        );
    });
    let of = |name: &str| value(&text, &format!("lockkeeper_{name}"));
    assert_eq!(of("waits_total{node=\"1\",namespace=\"ci\"}"), 1.0);
    assert_eq!(of("waits_ended_total{node=\"1\",namespace=\"ci\",reason=\"granted\"}"), 2.0);
    assert_eq!(of("wait_duration_seconds_count{node=\"1\",class=\"other\"}"), 2.0);
    assert_eq!(of("wait_duration_seconds_sum{node=\"1\",class=\"other\"}"), 2.0);
    assert_eq!(of("holds_ended_total{node=\"1\",namespace=\"ci\",reason=\"handed_over\"}"), 3.0);
}

/// A change of the leader at this wall time.
fn leader_change(wall: u64) -> Event {
    let gap = event("ci", "a", EventKind::LeaderlessGap { gap_ms: 250 });
    Event { subject: Subject::Cluster, namespace: None, wall: WallTime(wall), ..gap }
}

/// A node that catches up counts only the changes of the leader that happened within the last hour, of the newest ones
/// that it remembers.
#[test]
fn an_old_change_of_the_leader_is_not_of_the_last_hour() {
    let metrics = events(&MetricsLabels::default());
    let last_hour = |wall: u64| metrics.leader_changes_last_hour(WallTime(wall), Instant::from_nanos(0));
    let hour = limits::METRICS_HOUR_MS;
    metrics.count(&[1, 2, hour].map(leader_change), &[]);
    assert_eq!([hour, hour + 1, hour + 2, hour + 3, 2 * hour + 1].map(last_hour), [3, 3, 2, 1, 0]);
    metrics.count(&vec![leader_change(2 * hour); limits::METRICS_LEADER_CHANGES_MAX + 1], &[]);
    assert_eq!(last_hour(2 * hour), limits::METRICS_LEADER_CHANGES_MAX);
}

/// The wall clock of one leader is a year ahead, and the times of later events do not go back. A change of the leader
/// counts for an hour nevertheless, and not for a year.
#[test]
fn a_clock_that_is_ahead_keeps_no_change_in_the_last_hour() {
    let metrics = events(&MetricsLabels::default());
    let at = |ms: u64| metrics.leader_changes_last_hour(WallTime(ms), Instant::from_nanos(ms * 1_000_000));
    let (hour, year) = (limits::METRICS_HOUR_MS, 365 * 24 * limits::METRICS_HOUR_MS);
    metrics.count(&[leader_change(year)], &[]);
    assert_eq!([0, hour, hour + 1].map(at), [1, 1, 0]);
    metrics.count(&[leader_change(year)], &[]);
    assert_eq!([hour + 1, 2 * hour + 1, 2 * hour + 2].map(at), [1, 1, 0]);
}

/// The first 32 namespaces have separate series, or those that the config lists. All others share one.
#[test]
fn namespaces_beyond_the_limit_share_their_series() {
    let names: Vec<String> = (0..40).map(|number| format!("n{number}")).collect();
    let grants: Vec<Event> = names.iter().map(|name| event(name, "a", granted(0))).collect();
    let of =
        |text: &str, name: &str| value(text, &format!("lockkeeper_grants_total{{node=\"1\",namespace=\"{name}\"}}"));
    let first = recorded(|| events(&MetricsLabels::default()).count(&grants, &[]));
    assert_eq!((of(&first, "n0"), of(&first, "n31"), of(&first, "other")), (1.0, 1.0, 8.0));
    let listed = MetricsLabels { namespaces: vec![namespace("n39")], classes: Vec::new() };
    let listed = recorded(|| {
        let metrics = events(&listed);
        metrics.count(&grants, &[]);
        let sizes = |holders| NamespaceSizes { holders, used: [0.5, 0.0, 0.0, 0.0], ..NamespaceSizes::default() };
        let (mut sums, mut namespaces) = (Vec::new(), metrics.namespaces.lock());
        namespaces.add(&mut sums, vec![(namespace("n1"), sizes(1)), (namespace("n2"), sizes(2))], NamespaceSizes::add);
        namespaces.add(&mut sums, vec![(namespace("n39"), sizes(4))], NamespaceSizes::add);
        namespaces.record(&sums);
    });
    assert_eq!((of(&listed, "n39"), of(&listed, "other")), (1.0, 39.0));
    let holders = |name| value(&listed, &format!("lockkeeper_holders{{node=\"1\",namespace=\"{name}\"}}"));
    assert_eq!((holders("n39"), holders("other")), (4.0, 3.0));
}

/// A lock is in the first class whose prefix fits, and else in the class of all others.
#[test]
fn locks_have_the_first_class_that_fits() {
    let class = |name: &str, prefix: &str| LockClass { name: name.to_owned(), prefix: prefix.to_owned() };
    let classes = vec![class("night", "job/night"), class("jobs", "job/")];
    let text = recorded(|| {
        let metrics = events(&MetricsLabels { namespaces: Vec::new(), classes });
        metrics.count(&["job/night/1", "job/2", "job/3", "x"].map(|lock| event("ci", lock, granted(1))), &[]);
    });
    let count =
        |class| value(&text, &format!("lockkeeper_wait_duration_seconds_count{{node=\"1\",class=\"{class}\"}}"));
    assert_eq!((count("night"), count("jobs"), count("other")), (1.0, 2.0, 1.0));
}

/// The free space is no number until it is measured, so that a node in memory has no full disk.
#[test]
fn an_unknown_free_space_is_no_full_disk() {
    let text = recorded(|| drop(Metrics::new(&Config::from_toml("n1.toml", CONFIG, []).expect("good"))));
    assert!(value(&text, "lockkeeper_data_free_bytes{node=\"1\"}").is_nan(), "{text}");
}

static CALLS: CallNames = CallNames {
    requests: ["requests_total", "Requests of a test"],
    call: "route",
    duration: ["request_duration_seconds", "Durations of a test"],
    streams: ["streams", "Streams of a test"],
    most: limits::METRICS_HTTP_REQUESTS_MAX,
};

/// A node has a limited number of series for any number of names, and the names of locks are in none of them.
#[test]
fn the_number_of_series_is_limited() {
    let classes =
        (0..limits::METRICS_CLASSES_MAX).map(|n| LockClass { name: format!("c{n}"), prefix: format!("p{n}") });
    let mut config = Config::from_toml("n1.toml", CONFIG, []).expect("good");
    config.metrics.classes = classes.collect();
    let text = recorded(|| {
        let metrics = Metrics::new(&config);
        for number in 0..100 {
            metrics.events.count(&[event(&format!("n{number}"), &format!("secret{number}"), granted(1))], &[]);
        }
        let member = |id: u64| Member { client: format!("c{id}"), peer: format!("p{id}") };
        let member = |id| (id, MemberView { member: member(id), voter: true, matched: None, last_contact: None });
        metrics.peers.update(1, &View { members: (1..100).map(member).collect(), ..View::default() }, true);
        for port in [1, 2] {
            // The second port gets other labels by its node.
            let calls = CallMetrics::new(port, &CALLS);
            for number in 0..1_000_u16 {
                calls.answered(&format!("/r{number}"), 200 + number % 7);
                calls.took(CallKind::Wait, std::time::Duration::from_secs(1));
            }
        }
    });
    let series = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).count();
    // Three ports have seven series each, with TLS, and the process has five.
    let series = series + 3 * 7 + 3 + 5;
    assert!((2_000..=limits::METRICS_SERIES_MAX).contains(&series), "{series} series");
    assert!(!text.contains("secret"), "the name of a lock is a label");
    let shared = value(&text, "requests_total{node=\"1\",route=\"other\",code=\"other\"}");
    let most = limits::METRICS_HTTP_REQUESTS_MAX as f64;
    assert_eq!(shared, 1_000.0 - (most - 1.0), "all beyond the limit");
}

const CONFIG: &str = "cluster = \"harbour\"\nnode = 1\ndata = \"d\"\n\
                      [listen]\nclient = \"127.0.0.1:7601\"\npeer = \"127.0.0.1:7611\"\n\
                      [[member]]\nid = 1\nclient = \"127.0.0.1:7601\"\npeer = \"127.0.0.1:7611\"\n";
