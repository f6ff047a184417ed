//! Runs every file in `src/machine/scripts`. Commands are above `---`, the machine's output is below. With
//! `UPDATE_GOLDENFILES=1` the output is written again, to be reviewed and committed.
//!
//! Each command is a separate entry at the stamp that `at` sets. A block that begins with `entry` is one entry.

mod commands;

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;

use goldenscript::{ArgumentConsumer, Block, Context};

use super::mirror::{Watched, entry};
use super::script_documents;
use super::script_words::{self, Names};
use crate::model::*;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// A command or renewal in a block that is one entry, with its actor.
enum Instruction {
    Renewal(Option<String>, Renewal),
    Command(Option<String>, Option<LogTime>, Box<Command>),
}

/// The state of a running script.
#[derive(Default)]
struct Script {
    watched: Watched,
    stamp: u64,
    names: Names,
    /// The id and handle of each session, by the session's name.
    sessions: BTreeMap<String, (SessionId, Handle)>,
    /// The newest request number of each session, by the session's name.
    numbers: BTreeMap<String, u64>,
    /// The newest token, by session and lock.
    tokens: BTreeMap<(SessionId, LockKey), FencingToken>,
    /// The commands so far of a block that is one entry.
    together: Option<Vec<Instruction>>,
    events: Vec<String>,
}

impl goldenscript::Runner for Script {
    type Command = goldenscript::Command;

    fn run(&mut self, command: &Self::Command, context: &Context) -> Result<String> {
        let mut args = command.consume_args();
        let prefix = context.prefix.clone();
        let output = self.step(&command.name, prefix, &mut args)?;
        args.reject_next()?;
        Ok(output)
    }

    fn end_block(&mut self, _: &Block) -> Result<String> {
        let mut lines = Vec::new();
        if let Some(instruction) = self.together.take() {
            lines = self.apply(instruction, true);
        }
        lines.append(&mut self.events);
        self.watched.compare_mirror();
        Ok(lines.join("\n"))
    }
}

impl Script {
    fn step(&mut self, word: &str, who: Option<String>, args: &mut ArgumentConsumer<'_>) -> Result<String> {
        match word {
            "at" => {
                self.stamp = duration(args.next_pos().ok_or("at what time?")?)?;
                return Ok(String::new());
            }
            "entry" => {
                self.together = Some(Vec::new());
                return Ok(String::new());
            }
            "quotas" => return self.quotas(args),
            "burn" => return self.burn(who, args),
            "nodes" => return Ok(script_words::nodes(&self.watched.machine)),
            "documents" | "pings" => {
                let query = script_documents::query(word, args)?;
                return Ok(self.names.answer(&self.watched.machine.query(&query).answer));
            }
            "inspect" | "check" | "would-break" | "list" | "sessions" | "claim" | "totals" | "explain" => {
                let query = self.query(word, who.as_deref(), args)?;
                return Ok(self.names.answer(&self.watched.machine.query(&query).answer));
            }
            _ => {}
        }
        let instruction = match word {
            "renew" | "refresh" => Instruction::Renewal(who.clone(), self.renewal(word, who.as_deref(), args)?),
            _ => {
                let since = args.take_key("since").map(duration).transpose()?.map(LogTime);
                Instruction::Command(who.clone(), since, Box::new(self.command(word, who.as_deref(), args)?))
            }
        };
        if let Some(together) = &mut self.together {
            together.push(instruction);
            return Ok(String::new());
        }
        Ok(self.apply(vec![instruction], false).join("\n"))
    }

