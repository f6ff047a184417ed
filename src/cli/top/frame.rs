//! Draws a frame as lines of text, and a text that may be longer than the terminal in parts.

use indicatif::HumanCount;

use super::cells::{cut, padded, wrapped};
use super::view::{LockRow, NodeRow, Order, View};
use crate::cli::output::plain;
use crate::cli::text::short;

/// What the user has chosen.
#[derive(Debug, Clone, Default)]
pub(super) struct Chosen {
    pub(super) prefix: String,
    pub(super) order: Order,
    /// The lock on which the keys act.
    pub(super) lock: Option<String>,
}

/// The size of the terminal, in cells.
#[derive(Debug, Clone, Copy)]
pub(super) struct Size {
    pub(super) columns: usize,
    pub(super) lines: usize,
}

/// Widths of the columns of locks, after the name.
const LOCK_COLUMNS: &str = "SINCE     WAIT   LONGEST  STATE";
const STATE_COLUMNS: usize = 12;
const NODES_HEADING: &str = "NODE ROLE        APPLIED    LAG COMMIT p99 FSYNC p99   CPU     RSS NOT COUNTED";

/// Returns the lines of a frame, each at most as wide as the terminal. The locks, in their order in the view, fill
/// what is left of its height.
pub(super) fn frame(view: &View, chosen: &Chosen, size: Size) -> Vec<String> {
    let mut lines = vec![headline(view), NODES_HEADING.to_owned()];
    lines.extend(view.nodes.iter().map(node));
    lines.extend(view.notes.iter().map(|note| format!("! {note}")));
    let left = size.lines.saturating_sub(lines.len() + 2);
    lines.extend(locks(view, chosen, size.columns, left));
    lines.into_iter().map(|line| cut(&plain(&line), size.columns)).collect()
}

/// The last line of a frame on a terminal: the keys.
pub(super) fn keys(chosen: &Chosen) -> String {
    format!("f filter  s sort ({})  enter explain  a ask  q quit", chosen.order.word())
}

fn headline(view: &View) -> String {
    let View { cluster, term, sessions, held, waiting, .. } = view;
    let leader = view.leader.map_or_else(
        || format!("no node leads, term {term}"),
        |leader| format!("node {leader} leads, term {term} ({})", units(view.led_ms, 1)),
    );
    let healthy = view.nodes.iter().filter(|node| node.healthy).count();
    let nodes = view.nodes.len();
    format!("{cluster}  {leader}  {healthy}/{nodes} nodes  sessions {sessions}  held {held}  waiting {waiting}")
}

fn node(row: &NodeRow) -> String {
    let role = if row.healthy { row.role } else { "unreachable" };
    let unknown = || "-".to_owned();
    let milliseconds = |us: Option<u64>| us.map_or_else(unknown, |us| format!("{:.1} ms", us as f64 / 1_000.0));
    let number = |number: Option<u64>| number.map_or_else(unknown, |number| HumanCount(number).to_string());
    let cpu = row.cpu_percent.map_or_else(unknown, |percent| format!("{percent} %"));
    let memory = row.memory_bytes.map_or_else(unknown, |bytes| format!("{} MB", bytes >> 20));
    let uncounted = row.uncounted_ms.map_or_else(unknown, |ms| format!("{:.1} s", ms as f64 / 1_000.0));
    let (applied, lag) = (number(row.applied), number(row.behind));
    let (commit, fsync) = (milliseconds(row.commit_us), milliseconds(row.fsync_us));
    format!(
        "{:<4} {role:<11} {applied:>7} {lag:>6} {commit:>10} {fsync:>9} {cpu:>5} {memory:>7} {uncounted:>11}",
        row.id
    )
}

fn locks(view: &View, chosen: &Chosen, columns: usize, most: usize) -> Vec<String> {
    let rows = &view.locks;
    // Two columns for the mark, four gaps, and the fixed columns.
    let free = columns.saturating_sub(2 + 4 + LOCK_COLUMNS.len() - "STATE".len() + STATE_COLUMNS).max(20);
    let (name, holder) = (free / 2, free - free / 2);
    let title = if chosen.prefix.is_empty() { "LOCK".to_owned() } else { format!("LOCK {}*", chosen.prefix) };
    let mut lines = vec![format!("  {}  {:<holder$}  {LOCK_COLUMNS}", padded(&cut(&title, name), name), "HOLDER")];
    // Without a leader the locks were not read, and a note says so.
    if rows.is_empty() && view.leader.is_some() {
        // The counts of the first line are those of all namespaces.
        let which = if chosen.prefix.is_empty() { "of this namespace" } else { "with this prefix" };
        lines.push(format!("  no lock {which} is held"));
    }
    // The chosen lock stays visible.
    let at = rows.iter().position(|row| Some(&row.lock) == chosen.lock.as_ref()).unwrap_or_default();
    let first = at.saturating_sub(most.saturating_sub(1));
    lines.extend(rows.iter().skip(first).take(most).map(|row| lock(row, chosen, [name, holder])));
    if view.more || most < rows.len() - first {
        lines.push("  … more: filter by a prefix".to_owned());
    }
    lines
}

