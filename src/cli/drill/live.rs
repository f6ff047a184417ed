//! The live view of a drill in a terminal: several lines, and a line for each round that has ended.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use indicatif::ProgressBar;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::contenders::EXCLUSIVE;
use super::figures::gap;
use super::journal::{Fault, Journal, Kind, NodeState, Timeline};
use super::nodes::IDS;
use crate::cli::connect::Client;
use crate::cli::output::Output;
use crate::limits::{DRILL_ANSWER_MS, DRILL_LOOK_MS};
use crate::service::LockService;

/// The view, and the task that observes which node leads.
pub(super) struct Live {
    journal: Arc<Journal>,
    bar: ProgressBar,
    rounds: u32,
    _looks: JoinSet<()>,
}

impl Live {
    pub(super) fn start(rounds: u32, journal: &Arc<Journal>, client: &Client, output: &Output) -> Self {
        let bar = output.progress("{msg}");
        let mut looks = JoinSet::new();
        looks.spawn(look(rounds, Arc::clone(journal), client.clone(), bar.clone()));
        Self { journal: Arc::clone(journal), bar, rounds, _looks: looks }
    }

    /// Prints a line about a round that has ended. Without a terminal the bar is hidden and prints nothing.
    pub(super) fn round(&self, round: u32) {
        let line = line(&self.journal.lock(), round, self.rounds);
        self.bar.println(line);
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// Observes the leader and draws the view.
async fn look(rounds: u32, journal: Arc<Journal>, client: Client, bar: ProgressBar) {
    loop {
        let status = timeout(Duration::from_millis(DRILL_ANSWER_MS), client.service().status()).await;
        journal.leader(status.ok().and_then(Result::ok).and_then(|status| status.leader));
        if !bar.is_hidden() {
            bar.set_message(view(&journal.lock(), rounds, journal.now()));
        }
        sleep(Duration::from_millis(DRILL_LOOK_MS)).await;
    }
}

fn view(timeline: &Timeline, rounds: u32, now_us: u64) -> String {
    let fault = timeline.faults.last();
    let round = fault.map_or(1, |fault| fault.round);
    let what = fault.map_or(String::new(), |fault| format!(": {}", what(fault)));
    let second_ago = now_us.saturating_sub(1_000_000);
    let recent = timeline.holds.iter().rev().take_while(|hold| second_ago <= hold.granted_us);
    let a_second = recent.filter(|hold| hold.lock == EXCLUSIVE).count();
    let mut text = format!("round {round} of {rounds}{what}\n");
    for id in IDS {
        let state = timeline.states.iter().rev().find(|(_, node, _)| *node == id).map(|(_, _, state)| *state);
        let leads = timeline.leaders.last().is_some_and(|(_, leader)| *leader == Some(id));
        let shown = match (state, leads) {
            (Some(NodeState::Down) | None, _) => "✕ down",
            (Some(NodeState::Paused), _) => "‖ paused",
            (Some(NodeState::Up), true) => "● leads",
            (Some(NodeState::Up), false) => "○ follows",
        };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  node {id}  {shown}");
    }
    let _ = write!(text, "  {a_second} hand-overs a second, {} grants", timeline.holds.len());
    text
}

/// The line about a round that has ended.
fn line(timeline: &Timeline, round: u32, rounds: u32) -> String {
    let faults = timeline.faults.iter().filter(|fault| fault.round == round);
    let texts = faults.map(|fault| {
        let gap = gap(timeline, fault);
        format!("{} {} ms", what(fault), gap.next_grant_us / 1000)
    });
    format!("round {round} of {rounds}: without a grant after {}", texts.collect::<Vec<_>>().join(", "))
}

fn what(fault: &Fault) -> String {
    match (fault.kind, fault.nodes.as_slice()) {
        (Kind::Kill | Kind::Pause | Kind::Stop, [id]) => format!("{} node {id}", fault.kind.name()),
        (Kind::Transfer, [id]) => format!("transfer to node {id}"),
        (Kind::Kill | Kind::Pause | Kind::Stop | Kind::Transfer | Kind::All, _) => "all nodes".to_owned(),
    }
}