    /// Applies one entry. Returns a line for each renewal and command; each line begins with its actor if `named`.
    fn apply(&mut self, instruction: Vec<Instruction>, named: bool) -> Vec<String> {
        let (mut renewals, mut commands, mut renewers, mut callers) = (vec![], vec![], vec![], vec![]);
        let mut times = vec![];
        for instruction in instruction {
            match instruction {
                Instruction::Renewal(who, renewal) => {
                    renewers.push(who);
                    renewals.push(renewal);
                }
                Instruction::Command(who, since, command) => {
                    callers.push(who);
                    times.push(since);
                    commands.push(*command);
                }
            }
        }
        let opens: Vec<_> = commands.iter().map(opened_handle).collect();
        let mut entry = entry(self.stamp, renewals, commands);
        for (submission, since) in entry.commands.iter_mut().zip(times) {
            submission.since = since;
        }
        let applied = self.watched.apply(&entry);
        for ((reply, handle), who) in applied.commands.iter().zip(opens).zip(&callers) {
            if let (Outcome::Opened { session, .. }, Some(handle), Some(who)) = (&reply.outcome, handle, who) {
                self.sessions.insert(who.clone(), (*session, handle));
                if applied
                    .events
                    .iter()
                    .any(|event| event.kind == EventKind::SessionOpened && event.subject.session() == Some(*session))
                {
                    self.names.sessions.insert(*session, who.clone());
                }
            }
        }
        for event in &*applied.events {
            if let EventKind::Granted { .. }
            | EventKind::Upgraded { .. }
            | EventKind::HandedOver { .. }
            | EventKind::Resumed { .. } = &event.kind
                && let Subject::Lock { lock, claim: Some(Claim::Request(request)), token: Some(token) } = &event.subject
            {
                self.tokens.insert((request.session, lock.clone()), *token);
            }
        }
        self.events.extend(applied.events.iter().map(|event| self.names.event(event)));
        let replies = applied.renewals.iter().chain(&applied.commands).zip(renewers.into_iter().chain(callers));
        let line = |(reply, who): (&Reply, Option<String>)| {
            let who = who.filter(|_| named).map_or(String::new(), |who| format!("{who}: "));
            format!("{who}{}{}", self.names.outcome(&reply.outcome), script_words::named(&reply.recalled))
        };
        replies.map(line).collect()
    }

    /// Cancels the numbers `from` to `to`, which no request has used, in one entry. Shows how many were answered with
    /// *withdrawn*.
    fn burn(&mut self, who: Option<String>, args: &mut ArgumentConsumer<'_>) -> Result<String> {
        let session = self.session(who.as_deref())?.0;
        let (from, to): (u64, u64) = (required(args, "from")?.parse()?, required(args, "to")?.parse()?);
        let cancel = |number| Command::Cancel { request: RequestId { session, number } };
        let applied = self.watched.apply(&entry(self.stamp, vec![], (from..=to).map(cancel).collect()));
        let withdrawn = applied.commands.iter().filter(|reply| reply.outcome == Outcome::Withdrawn).count();
        Ok(format!("withdrawn {withdrawn} times"))
    }

    /// Sets small bounds in place of the normal ones.
    fn quotas(&mut self, args: &mut ArgumentConsumer<'_>) -> Result<String> {
        let quotas = &mut self.watched.machine.quotas;
        for (key, quota) in [
            ("sessions", &mut quotas.sessions),
            ("locks", &mut quotas.locks),
            ("takes", &mut quotas.takes),
            ("waiters", &mut quotas.waiters),
            ("waiters-of-lock", &mut quotas.waiters_of_lock),
            ("holders-of-lock", &mut quotas.holders_of_lock),
            ("documents", &mut quotas.documents),
            ("processes", &mut quotas.processes),
            ("locks-of-session", &mut quotas.locks_of_session),
        ] {
            *quota = args.take_key(key).map_or(Ok(*quota), str::parse)?;
        }
        Ok(String::new())
    }

    fn session(&self, who: Option<&str>) -> Result<(SessionId, Handle)> {
        let who = who.ok_or("whose?")?;
        Ok(self.sessions.get(who).ok_or_else(|| format!("{who} has no session"))?.clone())
    }

    fn take(&mut self, who: Option<&str>, args: &mut ArgumentConsumer<'_>) -> Result<(LeaseRequestId, Handle)> {
        let who = who.ok_or("whose?")?;
        let known = self.names.takes.iter().find(|(_, name)| *name == who).map(|(id, _)| *id);
        let id = known.unwrap_or(LeaseRequestId(self.names.takes.len() as u128 + 1));
        self.names.takes.insert(id, who.to_owned());
        let handle = Handle::parse(args.take_key("handle").unwrap_or(&format!("handle-of-{who}")))?;
        Ok((id, handle))
    }

