//! The report of a drill, as an object or as text.

use serde::Serialize;

use super::figures::{CLASSES_MS, Gap, Spread, gap, gaps_by_kind, hand_overs, histogram};
use super::journal::{Broken, Fault, Kind, Promise, Timeline};
use crate::cli::error::Failure;
use crate::cli::output::Output;
use crate::cli::text::ms;
use crate::limits::DRILL_LISTED_MAX;

/// The report of a drill.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    /// Whether every promise was kept.
    pub(super) kept: bool,
    /// The result in one sentence.
    pub(super) sentence: String,
    pub(super) rounds: u32,
    pub(super) elapsed_ms: u64,
    pub(super) clients: usize,
    pub(super) grants: usize,
    pub(super) handovers: Spread,
    pub(super) handovers_per_second: u64,
    pub(super) gaps: Vec<KindLine>,
    pub(super) faults: Vec<FaultLine>,
    pub(super) sessions: u64,
    pub(super) lost_sessions: u64,
    pub(super) promises: Vec<PromiseLine>,
    pub(super) broken: Vec<BrokenLine>,
    /// The directory of the nodes; null if it was removed.
    pub(super) dir: Option<String>,
}

/// The gaps after the faults of one kind.
#[derive(Debug, Serialize)]
pub(super) struct KindLine {
    pub(super) kind: &'static str,
    pub(super) next_grant: Spread,
    pub(super) last_client: Spread,
    /// Number of gaps until the next grant in each class.
    pub(super) histogram: Vec<Class>,
}

/// A class of a histogram.
#[derive(Debug, Serialize)]
pub(super) struct Class {
    /// Upper end of the class; null for the last one.
    pub(super) below_ms: Option<u64>,
    pub(super) count: u64,
}

/// One fault and its gap.
#[derive(Debug, Serialize)]
pub(super) struct FaultLine {
    pub(super) kind: &'static str,
    pub(super) round: u32,
    pub(super) nodes: Vec<u64>,
    pub(super) at_ms: u64,
    pub(super) next_grant_us: u64,
    pub(super) last_client_us: u64,
}

/// A promise, and how often it was broken.
#[derive(Debug, Serialize)]
pub(super) struct PromiseLine {
    pub(super) promise: &'static str,
    pub(super) text: &'static str,
    pub(super) broken: usize,
}

/// A promise that was broken, and where.
#[derive(Debug, Serialize)]
pub(super) struct BrokenLine {
    pub(super) promise: &'static str,
    pub(super) at_ms: u64,
    pub(super) detail: String,
}

impl Report {
    pub(super) fn new(timeline: &Timeline, broken: &[Broken]) -> Self {
        let promises: Vec<_> = Promise::ALL.map(|promise| PromiseLine::new(promise, broken)).into();
        let faults: Vec<_> = timeline.faults.iter().map(|fault| FaultLine::new(fault, gap(timeline, fault))).collect();
        let hand_overs = hand_overs(timeline);
        let listed = broken.iter().take(DRILL_LISTED_MAX);
        Self {
            kept: broken.is_empty(),
            sentence: sentence(&promises, &faults),
            rounds: timeline.faults.iter().map(|fault| fault.round).max().unwrap_or(0),
            elapsed_ms: timeline.ended_us / 1000,
            clients: timeline.clients.len(),
            grants: timeline.holds.len(),
            handovers_per_second: hand_overs.len() as u64 * 1_000_000 / timeline.ended_us.max(1),
            handovers: Spread::of(&hand_overs),
            gaps: gaps_by_kind(timeline).into_iter().map(|(kind, gaps)| KindLine::new(kind, &gaps)).collect(),
            faults,
            sessions: timeline.sessions,
            lost_sessions: timeline.lost_sessions,
            promises,
            broken: listed.map(BrokenLine::new).collect(),
            dir: None,
        }
    }

    /// Prints the report as text.
    pub(super) fn print(&self, output: &Output) -> Result<(), Failure> {
        output.line(&self.sentence)?;
        output.line("")?;
        self.print_gaps(output)?;
        output.line("")?;
        let Spread { p50_us, p95_us, max_us, .. } = self.handovers;
        let (half, most, last) = (ms(p50_us), ms(p95_us), ms(max_us));
        let passed =
            format!("{} hand-overs a second: p50 {half} ms, p95 {most} ms, max {last} ms", self.handovers_per_second);
        let kept = self.sessions - self.lost_sessions;
        output.line(format!("{} clients, {} grants in {} s", self.clients, self.grants, seconds(self.elapsed_ms)))?;
        output.line(passed)?;
        output.line(format!("{kept} sessions kept, {} lost", self.lost_sessions))?;
        for promise in &self.promises {
            let mark = if promise.broken == 0 { "kept" } else { "BROKEN" };
            let times = if promise.broken == 0 { String::new() } else { format!(": {} times", promise.broken) };
            output.line(format!("{mark:6}  {}{times}", promise.text))?;
        }
        for broken in &self.broken {
            output.line(format!("  at {} s  {}: {}", seconds(broken.at_ms), broken.promise, broken.detail))?;
        }
        self.dir.iter().try_for_each(|dir| output.line(format!("the files of the nodes are in {dir}")))
    }

