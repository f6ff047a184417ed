//! The report of a drill, as an object or as text.

use serde::Serialize;

use super::figures::{CLASSES_MS, Gap, Spread, gap, hand_overs, histogram};
use super::journal::{Broken, Fault, Kind, Promise, Timeline};
use crate::cli::error::Failure;
use crate::cli::output::Output;
use crate::cli::text::counted;
use crate::config::Profile;
use crate::limits::DRILL_LISTED_MAX;

#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) kept: bool,
    pub(super) sentence: String,
    /// The timing of the nodes.
    pub(super) profile: &'static str,
    pub(super) elapsed_ms: u64,
    pub(super) clients: usize,
    pub(super) grants: usize,
    pub(super) handovers_per_second: u64,
    pub(super) handovers: Spread,
    pub(super) handover_classes: Vec<Class>,
    pub(super) gaps: Vec<KindGaps>,
    pub(super) faults: Vec<FaultGap>,
    pub(super) sessions: u64,
    pub(super) lost_sessions: u64,
    pub(super) promises: Vec<PromiseResult>,
    /// The first broken promises.
    pub(super) broken: Vec<Broken>,
    /// The directory of the nodes; null if it was removed.
    pub(super) dir: Option<String>,
}

/// The gaps after the faults of one kind.
#[derive(Debug, Serialize)]
pub(super) struct KindGaps {
    pub(super) kind: Kind,
    pub(super) next_grant: Spread,
    pub(super) last_client: Spread,
    /// Number of gaps until the next grant in each class.
    pub(super) classes: Vec<Class>,
}

#[derive(Debug, Serialize)]
pub(super) struct Class {
    /// Upper end of the class; null for the last one.
    pub(super) below_ms: Option<u64>,
    pub(super) count: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct FaultGap {
    #[serde(flatten)]
    pub(super) fault: Fault,
    #[serde(flatten)]
    pub(super) gap: Gap,
}

/// A promise, and how often it was broken.
#[derive(Debug, Serialize)]
pub(super) struct PromiseResult {
    pub(super) promise: Promise,
    pub(super) broken: usize,
}

impl Report {
    pub(super) fn new(timeline: &Timeline, profile: Profile, broken: &[Broken]) -> Self {
        let of = |promise| broken.iter().filter(|broken| broken.promise == promise).count();
        let promises = Promise::ALL.map(|promise| PromiseResult { promise, broken: of(promise) }).into();
        let with_gap = |fault: &Fault| FaultGap { fault: fault.clone(), gap: gap(timeline, fault) };
        let faults: Vec<_> = timeline.faults.iter().map(with_gap).collect();
        let hand_overs = hand_overs(timeline);
        Self {
            kept: broken.is_empty(),
            sentence: sentence(broken.len(), &faults),
            profile: profile.name(),
            elapsed_ms: timeline.ended_us / 1000,
            clients: timeline.clients.len(),
            grants: timeline.holds.len(),
            handovers_per_second: hand_overs.len() as u64 * 1_000_000 / timeline.ended_us.max(1),
            handovers: Spread::of(&hand_overs),
            handover_classes: classes(&hand_overs),
            gaps: Kind::ALL.into_iter().filter_map(|kind| KindGaps::of(kind, &faults)).collect(),
            faults,
            sessions: timeline.sessions,
            lost_sessions: timeline.lost_sessions,
            promises,
            broken: broken.iter().take(DRILL_LISTED_MAX).cloned().collect(),
            dir: None,
        }
    }

    pub(super) fn print(&self, output: &Output) -> Result<(), Failure> {
        output.line(&self.sentence)?;
        output.line("")?;
        self.print_gaps(output)?;
        output.line("")?;
        let Self { clients, grants, handovers_per_second, lost_sessions, profile, .. } = self;
        let [half, most, longest] = self.handovers.texts();
        let elapsed = seconds(self.elapsed_ms * 1000);
        output.line(format!("{clients} clients, {grants} grants in {elapsed} s, timing profile {profile}"))?;
        output.line(format!(
            "{handovers_per_second} hand-overs a second: p50 {half} ms, p95 {most} ms, max {longest} ms"
        ))?;
        output.line(format!("{} sessions kept, {lost_sessions} lost", self.sessions - lost_sessions))?;
        for PromiseResult { promise, broken } in &self.promises {
            let result =
                if *broken == 0 { "kept".to_owned() } else { format!("BROKEN {}", counted(*broken as u64, "time")) };
            output.line(format!("{}: {result}", promise.text()))?;
        }
        for Broken { at_us, detail, .. } in &self.broken {
            output.line(format!("  at {} s  {detail}", seconds(*at_us)))?;
        }
        self.dir.iter().try_for_each(|dir| output.line(format!("the files of the nodes are in {dir}")))
    }