    /// The given request number, or the session's next one.
    fn request(&mut self, who: Option<&str>, args: &mut ArgumentConsumer<'_>) -> Result<RequestId> {
        let session = self.session(who)?.0;
        let newest = self.numbers.entry(who.unwrap_or_default().to_owned()).or_default();
        let number = args.take_key("n").map_or(Ok(*newest + 1), str::parse)?;
        *newest = number.max(*newest);
        Ok(RequestId { session, number })
    }
}

fn opened_handle(command: &Command) -> Option<Handle> {
    if let Command::OpenSession(open) = command { Some(open.handle.clone()) } else { None }
}

/// Whether the line contains `word=yes`.
fn flag(args: &mut ArgumentConsumer<'_>, word: &str) -> bool {
    args.take_key(word) == Some("yes")
}

fn required<'a>(args: &mut ArgumentConsumer<'a>, key: &str) -> Result<&'a str> {
    args.take_key(key).ok_or_else(|| format!("{key}= is missing").into())
}

fn duration(text: &str) -> Result<u64> {
    Ok(u64::try_from(humantime::parse_duration(text)?.as_millis())?)
}

fn namespace(args: &mut ArgumentConsumer<'_>) -> Result<Namespace> {
    Ok(args.take_key("ns").map_or(Ok(Namespace::default()), Namespace::parse)?)
}

fn key(args: &mut ArgumentConsumer<'_>) -> Result<LockKey> {
    let namespace = namespace(args)?;
    Ok(LockKey { namespace, name: LockName::parse(args.next_pos().ok_or("which lock?")?)? })
}

fn metadata(args: &mut ArgumentConsumer<'_>) -> Metadata {
    Metadata { who: args.take_key("who").unwrap_or_default().into(), ..Metadata::default() }
}

fn patience(args: &mut ArgumentConsumer<'_>) -> Result<Patience> {
    Ok(match args.take_key("wait") {
        None => Patience::Session,
        Some("no") => Patience::Try,
        Some(text) => Patience::For { ms: duration(text)? },
    })
}

fn access(args: &mut ArgumentConsumer<'_>) -> Result<Access> {
    let limit = args.take_key("limit").map(str::parse).transpose()?;
    if let Some(count) = args.take_key("permits") {
        return Ok(Access { mode: Mode::Permits(count.parse()?), limit });
    }
    match args.next_pos() {
        None => Ok(Mode::Exclusive.into()),
        Some("shared") => Ok(Mode::Shared.into()),
        Some(other) => Err(format!("mode {other}?").into()),
    }
}

fn run_script(path: &Path, update: bool) -> std::result::Result<(), String> {
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    let mut lines = text.lines();
    if !lines.next().is_some_and(|line| line.starts_with("# ") && line.ends_with('.')) {
        return Err("its first line is not a sentence".into());
    }
    let run = || goldenscript::generate(&mut Script::default(), &text);
    let found = match std::panic::catch_unwind(run) {
        Ok(found) => found.map_err(|error| error.to_string())?,
        Err(_) => return Err("panicked, see above".into()),
    };
    if found == text {
        return Ok(());
    }
    if update {
        return std::fs::write(path, found).map_err(|error| error.to_string());
    }
    let mut pairs = text.lines().zip(found.lines()).zip(1..);
    let ((expected, found), line) = pairs.find(|((a, b), _)| a != b).unwrap_or((("", ""), 0));
    Err(format!("line {line}\n  expected {expected}\n  found    {found}"))
}

/// Every script in `src/machine/scripts` gives the output that is written in it.
#[test]
fn scripts_end_as_written() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/machine/scripts");
    let update = std::env::var("UPDATE_GOLDENFILES").is_ok_and(|value| value == "1");
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    paths.sort();
    assert!(40 <= paths.len(), "only {} scripts were found", paths.len());
    let failed = |path: &std::path::PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        run_script(path, update).err().map(|why| format!("{name}: {why}"))
    };
    let failed: Vec<String> = paths.iter().filter_map(failed).collect();
    assert!(failed.is_empty(), "{} of {} scripts:\n{}", failed.len(), paths.len(), failed.join("\n"));
}
