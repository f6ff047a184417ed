//! `watch`: prints what happens to locks and sessions, as it happens.

use clap::Args;
use serde::Serialize;

use crate::cli::connect::{Client, RetryOption};
use crate::cli::error::{Failure, YES};
use crate::cli::output::{Output, reader_gone};
use crate::cli::position::{After, after, of_this_cluster};
use crate::model::Event;
use crate::shapes::events::{Facts, date};
use crate::shapes::{cluster_id_text, mode_word};

#[derive(Debug, Args)]
pub(in crate::cli) struct WatchOptions {
    /// Only locks whose names have this prefix
    #[arg(default_value = "")]
    prefix: String,
    /// Continue after this position; with the first digits of a cluster_id, only in that cluster [default: from now on]
    #[arg(long, value_parser = after, value_name = "INDEX.N[@CLUSTER]")]
    from: Option<After>,
    #[command(flatten)]
    retry: RetryOption,
}

/// Prints events until it is interrupted or its reader closes standard output. After an outage it continues after the
/// last printed event.
pub(in crate::cli) async fn run(client: &Client, options: WatchOptions, output: &Output) -> Result<u8, Failure> {
    let client = options.retry.of(client);
    let mut watch = match of_this_cluster(&client, options.from.as_ref()).await? {
        (cluster_id, Some(from)) => client.watch_of(cluster_id, &options.prefix, from),
        (_, None) => client.watch(&options.prefix, None).await?,
    };
    let mut gone = std::pin::pin!(reader_gone());
    loop {
        let event = tokio::select! {
            event = watch.next() => event?,
            () = &mut gone => return Ok(YES),
        };
        let happened = Happened::new(&event, watch.cluster_id());
        output.answer(&happened, || happened.text())?;
    }
}

/// The JSON line of one event.
#[derive(Debug, Serialize)]
struct Happened {
    position: String,
    at: String,
    event: &'static str,
    namespace: Option<String>,
    lock: Option<String>,
    token: Option<String>,
    session: Option<String>,
    mode: Option<&'static str>,
    permits: Option<u32>,
    sequence: Option<u64>,
    reason: Option<String>,
    waited_ms: Option<u64>,
    held_ms: Option<u64>,
    gap_ms: Option<u64>,
    cluster_id: String,
}

impl Happened {
    /// Creates the line of an event of this cluster.
    fn new(event: &Event, cluster_id: u128) -> Self {
        let facts = Facts::of(&event.kind);
        Self {
            position: event.position.to_string(),
            at: date(event),
            event: event.kind.word(),
            namespace: event.namespace.as_ref().map(ToString::to_string),
            lock: event.subject.lock().map(|lock| lock.name.to_string()),
            token: event.subject.token().map(|token| token.to_string()),
            session: event.subject.session().map(|session| session.to_string()),
            mode: facts.mode.map(mode_word),
            permits: facts.returned,
            sequence: facts.sequence,
            reason: facts.reason,
            waited_ms: facts.waited_ms,
            held_ms: facts.held_ms,
            gap_ms: facts.gap_ms,
            cluster_id: cluster_id_text(cluster_id),
        }
    }

    /// The event as one line of text.
    fn text(&self) -> String {
        let facts = [
            ("", self.lock.clone()),
            ("token ", self.token.clone()),
            ("session ", self.session.clone()),
            ("", self.reason.clone()),
            ("waited=", self.waited_ms.map(milliseconds)),
            ("held=", self.held_ms.map(milliseconds)),
            ("gap=", self.gap_ms.map(milliseconds)),
        ];
        let facts = facts.into_iter().filter_map(|(label, fact)| fact.map(|fact| format!("  {label}{fact}")));
        format!("{}  {}  {:<13}{}", self.at, self.position, self.event, facts.collect::<String>())
    }
}

fn milliseconds(ms: u64) -> String {
    format!("{ms}ms")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::model::{
        Claim, EndReason, EventKind, FencingToken, LogTime, Namespace, Position, RequestId, SessionId, Subject,
        WallTime,
    };
    use crate::shapes::tests::{lock, value};

    /// An event has a position to continue from, a date, and only the fields that apply to it.
    #[test]
    fn events_have_positions_and_dates() {
        let claim = Claim::Request(RequestId { session: SessionId::new(0, 3), number: 1 });
        let token = FencingToken::new(0, 17);
        let kind = EventKind::Expired { reason: EndReason::Lost, held_ms: 7 };
        let event = Event {
            position: Position { index: 12, n: 1 },
            at: LogTime(5),
            wall: WallTime(1_700_000_000_123),
            namespace: Some(Namespace::default()),
            subject: Subject::hold(&lock(), claim, token),
            kind,
        };
        let happened = Happened::new(&event, 0xabc);
        let expected = json!({
            "position": "12.1", "at": "2023-11-14T22:13:20.123Z", "event": "expired", "namespace": "default",
            "lock": "nightly", "token": "17", "session": "3", "mode": null, "permits": null, "sequence": null,
            "reason": "lost", "waited_ms": null, "held_ms": 7, "gap_ms": null,
            "cluster_id": "00000000000000000000000000000abc",
        });
        assert_eq!(value(&happened), expected);
        assert!(happened.text().contains("nightly  token 17"), "{}", happened.text());
        assert!(happened.text().ends_with("  lost  held=7ms"), "{}", happened.text());
    }
}
