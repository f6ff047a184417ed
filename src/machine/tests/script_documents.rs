//! The words with which scripts change and show documents.

use std::error::Error;

use goldenscript::ArgumentConsumer;

use super::script_words::time;
use crate::model::*;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Whether this word is a change of a document.
pub(super) fn is_change(word: &str) -> bool {
    ["grab", "overtake", "unlock", "unlock-all", "ping", "stop-ping", "remove-expired", "swap", "confirm"]
        .contains(&word)
}

/// A `ts` of twelve bytes, of which a script gives the last one.
fn ts(text: Option<&str>) -> Result<DocumentId> {
    let mut bytes = [0; 12];
    bytes[11] = text.ok_or("ts=?")?.parse()?;
    Ok(DocumentId(bytes))
}

fn lock(args: &mut ArgumentConsumer<'_>) -> Result<LockKey> {
    let name = LockName::parse(args.next_pos().ok_or("which lock?")?)?;
    Ok(LockKey { namespace: Namespace::default(), name })
}

fn grab(who: Option<&str>, args: &mut ArgumentConsumer<'_>) -> Result<Grab> {
    let metadata = Metadata {
        process: who.ok_or("which process?")?.into(),
        who: args.take_key("who").unwrap_or_default().into(),
        why: args.take_key("why").unwrap_or_default().into(),
        ..Metadata::default()
    };
    let term = args.take_key("term").map(str::parse).transpose()?;
    let prepare = args.take_key("prepare").is_some();
    Ok(Grab { ts: ts(args.take_key("ts"))?, metadata, term, prepare, seen: None, lock: lock(args)? })
}

/// A change of a document. The process is the actor of the line.
pub(super) fn change(word: &str, who: Option<&str>, args: &mut ArgumentConsumer<'_>) -> Result<Command> {
    let namespace = Namespace::default();
    let process = |who: Option<&str>| -> Result<ProcessId> { Ok(ProcessId::parse(who.ok_or("which process?")?)?) };
    Ok(Command::Document(match word {
        "grab" => DocumentCommand::Grab(grab(who, args)?),
        "overtake" => {
            let seen = Some(ts(args.take_key("seen"))?);
            DocumentCommand::Grab(Grab { seen, ..grab(who, args)? })
        }
        "unlock" => {
            let ts = ts(args.take_key("ts"))?;
            DocumentCommand::Unlock { namespace, ts, name: args.next_pos().map(LockName::parse).transpose()? }
        }
        "unlock-all" => {
            let term = args.take_key("term").map(str::parse).transpose()?;
            DocumentCommand::UnlockAll { namespace, process: process(who)?, term }
        }
        "ping" => DocumentCommand::Ping { namespace, process: process(who)? },
        "stop-ping" => DocumentCommand::StopPing { namespace, process: process(who)? },
        "confirm" => DocumentCommand::Confirm { ts: ts(args.take_key("ts"))?, lock: lock(args)? },
        "remove-expired" => {
            let token = args.take_key("token").ok_or("which token?")?.parse()?;
            let deadline = args.take_key("until").map(humantime::parse_duration).transpose()?.ok_or("until when?")?;
            let deadline = LogTime(u64::try_from(deadline.as_millis())?);
            DocumentCommand::RemoveExpired { token, deadline, lock: lock(args)? }
        }
        _ => {
            let text = |text: Option<&str>| text.map(LockValue::parse).transpose();
            let (seen, value) = (text(args.take_key("seen"))?, text(args.take_key("value"))?);
            let handle = Handle::parse(args.take_key("handle").ok_or("which handle?")?)?;
            DocumentCommand::SwapValue { seen, value, handle, lock: lock(args)? }
        }
    }))
}

/// A query for documents or signs of life.
pub(super) fn query(word: &str, args: &mut ArgumentConsumer<'_>) -> Result<Query> {
    let namespace = Namespace::default();
    let rows = args.take_key("rows").map_or(Ok(100), str::parse)?;
    if word == "pings" {
        let which = match args.take_key("of") {
            Some(of) => WhichPings::Of(of.into()),
            None => WhichPings::After(args.take_key("after").map(Into::into)),
        };
        return Ok(Query::Pings { namespace, which, rows });
    }
    let which = match (args.take_key("ts"), args.next_pos()) {
        (Some(number), _) => WhichDocuments::Stamped(ts(Some(number))?),
        (None, Some(name)) => WhichDocuments::Named(LockName::parse(name)?),
        (None, None) => WhichDocuments::After(args.take_key("after").map(LockName::parse).transpose()?),
    };
    Ok(Query::Documents { namespace, which, rows })
}

/// Documents, one line each.
pub(super) fn documents(rows: &[Document], more: bool) -> String {
    let row = |row: &Document| {
        let term = row.term.map_or(String::new(), |term| format!(" term={term}"));
        let native = if row.native { " native" } else { "" };
        let (state, when) = (row.state.number(), time(row.when.0 - EPOCH_MS));
        let metadata = format!("process={:?} who={:?} why={:?}", row.process, row.who, row.why);
        format!(
            "{} state={state} ts={} {metadata} when={when}{term} token={}{native}\n",
            row.lock.name, row.ts, row.token
        )
    };
    rows.iter().map(row).collect::<String>() + if more { "more" } else { "no more" }
}

/// Signs of life, one line each.
pub(super) fn pings(rows: &[ProcessPing], more: bool) -> String {
    let row = |row: &ProcessPing| format!("{} ping={}\n", row.process, time(row.ping.0 - EPOCH_MS));
    rows.iter().map(row).collect::<String>() + if more { "more" } else { "no more" }
}

/// The wall clock at the beginning of a script.
const EPOCH_MS: u64 = 1_795_000_000_000;
