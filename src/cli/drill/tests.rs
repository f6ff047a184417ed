//! The judgement, the figures and the page of timelines that were written by hand.

use super::contenders::{EXCLUSIVE, KEPT, timeline};
use super::figures::{CLASSES_MS, Gap, Spread, gap, hand_overs, histogram};
use super::journal::{Fault, Hold, Kind, NodeState, Promise, Timeline};
use super::page::page;
use super::report::{Class, KindGaps, Report, bars, class_text};
use super::verdict::judge;
use crate::config::Profile;
use crate::model::{FencingToken, Mode};
use crate::shapes::tests::value;

const SHARED: usize = 1;
const PERMITS: usize = 2;

/// A hold of a client at a lock, with its counter, and with the milliseconds of its request, its grant and its end.
fn hold(lock: usize, client: usize, mode: Mode, counter: u64, [asked, granted, ended]: [u64; 3]) -> Hold {
    let token = FencingToken::new(0, counter);
    let (asked_us, granted_us, ended_us) = (asked * 1000, granted * 1000, Some(ended * 1000));
    Hold { lock, client, mode, token, asked_us, granted_us, ended_us }
}

fn exclusive(client: usize, counter: u64, times: [u64; 3]) -> Hold {
    hold(EXCLUSIVE, client, Mode::Exclusive, counter, times)
}

fn with(holds: Vec<Hold>) -> Timeline {
    Timeline { holds, ended_us: 1_000_000, ..timeline() }
}

fn found(holds: Vec<Hold>) -> Vec<(Promise, u64)> {
    judge(&with(holds)).into_iter().map(|broken| (broken.promise, broken.at_us / 1000)).collect()
}

/// Hand-overs, holds that are shared, and permits up to the limit break nothing, in any order of their records.
#[test]
fn legal_holds_are_kept_promises() {
    let holds = vec![
        exclusive(1, 2, [0, 20, 30]),
        exclusive(0, 1, [0, 10, 20]),
        hold(SHARED, 4, Mode::Shared, 4, [0, 11, 40]),
        hold(SHARED, 5, Mode::Shared, 3, [0, 12, 50]),
        hold(SHARED, 7, Mode::Exclusive, 9, [0, 50, 60]),
        hold(PERMITS, 8, Mode::Permits(1), 6, [0, 12, 30]),
        hold(PERMITS, 9, Mode::Permits(1), 5, [0, 13, 20]),
        hold(PERMITS, 10, Mode::Permits(1), 8, [0, 20, 40]),
    ];
    assert_eq!(found(holds), []);
}

/// Two exclusive holders, a reader next to a writer, and a permit above the limit are overlaps. A hold without an end
/// still holds.
#[test]
fn an_overlap_is_found() {
    let two = vec![exclusive(0, 1, [0, 10, 30]), exclusive(1, 2, [0, 29, 40])];
    assert_eq!(found(two.clone()), [(Promise::Overlap, 29)]);
    let broken = judge(&with(two));
    assert_eq!(broken[0].detail, "exclusive: client 2 (token 2) was granted while client 1 (token 1) still held");
    let kept = Hold { ended_us: None, ..hold(KEPT, 12, Mode::Exclusive, 1, [0, 10, 0]) };
    assert_eq!(found(vec![kept, hold(KEPT, 13, Mode::Exclusive, 2, [0, 900, 901])]), [(Promise::Overlap, 900)]);
    let reader = hold(SHARED, 4, Mode::Shared, 2, [0, 15, 30]);
    assert_eq!(found(vec![hold(SHARED, 7, Mode::Exclusive, 1, [0, 10, 20]), reader]), [(Promise::Overlap, 15)]);
    let permits =
        [8, 9, 10].map(|client| hold(PERMITS, client, Mode::Permits(1), client as u64, [0, client as u64, 30]));
    assert_eq!(found(permits.into()), [(Promise::Overlap, 10)]);
}