    fn print_gaps(&self, output: &Output) -> Result<(), Failure> {
        let row = |gaps: &KindGaps| {
            let first = [gaps.kind.name().to_owned(), gaps.next_grant.count.to_string()];
            first.into_iter().chain(gaps.next_grant.texts()).chain(gaps.last_client.texts()).collect()
        };
        let rows: Vec<_> = self.gaps.iter().map(row).collect();
        output
            .table(&["FAULT", "TIMES", "NEXT GRANT P50 MS", "P95", "MAX", "LAST CLIENT P50 MS", "P95", "MAX"], &rows)?;
        output.line("")?;
        let kinds = self.gaps.iter().map(|gaps| gaps.kind.name());
        let heading: Vec<_> = std::iter::once("NEXT GRANT AFTER").chain(kinds).collect();
        output.table(&heading, &bars(&self.gaps))
    }
}

impl KindGaps {
    /// The gaps of this kind; `None` if there was no such fault.
    fn of(kind: Kind, faults: &[FaultGap]) -> Option<Self> {
        let gaps: Vec<_> = faults.iter().filter(|of| of.fault.kind == kind).map(|of| of.gap).collect();
        let next: Vec<_> = gaps.iter().map(|gap| gap.next_grant_us).collect();
        let last: Vec<_> = gaps.iter().map(|gap| gap.last_client_us).collect();
        let (next_grant, last_client, classes) = (Spread::of(&next), Spread::of(&last), classes(&next));
        (!gaps.is_empty()).then_some(Self { kind, next_grant, last_client, classes })
    }
}

fn classes(durations_us: &[u64]) -> Vec<Class> {
    let ends = CLASSES_MS.iter().copied().map(Some).chain([None]);
    histogram(durations_us).into_iter().zip(ends).map(|(count, below_ms)| Class { below_ms, count }).collect()
}

/// The rows of the histograms, from the first to the last class that has a gap of any kind.
pub(super) fn bars(gaps: &[KindGaps]) -> Vec<Vec<String>> {
    let used = |class: &usize| gaps.iter().any(|gaps| gaps.classes[*class].count != 0);
    let (first, last) = ((0..=CLASSES_MS.len()).find(used), (0..=CLASSES_MS.len()).rfind(used));
    // The longest bar has 20 blocks at most, and the others are in proportion to it.
    let largest = gaps.iter().flat_map(|gaps| &gaps.classes).map(|class| class.count).max().unwrap_or(0).max(20);
    let wide = |count: u64| usize::try_from((count * 20).div_ceil(largest)).unwrap_or(20);
    let bar = |count: u64| if count == 0 { String::new() } else { format!("{} {count}", "█".repeat(wide(count))) };
    let row = |class: usize| {
        let bars = gaps.iter().map(|gaps| bar(gaps.classes[class].count));
        std::iter::once(class_text(class)).chain(bars).collect()
    };
    first.zip(last).map(|(first, last)| (first..=last).map(row).collect()).unwrap_or_default()
}

/// Returns the text of a class of a histogram.
pub(super) fn class_text(class: usize) -> String {
    let from = class.checked_sub(1).map_or(0, |below| CLASSES_MS[below]);
    CLASSES_MS.get(class).map_or(format!("{from} ms or more"), |to| format!("{from} to {to} ms"))
}

/// Returns microseconds as a text in seconds.
pub(super) fn seconds(us: u64) -> String {
    format!("{}.{:02}", us / 1_000_000, us % 1_000_000 / 10_000)
}

fn sentence(broken: usize, faults: &[FaultGap]) -> String {
    let count = counted(faults.len() as u64, "fault");
    let longest = faults.iter().map(|of| of.gap.next_grant_us.div_ceil(1000)).max().unwrap_or(0);
    if broken != 0 {
        let broken = counted(broken as u64, "time");
        return format!("Promises were BROKEN {broken} in {count}: do not use this build for real locks.");
    }
    format!(
        "Every promise was kept in {count}: no lock had two holders or was lost, and grants resumed within \
         {longest} ms."
    )
}
