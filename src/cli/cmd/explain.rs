//! `explain`: the tree of waiters, what blocks them, and what would end the wait.

use std::collections::BTreeSet;

use clap::Args;

use crate::cli::connect::Client;
use crate::cli::error::{Failure, YES};
use crate::cli::output::Output;
use crate::cli::text::{ago, called, closed_for, short};
use crate::client::{ClientError, ReadAt};
use crate::model::{
    About, ExplainedWait, Explanation, Health, LockKey, LockName, LogTime, Obstacle, Participant, SessionId, WaitReason,
};
use crate::shapes::Explained;

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(in crate::cli) struct ExplainOptions {
    /// Name of the lock; needed without --session
    #[arg(value_parser = LockName::parse)]
    name: Option<LockName>,
    /// Explain what this session waits for instead of a lock [default: none]
    #[arg(long, value_name = "ID")]
    session: Option<SessionId>,
}

/// Explains the waits of a lock or of a session.
pub(in crate::cli) async fn run(client: &Client, options: ExplainOptions, output: &Output) -> Result<u8, Failure> {
    let about = match (&options.name, options.session) {
        (_, Some(session)) => About::Session(session),
        (Some(name), None) => client.about(name.as_str())?,
        (None, None) => {
            return Err(Failure::usage("<NAME>", "explain what? Name a lock, or a session with --session"));
        }
    };
    let ReadAt { now, value, .. } = client.explain(about).await?;
    let name = options.name.as_ref().map(ToString::to_string);
    if output.json {
        output.object(&Explained::new(name, &value, now))?;
        return Ok(YES);
    }
    let subject = name.unwrap_or_else(|| options.session.map_or(String::new(), |session| format!("session {session}")));
    for line in lines(client, &subject, &value, now).await? {
        output.line(line)?;
    }
    Ok(YES)
}

/// Returns the lines of the text. If nothing is in the way of a wait, the cluster may have been restored from a backup,
/// and the last line says until when it grants nothing.
pub(in crate::cli) async fn lines(
    client: &Client,
    subject: &str,
    explanation: &Explanation,
    now: LogTime,
) -> Result<Vec<String>, ClientError> {
    let mut lines = lines_of(subject, explanation, now);
    if explanation.chain.iter().any(|wait| wait.waits_for.is_empty()) {
        let closed_ms = client.status().await?.closed_ms;
        if closed_ms != 0 {
            lines.push(closed_for(closed_ms));
        }
    }
    Ok(lines)
}

fn lines_of(subject: &str, explanation: &Explanation, now: LogTime) -> Vec<String> {
    let mut drawing = Drawing { explanation, now, printed: BTreeSet::new(), lines: Vec::new() };
    for wait in &explanation.chain {
        drawing.wait(wait, 0, "");
    }
    let mut lines = drawing.lines;
    if explanation.chain.is_empty() {
        lines.push(if explanation.freed_by.is_empty() {
            format!("{subject}: no client waits for it or holds it")
        } else {
            format!("{subject}: no client waits")
        });
    }
    lines.extend(explanation.freed_by.iter().map(|end| freed(end, now)));
    let closed = explanation.chain.iter().flat_map(|wait| &wait.waits_for).any(|one| one.why == WaitReason::Closed);
    let blocked = explanation.chain.iter().all(|wait| !wait.waits_for.is_empty()) && !explanation.chain.is_empty();
    if blocked && explanation.freed_by.is_empty() && !closed && !explanation.more {
        lines.push("they wait for each other until one of them gives up, or its hold is broken".into());
    }
    if explanation.more {
        lines.push("… and more that is left out here; `lockkeeper show NAME` lists a whole queue".into());
    }
    lines
}

struct Drawing<'a> {
    explanation: &'a Explanation,
    now: LogTime,
    /// The waits that have a line.
    printed: BTreeSet<(u64, &'a LockKey)>,
    lines: Vec<String>,
}

impl<'a> Drawing<'a> {
    fn line(&mut self, depth: usize, text: String) {
        let stem = if depth == 0 { String::new() } else { format!("{}└─ ", "   ".repeat(depth - 1)) };
        self.lines.push(stem + &text);
    }

    /// Prints a wait and what blocks it. Each wait is printed once.
    fn wait(&mut self, wait: &'a ExplainedWait, depth: usize, run: &str) {
        if !self.printed.insert((wait.sequence, &wait.lock)) {
            if depth != 0 {
                let text = format!("{run}{} waits for {} (see above)", named(&wait.waiter), wait.lock.name);
                self.line(depth, text);
            }
            return;
        }
        let since = ago(self.now, wait.waiter.since);
        let gives_up = wait.until.map_or(String::new(), |until| {
            let left = short(until.ms_since(self.now));
            format!(", at most {left} more")
        });
        let (who, what_for, life) = (named(&wait.waiter), what_for(&wait.waiter), life(&wait.waiter, self.now));
        let text = format!("{run}{who} has waited {since} for {}{gives_up}{life}{what_for}", wait.lock.name);
        self.line(depth, text);
        for obstacle in &wait.waits_for {
            self.obstacle(obstacle, depth + 1);
        }
    }