/// A token that does not rise is found: after a conflicting hold, and after any grant that was received before the
/// request was sent. Two shared grants at the same time may arrive in any order.
#[test]
fn token_disorder_is_found() {
    assert_eq!(found(vec![exclusive(0, 5, [0, 10, 20]), exclusive(1, 5, [0, 20, 30])]), [(Promise::Token, 20)]);
    let permit = |counter, times| hold(PERMITS, 8, Mode::Permits(1), counter, times);
    assert_eq!(found(vec![permit(5, [0, 10, 20]), permit(4, [11, 21, 30])]), [(Promise::Token, 21)]);
    assert_eq!(found(vec![permit(5, [0, 10, 20]), permit(4, [9, 21, 30])]), []);
    let broken = judge(&with(vec![exclusive(0, 5, [0, 10, 20]), exclusive(1, 4, [0, 20, 30])]));
    assert_eq!(broken[0].detail, "exclusive: client 2 (token 4) was granted after client 1 (token 5)");
}

/// A session that ended too early, which its client observed, is in the verdict and in the report.
#[test]
fn a_lost_session_is_found() {
    let mut timeline = with(vec![exclusive(0, 1, [0, 10, 20])]);
    (timeline.sessions, timeline.lost_sessions) = (13, 1);
    let detail = "session 3 has ended".to_owned();
    timeline.broken.push(super::journal::Broken { promise: Promise::Session, at_us: 700, detail });
    let broken = judge(&timeline);
    let report = value(&Report::new(&timeline, Profile::Lan, &broken));
    assert_eq!((&report["kept"], &report["lost_sessions"]), (&false.into(), &1.into()));
    assert_eq!(report["promises"][3], serde_json::json!({"promise": "session", "broken": 1}));
    assert_eq!(report["broken"][0]["detail"], "session 3 has ended");
}

fn fault(kind: Kind, at_ms: u64) -> Fault {
    Fault { kind, round: 1, nodes: vec![1], at_us: at_ms * 1000 }
}

/// A grant that was under way at the fault does not end the gap. The last client is the one that waited longest.
#[test]
fn a_gap_ends_with_the_next_new_grant() {
    let mut timeline = with(vec![
        exclusive(0, 1, [90, 95, 99]),
        exclusive(1, 2, [90, 101, 105]),
        exclusive(0, 3, [99, 400, 405]),
        exclusive(1, 4, [105, 450, 455]),
        exclusive(0, 5, [405, 460, 465]),
        exclusive(1, 6, [455, 470, 475]),
        exclusive(1, 7, [475, 900, 905]),
    ]);
    timeline.contenders = 2;
    let killed = fault(Kind::Kill, 100);
    let expected = Gap { next_grant_us: 299_000, last_client_us: 345_000, from_us: 101_000 };
    assert_eq!(gap(&timeline, &killed), expected, "until 450 ms, when client 2 was granted what it asked for after");
    timeline.contenders = 3;
    assert_eq!(gap(&timeline, &killed).last_client_us, 900_000, "client 3 was never served");
    assert_eq!(hand_overs(&timeline), [2_000, 295_000, 45_000, 5_000, 5_000]);
}

/// Percentiles are durations that occurred. Classes include their lower end.
#[test]
fn spreads_and_histograms_count_everything() {
    let durations: Vec<u64> = (1..=100).map(|ms| ms * 1000).collect();
    let expected = Spread { count: 100, p50_us: 50_000, p95_us: 95_000, max_us: 100_000 };
    assert_eq!(Spread::of(&durations), expected);
    assert_eq!(Spread::of(&[]), Spread::default());
    let counts = histogram(&[0, 999, 1_000, 4_999, 5_000, 60_000_000]);
    assert_eq!((counts[0], counts[1], counts[2], counts[3], counts[CLASSES_MS.len()]), (2, 1, 1, 1, 1));
    assert_eq!([0, 2, 12].map(class_text), ["0 to 1 ms", "2 to 5 ms", "5000 ms or more"]);
}