    fn print_gaps(&self, output: &Output) -> Result<(), Failure> {
        let rows: Vec<_> = self.gaps.iter().map(KindLine::row).collect();
        output
            .table(&["FAULT", "TIMES", "NEXT GRANT P50 MS", "P95", "MAX", "LAST CLIENT P50 MS", "P95", "MAX"], &rows)?;
        output.line("")?;
        let heading: Vec<_> =
            std::iter::once("NEXT GRANT AFTER").chain(self.gaps.iter().map(|gaps| gaps.kind)).collect();
        output.table(&heading, &bars(&self.gaps))
    }
}

/// The rows of the histograms, from the first to the last class that any kind has.
fn bars(gaps: &[KindLine]) -> Vec<Vec<String>> {
    let used: Vec<_> =
        (0..=CLASSES_MS.len()).filter(|class| gaps.iter().any(|gaps| gaps.histogram[*class].count != 0)).collect();
    let (Some(first), Some(last)) = (used.first(), used.last()) else { return Vec::new() };
    let bar = |count: u64| if count == 0 { String::new() } else { format!("{} {count}", "█".repeat(width(count))) };
    let row = |class: usize| {
        std::iter::once(class_text(class)).chain(gaps.iter().map(|gaps| bar(gaps.histogram[class].count))).collect()
    };
    (*first..=*last).map(row).collect()
}

/// The width of a bar. A long one is cut off, because its number follows it.
fn width(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX).min(20)
}

/// The text of a class of a histogram.
pub(super) fn class_text(class: usize) -> String {
    let from = class.checked_sub(1).map_or(0, |below| CLASSES_MS[below]);
    CLASSES_MS.get(class).map_or(format!("{from} ms or more"), |to| format!("{from} to {to} ms"))
}

/// Milliseconds as a text in seconds.
pub(super) fn seconds(ms: u64) -> String {
    format!("{}.{}", ms / 1000, ms % 1000 / 100)
}

fn sentence(promises: &[PromiseLine], faults: &[FaultLine]) -> String {
    let longest = ms(faults.iter().map(|fault| fault.next_grant_us).max().unwrap_or(0));
    let broken: Vec<_> = promises.iter().filter(|promise| promise.broken != 0).map(|line| line.promise).collect();
    let count = faults.len();
    if broken.is_empty() {
        return format!(
            "Every promise was kept through {count} faults: no lock had two holders, none was lost, and after each \
             fault locks were granted again within {longest} ms."
        );
    }
    format!(
        "Promises were BROKEN ({}) in {count} faults: do not rely on this build before the cause is known.",
        broken.join(", ")
    )
}

impl KindLine {
    fn new(kind: Kind, gaps: &[Gap]) -> Self {
        let next: Vec<_> = gaps.iter().map(|gap| gap.next_grant_us).collect();
        let last: Vec<_> = gaps.iter().map(|gap| gap.last_client_us).collect();
        let ends = CLASSES_MS.iter().copied().map(Some).chain([None]);
        let classes = histogram(&next).into_iter().zip(ends).map(|(count, below_ms)| Class { below_ms, count });
        Self {
            kind: kind.name(),
            next_grant: Spread::of(&next),
            last_client: Spread::of(&last),
            histogram: classes.collect(),
        }
    }

    fn row(&self) -> Vec<String> {
        let (next, last) = (self.next_grant, self.last_client);
        let times = [next.p50_us, next.p95_us, next.max_us, last.p50_us, last.p95_us, last.max_us].map(ms);
        [self.kind.to_owned(), next.count.to_string()].into_iter().chain(times).collect()
    }
}

impl FaultLine {
    fn new(fault: &Fault, gap: Gap) -> Self {
        let Gap { next_grant_us, last_client_us, .. } = gap;
        let Fault { kind, round, ref nodes, at_us } = *fault;
        let (kind, at_ms) = (kind.name(), at_us / 1000);
        Self { kind, round, nodes: nodes.clone(), at_ms, next_grant_us, last_client_us }
    }
}

impl PromiseLine {
    fn new(promise: Promise, broken: &[Broken]) -> Self {
        let broken = broken.iter().filter(|broken| broken.promise == promise).count();
        Self { promise: promise.name(), text: promise.text(), broken }
    }
}

impl BrokenLine {
    fn new(broken: &Broken) -> Self {
        let Broken { promise, at_us, ref detail } = *broken;
        Self { promise: promise.name(), at_ms: at_us / 1000, detail: detail.clone() }
    }
}