fn lock(row: &LockRow, chosen: &Chosen, [name, holder]: [usize; 2]) -> String {
    let mark = if Some(&row.lock) == chosen.lock.as_ref() { '>' } else { ' ' };
    let column = |text: &str, columns| padded(&cut(&plain(text), columns), columns);
    let (lock, by) = (column(&row.lock, name), column(row.holder.as_deref().unwrap_or("-"), holder));
    let time = |ms: Option<u64>| ms.map_or_else(|| "-".to_owned(), |ms| units(ms, 2));
    let (since, longest) = (time(row.held_ms), time(row.longest_wait_ms));
    format!("{mark} {lock}  {by}  {since:<8}  {:>4}  {longest:>8}  {}", row.waiters, row.state.unwrap_or_default())
        .trim_end()
        .to_owned()
}

/// A duration with this many of its largest units at most.
fn units(ms: u64, most: usize) -> String {
    let whole = if ms < 1_000 { ms } else { ms / 1_000 * 1_000 };
    short(whole).split_whitespace().take(most).collect::<Vec<_>>().join(" ")
}

/// A text, and the line from which it is shown.
pub(super) struct Reading {
    lines: Vec<String>,
    first: usize,
    /// The largest `first`, by the last part.
    last: usize,
}

impl Reading {
    pub(super) fn new(lines: Vec<String>) -> Self {
        Self { lines, first: 0, last: 0 }
    }

    /// Moves by lines, at most to an end. Returns false if the text fits, so that no part follows.
    pub(super) fn step(&mut self, by: isize) -> bool {
        self.first = self.first.saturating_add_signed(by).min(self.last);
        self.last != 0
    }

