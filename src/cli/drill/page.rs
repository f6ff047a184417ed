//! The report of a drill as one HTML page, with a picture of the timeline. Its template escapes every name.

use std::fmt::Write as _;

use askama::Template;

use super::contenders::SHARED_LOCKS;
use super::journal::{Fault, Hold, Kind, NodeState, Timeline};
use super::nodes::IDS;
use super::report::{Report, class_text, seconds};
use crate::cli::text::ms;
use crate::model::FencingToken;

/// Width of the picture for each second, in pixels, and its smallest width.
const SECOND_WIDTH: u64 = 52;
const WIDTH_MIN: u64 = 1_040;
/// Heights of the labels of gaps, of a node's lane, and of one holder in the ribbon of a lock.
const TOP: u64 = 44;
const NODE_HEIGHT: u64 = 34;
const HOLDER_HEIGHT: u64 = 14;
/// Number of colours of owners. Each lock begins with the first.
const COLOURS: usize = 4;

/// The page. Positions are pixels within the picture.
#[derive(Template)]
#[template(path = "report.html", config = "src/cli/drill/askama.toml")]
struct Page<'a> {
    report: &'a Report,
    version: &'static str,
    profile: &'static str,
    /// Seconds that the drill took.
    length: String,
    width: u64,
    height: u64,
    lanes: Vec<Lane>,
    ribbons: Vec<Ribbon>,
    gaps: Vec<GapMark>,
    /// Position and text of each second.
    ticks: Vec<(u64, u64)>,
}

impl Page<'_> {
    fn seconds(&self, us: &u64) -> String {
        seconds(*us)
    }

    fn ms(&self, us: &u64) -> String {
        ms(*us)
    }

    fn class_text(&self, class: &usize) -> String {
        class_text(*class)
    }
}

struct Lane {
    name: String,
    y: u64,
    /// Times in which the node led.
    leads: Vec<(String, String)>,
    /// Times in which the node was down or paused.
    away: Vec<(String, String)>,
    marks: Vec<Mark>,
}

/// The mark of a fault at a node.
struct Mark {
    x: String,
    sign: &'static str,
    title: String,
}

struct Ribbon {
    name: String,
    y: u64,
    height: u64,
    grants: usize,
    tokens: Option<(FencingToken, FencingToken)>,
    owners: Vec<Owner>,
}

/// The holds of one owner of a lock, as the path of a line.
struct Owner {
    name: String,
    colour: usize,
    path: String,
}

struct GapMark {
    x: String,
    width: String,
    text: String,
    /// Labels alternate between two heights.
    y: u64,
}

pub(super) fn page(timeline: &Timeline, report: &Report) -> Result<String, askama::Error> {
    let width = WIDTH_MIN.max(timeline.ended_us * SECOND_WIDTH / 1_000_000);
    let scale = Scale { width, ended_us: timeline.ended_us.max(1) };
    let lanes: Vec<_> = IDS.into_iter().map(|id| scale.lane(id, timeline)).collect();
    let mut y = TOP + NODE_HEIGHT * lanes.len() as u64 + 8;
    let mut ribbons = Vec::new();
    for lock in 0..SHARED_LOCKS {
        let ribbon = scale.ribbon(lock, y, timeline);
        y += ribbon.height + 8;
        ribbons.push(ribbon);
    }
    let ticks = (0..=timeline.ended_us / 1_000_000).map(|second| (scale.at(second * 1_000_000) as u64, second));
    let page = Page {
        report,
        version: env!("CARGO_PKG_VERSION"),
        profile: env!("LOCKKEEPER_PROFILE"),
        length: seconds(timeline.ended_us),
        width,
        height: y + 18,
        lanes,
        ribbons,
        gaps: scale.gaps(report),
        ticks: ticks.collect(),
    };
    page.render()
}

/// The relation of times to positions.
struct Scale {
    width: u64,
    ended_us: u64,
}

impl Scale {
    fn at(&self, us: u64) -> f64 {
        us.min(self.ended_us) as f64 * self.width as f64 / self.ended_us as f64
    }

    /// The position and the width of a span, which is never invisible.
    fn span(&self, from_us: u64, to_us: u64) -> (String, String) {
        let (from, to) = (self.at(from_us), self.at(to_us));
        (format!("{from:.1}"), format!("{:.1}", (to - from).max(0.5)))
    }