/// A bar has a block for each gap. If a class has more than 20, the longest bar has 20 blocks, and the others are in
/// proportion.
#[test]
fn bars_are_in_proportion() {
    let blocks = |counts: [u64; 3]| -> Vec<usize> {
        let count = |class: usize| counts.get(class).copied().unwrap_or(0);
        let classes = (0..=CLASSES_MS.len()).map(|class| Class { below_ms: None, count: count(class) }).collect();
        let (next_grant, last_client) = (Spread::default(), Spread::default());
        let rows = bars(&[KindGaps { kind: Kind::Kill, next_grant, last_client, classes }]);
        rows.iter().map(|row| row[1].matches('█').count()).collect()
    };
    assert_eq!(blocks([1, 4, 20]), [1, 4, 20]);
    assert_eq!(blocks([1, 50, 200]), [1, 5, 20]);
}

/// The page says in words whether the promises were kept. If not, it says how often and where they were broken.
#[test]
fn the_page_names_its_verdict() {
    let shown = |holds: Vec<Hold>| {
        let timeline = Timeline { faults: vec![fault(Kind::Kill, 5)], ..with(holds) };
        page(&timeline, &Report::new(&timeline, Profile::Lan, &judge(&timeline))).unwrap()
    };
    let kept = shown(vec![exclusive(0, 1, [0, 10, 20]), exclusive(1, 2, [0, 20, 40])]);
    let broken = shown(vec![exclusive(0, 1, [0, 10, 30]), exclusive(1, 2, [0, 20, 40])]);
    let of_kept = [
        "<title>Failover drill: every promise was kept</title>",
        "<div class=\"verdict\">\n<strong>✓ Kept</strong>",
        "Every promise was kept in 1 fault: no lock had two holders or was lost, and grants resumed within ",
    ];
    let of_broken = [
        "<title>Failover drill: promises were broken</title>",
        "<div class=\"verdict broken\">\n<strong>✕ Broken</strong>",
        "Promises were BROKEN 1 time in 1 fault: do not use this build for real locks.",
        "<td class=\"wrong\">broken 1 time</td>",
        "exclusive: client 2 (token 2) was granted while client 1 (token 1) still held",
    ];
    for text in of_kept {
        assert!(kept.contains(text) && !broken.contains(text), "{text}");
    }
    for text in of_broken {
        assert!(broken.contains(text) && !kept.contains(text), "{text}");
    }
}

/// The text of the tags in a page.
fn tags(page: &str) -> Vec<&str> {
    page.split('<').skip(1).map(|rest| rest.split(['>', ' ', '\n']).next().unwrap()).collect()
}

/// Names and details from elsewhere add no tag to the page, wherever they are shown.
#[test]
fn hostile_names_do_no_harm() {
    const HOSTILE: &str = "</title><img src=x onerror=alert(1)>\"'&<script>alert(2)</script>";
    let holds = vec![exclusive(0, 1, [0, 10, 30]), exclusive(1, 2, [0, 20, 40])];
    let run = |name: Option<&str>| {
        let mut timeline = with(holds.clone());
        timeline.faults = vec![fault(Kind::Kill, 5)];
        (timeline.leaders, timeline.states) = (vec![(1, Some(1))], vec![(0, 1, NodeState::Up)]);
        if let Some(name) = name {
            timeline.clients.fill(name.to_owned());
            timeline.locks.iter_mut().for_each(|lock| lock.name = name.to_owned());
        }
        let broken = judge(&timeline);
        page(&timeline, &Report::new(&timeline, Profile::Lan, &broken)).unwrap()
    };
    let (usual, hostile) = (run(None), run(Some(HOSTILE)));
    assert_eq!(tags(&hostile), tags(&usual));
    assert!(hostile.contains("&#60;img src=x onerror=alert(1)&#62;") && !hostile.contains("<img"), "{hostile}");
    assert!(
        usual.contains("promises were broken") && usual.contains("was granted while client 1 (token 1) still held")
    );
    // What scrolls is reached with the keyboard.
    let reached = usual.matches("class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=").count();
    assert_eq!(reached, usual.matches("class=\"scroll\"").count());
    for loaded in ["http:", "https:", "src=", "url(", "@import", "<script", "<link"] {
        assert!(!usual.contains(loaded), "the page loads {loaded}");
    }
}