    /// Returns the lines that fit, and below them the keys and how many lines follow.
    pub(super) fn part(&mut self, size: Size) -> Vec<String> {
        let all: Vec<_> = self.lines.iter().flat_map(|line| wrapped(line, size.columns)).collect();
        let most = size.lines.saturating_sub(1);
        self.last = all.len().saturating_sub(most);
        self.first = self.first.min(self.last);
        let below = all.len().saturating_sub(self.first + most);
        let keys = match (self.first, below) {
            (0, 0) => "any key: back".to_owned(),
            (_, 0) => "up: before this  any other key: back".to_owned(),
            (_, 1) => "… 1 more line: down  any other key: back".to_owned(),
            (_, below) => format!("… {below} more lines: down  any other key: back"),
        };
        all.into_iter().skip(self.first).take(most).chain([cut(&keys, size.columns)]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::cells::width;
    use super::*;

    fn view() -> View {
        let node = |id, role, healthy| NodeRow {
            id,
            role,
            healthy,
            applied: Some(884_113),
            behind: Some(0),
            commit_ms: Some(2),
            commit_us: Some(2_100),
            fsync_ms: Some(1),
            fsync_us: Some(1_200),
            cpu_percent: Some(12),
            memory_bytes: Some(88 << 20),
            uncounted_ms: Some(0),
        };
        let lock = |lock: &str, held_ms, waiters, longest| LockRow {
            lock: lock.to_owned(),
            holder: Some("ci@build4 (77)".to_owned()),
            token: Some("31".to_owned()),
            held_ms: Some(held_ms),
            waiters,
            longest_wait_ms: longest,
            state: longest.map(|_| "overdue"),
        };
        View {
            cluster: "harbour".to_owned(),
            leader: Some(2),
            term: 7,
            led_ms: 273_600_000,
            sessions: 96,
            held: 412,
            waiting: 37,
            nodes: vec![node(1, "follower", false), node(2, "leader", true)],
            locks: vec![
                lock("a", 9_000_000, 0, None),
                lock("db-migrate\u{202e}", 7_261_000, 1, Some(7_200_000)),
                lock(&"long".repeat(40), 5, 3, Some(1_500)),
                lock(&"每夜的锁".repeat(10), 4, 1, Some(1_400)),
            ],
            more: false,
            notes: vec!["node 1: no metrics: 127.0.0.1:7621: refused".to_owned()],
        }
    }

    fn sorted() -> View {
        let mut view = view();
        Order::LongestWait.sort(&mut view.locks);
        view
    }

    /// A frame fits into 80 and 120 columns. Names cannot act on the terminal.
    #[test]
    fn a_frame_fits() {
        let chosen = Chosen { lock: Some("a".to_owned()), ..Chosen::default() };
        for columns in [80, 120] {
            let lines = frame(&sorted(), &chosen, Size { columns, lines: 24 });
            assert!(lines.iter().all(|line| width(line) <= columns), "{lines:#?}");
            assert!(lines[0].starts_with("harbour  node 2 leads, term 7 (3days)  1/2 nodes"), "{}", lines[0]);
            assert!(
                lines[3] == "2    leader      884,113      0     2.1 ms    1.2 ms  12 %   88 MB       0.0 s",
                "{lines:#?}"
            );
            let names: Vec<_> = lines[6..10].iter().map(|line| line.chars().take(6).collect::<String>()).collect();
            assert_eq!(names, ["  db-m", "  long", "  每夜的锁", "> a   "], "the order is that of the view");
            let begins = lines[5..10].iter().map(|line| width(line.split("ci@build4").next().unwrap_or_default()));
            let heading = width(lines[5].split("HOLDER").next().unwrap_or_default());
            assert!(begins.skip(1).all(|begin| begin == heading), "the columns are aligned: {lines:#?}");
            assert!(lines[6].contains("db-migrate\\u{202e}") && lines[6].ends_with("2h  overdue"), "{}", lines[6]);
        }
    }

    /// Without a leader, no node has led in the term.
    #[test]
    fn a_term_without_a_leader_has_no_age() {
        let line = headline(&View { leader: None, led_ms: 0, ..view() });
        assert!(line.starts_with("harbour  no node leads, term 7  1/2 nodes"), "{line}");
    }

    /// Without a leader, a frame does not say that no lock is held: the locks were not read.
    #[test]
    fn a_frame_without_a_leader_lists_nothing() {
        let notes = vec!["the locks are not known while no node leads".to_owned()];
        let unread = View { leader: None, led_ms: 0, locks: Vec::new(), notes, ..view() };
        let lines = frame(&unread, &Chosen::default(), Size { columns: 80, lines: 24 });
        assert!(lines.contains(&"! the locks are not known while no node leads".to_owned()), "{lines:#?}");
        assert!(lines.last().is_some_and(|line| line.starts_with("  LOCK")), "{lines:#?}");
    }

    /// A list without locks names what was looked for, because the counts are those of all namespaces.
    #[test]
    fn an_empty_list_says_of_what() {
        let empty = View { locks: Vec::new(), ..view() };
        let last = |prefix: &str| {
            let chosen = Chosen { prefix: prefix.to_owned(), ..Chosen::default() };
            frame(&empty, &chosen, Size { columns: 80, lines: 24 }).pop()
        };
        assert_eq!(last("").as_deref(), Some("  no lock of this namespace is held"));
        assert_eq!(last("night").as_deref(), Some("  no lock with this prefix is held"));
    }

    /// The chosen lock stays visible in a low terminal, and the frame names that there is more.
    #[test]
    fn the_chosen_lock_stays_visible() {
        let chosen = Chosen { lock: Some("a".to_owned()), ..Chosen::default() };
        let lines = frame(&sorted(), &chosen, Size { columns: 80, lines: 8 });
        assert!(lines.iter().any(|line| line.starts_with("> a")), "{lines:#?}");
        assert!(lines.len() <= 8, "{lines:#?}");
    }

    /// The order is that of the longest wait, the longest hold, or the name.
    #[test]
    fn locks_are_sorted() {
        let first = |order: Order| {
            let mut rows = view().locks;
            order.sort(&mut rows);
            rows[0].lock.chars().next()
        };
        let orders = [Order::LongestWait, Order::LongestHold, Order::Name];
        assert_eq!(orders.map(first), [Some('d'), Some('a'), Some('a')]);
    }

    /// A text that fits is shown whole. Of a longer one the last line counts what follows, and keys reach its end.
    #[test]
    fn what_does_not_fit_is_reached() {
        let size = Size { columns: 60, lines: 4 };
        let mut short = Reading::new(vec!["a".to_owned(), "b".to_owned()]);
        assert_eq!(short.part(size), ["a", "b", "any key: back"]);
        assert!(!short.step(1));
        let mut long = Reading::new((1..=6).map(|number| number.to_string()).collect());
        assert_eq!(long.part(size), ["1", "2", "3", "… 3 more lines: down  any other key: back"]);
        assert!(long.step(-1) && long.step(2));
        assert_eq!(long.part(size), ["3", "4", "5", "… 1 more line: down  any other key: back"]);
        assert!(long.step(9));
        assert_eq!(long.part(size), ["4", "5", "6", "up: before this  any other key: back"]);
        assert!(long.step(-1));
        assert_eq!(long.part(size)[0], "3", "a step beyond the end does not count");
    }
}