    fn gaps(&self, report: &Report) -> Vec<GapMark> {
        let gaps = report.faults.iter().zip([14, 30].into_iter().cycle());
        let mark = |(of, y): (&super::report::FaultGap, u64)| {
            let (x, width) = self.span(of.gap.from_us, of.gap.from_us + of.gap.next_grant_us);
            GapMark { x, width, text: format!("{} ms", of.gap.next_grant_us / 1000), y }
        };
        gaps.map(mark).collect()
    }

    fn lane(&self, id: u64, timeline: &Timeline) -> Lane {
        let y = TOP + (id - 1) * NODE_HEIGHT;
        let states: Vec<_> = timeline.states.iter().filter(|(_, node, _)| *node == id).collect();
        // Each state lasts until the next one of the node, and the last one until the end of the drill.
        let ends = states.iter().skip(1).map(|(at, ..)| *at).chain([timeline.ended_us]);
        let spans: Vec<_> = states.iter().zip(ends).map(|((at, _, state), end)| (*at, end, *state)).collect();
        let away =
            spans.iter().filter(|(.., state)| *state != NodeState::Up).map(|(from, to, _)| self.span(*from, *to));
        let ends = timeline.leaders.iter().skip(1).map(|(at, _)| *at).chain([timeline.ended_us]);
        let led = timeline.leaders.iter().zip(ends).filter(|((_, leader), _)| *leader == Some(id));
        // A node that ends leads no longer, although the change of the leader is noticed later.
        let until = |from: u64, to: u64| {
            let left = spans.iter().find(|(at, _, state)| from < *at && *state != NodeState::Up);
            left.map_or(to, |(at, ..)| to.min(*at))
        };
        let leads = led.map(|((from, _), to)| self.span(*from, until(*from, to)));
        let marks = timeline.faults.iter().filter(|fault| fault.nodes.contains(&id)).map(|fault| self.mark(fault));
        Lane { name: format!("node {id}"), y, leads: leads.collect(), away: away.collect(), marks: marks.collect() }
    }

    fn mark(&self, fault: &Fault) -> Mark {
        let sign = match fault.kind {
            Kind::Kill | Kind::All => "✕",
            Kind::Pause => "‖",
            Kind::Stop => "■",
            Kind::Transfer => "➜",
        };
        let title = format!("{} at {} s, round {}", fault.kind.name(), seconds(fault.at_us), fault.round);
        Mark { x: format!("{:.1}", self.at(fault.at_us)), sign, title }
    }

    fn ribbon(&self, lock: usize, y: u64, timeline: &Timeline) -> Ribbon {
        let mut holds: Vec<&Hold> = timeline.holds.iter().filter(|hold| hold.lock == lock).collect();
        holds.sort_by_key(|hold| hold.granted_us);
        let mut owners: Vec<(usize, String)> = Vec::new();
        // Holders at the same time are below each other: each is in the first line that is free.
        let mut lines: Vec<u64> = Vec::new();
        for hold in &holds {
            let ended = hold.ended_us.unwrap_or(timeline.ended_us);
            let free = lines.iter().position(|until| *until <= hold.granted_us).unwrap_or(lines.len());
            lines.resize(lines.len().max(free + 1), 0);
            lines[free] = ended;
            let known = owners.iter().position(|(client, _)| *client == hold.client);
            let index = known.unwrap_or_else(|| {
                owners.push((hold.client, String::new()));
                owners.len() - 1
            });
            let (x, width) = self.span(hold.granted_us, ended);
            let middle = y + HOLDER_HEIGHT * free as u64 + HOLDER_HEIGHT / 2;
            // Writing to a string cannot fail.
            let _ = write!(owners[index].1, "M{x} {middle}h{width}");
        }
        owners.sort_unstable();
        let owner = |(place, (client, path)): (usize, (usize, String))| Owner {
            name: timeline.clients[client].clone(),
            colour: place % COLOURS,
            path,
        };
        Ribbon {
            name: timeline.locks[lock].name.clone(),
            y,
            height: HOLDER_HEIGHT * (lines.len() as u64).max(1),
            grants: holds.len(),
            tokens: holds.iter().map(|hold| hold.token).min().zip(holds.iter().map(|hold| hold.token).max()),
            owners: owners.into_iter().enumerate().map(owner).collect(),
        }
    }
}