    fn obstacle(&mut self, obstacle: &'a Obstacle, depth: usize) {
        let Obstacle { lock, why, who, .. } = obstacle;
        let (name, since, life) = (&lock.name, ago(self.now, who.since), life(who, self.now));
        let text = match why {
            WaitReason::Holds => {
                let recalled = if who.recalled { ", recalled" } else { "" };
                let token = who.token.map_or(String::new(), |token| format!(" (token {token}{recalled})"));
                format!("{name} is held by {}{token} for {since}{life}{}", named(who), what_for(who))
            }
            WaitReason::Closed => {
                let left = left(who, self.now).map_or(String::new(), |left| format!(" for {left} more"));
                format!("{name} is kept closed{left} by the hold of {}", named(who))
            }
            WaitReason::StandsAhead | WaitReason::Nested => format!("behind {} for {name}", named(who)),
        };
        self.line(depth, text);
        let explanation = self.explanation;
        for wait in &explanation.chain {
            let party = who.session.zip(who.owner.as_ref());
            let own = party.is_some() && party == wait.waiter.session.zip(wait.waiter.owner.as_ref());
            let nested = wait.parent.as_ref().map(|parent| (parent.session, &parent.owner));
            let follows = match why {
                WaitReason::Holds => own || (party.is_some() && nested == party),
                // A waiter ahead has its own line later, unless it is in another queue.
                WaitReason::StandsAhead => Some(wait.sequence) == obstacle.sequence && wait.lock != *lock,
                WaitReason::Closed | WaitReason::Nested => false,
            };
            if follows {
                self.wait(wait, depth + 1, if own || *why != WaitReason::Holds { "" } else { "its nested run " });
            }
        }
    }
}

fn named(who: &Participant) -> String {
    let session = who.session.map_or("a lease".to_owned(), |session| format!("session {session}"));
    let owner = who.owner.as_ref().map_or(String::new(), |owner| format!(", {owner}"));
    format!("{} [{session}{owner}]", called(&who.metadata))
}

fn what_for(who: &Participant) -> String {
    if who.metadata.why.is_empty() { String::new() } else { format!(": {}", who.metadata.why) }
}

/// The problem of a session, or an empty string if it has none.
fn life(who: &Participant, now: LogTime) -> String {
    let ends = left(who, now).map_or(String::new(), |left| format!(", ends in {left}"));
    match who.health {
        Health::Live | Health::Lease => String::new(),
        Health::Overdue => format!(" (not renewed lately{ends})"),
        Health::Disconnected => format!(" (disconnected{ends})"),
        Health::Gone => " (its session is gone)".to_owned(),
    }
}

/// How long until the hold or wait ends without a release.
fn left(who: &Participant, now: LogTime) -> Option<String> {
    who.ends.map(|ends| short(ends.ms_since(now)))
}

/// What ends the wait.
fn freed(end: &Obstacle, now: LogTime) -> String {
    let Obstacle { lock, who, .. } = end;
    let token = who.token.map_or(String::new(), |token| format!(" (token {token})"));
    if end.why == WaitReason::Closed {
        let when = left(who, now).map_or("later".to_owned(), |left| format!("in {left}"));
        let name = called(&who.metadata);
        return format!("{} opens automatically {when}: the ended hold of {name}{token} keeps it closed", lock.name);
    }
    let at_last = left(who, now).map_or(String::new(), |left| match who.health {
        Health::Lease => format!(", or does not refresh its lease within {left}"),
        Health::Live | Health::Overdue | Health::Disconnected | Health::Gone => {
            format!(", or is disconnected for {left}")
        }
    });
    format!("free when {} releases {}{token}{at_last}", called(&who.metadata), lock.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{FencingToken, LockName, Metadata, Mode, Namespace, Owner, SessionId};

    fn lock(name: &str) -> LockKey {
        LockKey { namespace: Namespace::default(), name: LockName::parse(name).expect("legal") }
    }

    fn who(name: &str, number: u64, token: Option<u64>, since: u64) -> Participant {
        Participant {
            session: Some(SessionId::new(0, number)),
            owner: Some(Owner::parse(&format!("run-{number}")).expect("legal")),
            metadata: Metadata { who: name.into(), ..Metadata::default() },
            token: token.map(|token| FencingToken::new(0, token)),
            mode: Mode::Exclusive,
            since: LogTime(since),
            health: Health::Live,
            ends: Some(LogTime(30_000)),
            recalled: false,
        }
    }

    fn wait(name: &str, sequence: u64, waiter: Participant, waits_for: Vec<Obstacle>) -> ExplainedWait {
        ExplainedWait { lock: lock(name), place: 1, sequence, waiter, parent: None, until: None, waits_for }
    }

    fn at(name: &str, why: WaitReason, sequence: Option<u64>, who: Participant) -> Obstacle {
        Obstacle { lock: lock(name), why, sequence, who }
    }

    /// A chain over two locks is printed from the waiter to the last holder, with each wait once.
    #[test]
    fn a_chain_is_drawn_to_its_end() {
        let carol = at("db", WaitReason::Holds, None, who("carol", 3, Some(4), 0));
        let bob = at("a", WaitReason::Holds, None, who("bob", 2, Some(5), 8_000));
        let chain = vec![
            wait("a", 1, who("ann", 1, None, 9_000), vec![bob.clone()]),
            wait("db", 2, who("bob", 2, None, 9_000), vec![carol.clone()]),
            wait(
                "a",
                3,
                who("dan", 4, None, 19_000),
                vec![bob, at("a", WaitReason::StandsAhead, Some(1), who("ann", 1, None, 9_000))],
            ),
        ];
        let explanation = Explanation { chain, freed_by: vec![carol], more: false };
        let expected = [
            "ann [session 1, run-1] has waited 11s for a",
            "└─ a is held by bob [session 2, run-2] (token 5) for 12s",
            "   └─ bob [session 2, run-2] has waited 11s for db",
            "      └─ db is held by carol [session 3, run-3] (token 4) for 20s",
            "dan [session 4, run-4] has waited 1s for a",
            "└─ a is held by bob [session 2, run-2] (token 5) for 12s",
            "   └─ bob [session 2, run-2] waits for db (see above)",
            "└─ behind ann [session 1, run-1] for a",
            "free when carol releases db (token 4), or is disconnected for 10s",
        ];
        assert_eq!(lines_of("a", &explanation, LogTime(20_000)), expected);
    }

    /// The line of a cached hold that is recalled says so: its session releases it after the current use.
    #[test]
    fn a_recalled_hold_says_so() {
        let recalled = Participant { recalled: true, ..who("bob", 2, Some(5), 0) };
        let held = at("a", WaitReason::Holds, None, recalled);
        let chain = vec![wait("a", 1, who("ann", 1, None, 0), vec![held.clone()])];
        let lines = lines_of("a", &Explanation { chain, freed_by: vec![held], more: false }, LogTime(1_000));
        assert_eq!(lines[1], "└─ a is held by bob [session 2, run-2] (token 5, recalled) for 1s");
    }

    /// A name that is closed only because of a hold that has ended opens automatically. No holder has to release
    /// anything.
    #[test]
    fn a_closed_name_opens_automatically() {
        let closed = at("a", WaitReason::Closed, None, who("bob", 2, Some(5), 0));
        let lines = lines_of("a", &Explanation { chain: vec![], freed_by: vec![closed], more: false }, LogTime(20_000));
        let expected =
            ["a: no client waits", "a opens automatically in 10s: the ended hold of bob (token 5) keeps it closed"];
        assert_eq!(lines, expected);
    }

    /// There is no cycle if nothing is in the way of a wait, as in a cluster that grants nothing yet.
    #[test]
    fn a_wait_that_nothing_blocks_is_no_cycle() {
        let ahead = at("a", WaitReason::StandsAhead, Some(1), who("ann", 1, None, 0));
        let chain =
            vec![wait("a", 1, who("ann", 1, None, 0), vec![]), wait("a", 2, who("bob", 2, None, 0), vec![ahead])];
        let lines = lines_of("a", &Explanation { chain, freed_by: vec![], more: false }, LogTime(1_000));
        assert_eq!(lines.last().map(String::as_str), Some("└─ behind ann [session 1, run-1] for a"));
    }

    /// The lines say when there is a cycle, and when no client uses the name.
    #[test]
    fn cycles_and_free_names_have_lines() {
        let ann = at("b", WaitReason::Holds, None, who("bob", 2, Some(2), 0));
        let bob = at("a", WaitReason::Holds, None, who("ann", 1, Some(1), 0));
        let chain =
            vec![wait("b", 1, who("ann", 1, None, 0), vec![ann]), wait("a", 2, who("bob", 2, None, 0), vec![bob])];
        let lines = lines_of("b", &Explanation { chain, freed_by: vec![], more: false }, LogTime(1_000));
        assert!(lines.iter().any(|line| line.ends_with("(see above)")), "{lines:?}");
        assert!(lines.last().is_some_and(|line| line.starts_with("they wait for each other")), "{lines:?}");
        assert_eq!(lines_of("b", &Explanation::default(), LogTime(0)), ["b: no client waits for it or holds it"]);
    }
}
