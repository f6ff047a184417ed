//! `watch`: prints what happens to locks and sessions, as it happens.

use clap::Args;

use crate::cli::connect::{Client, RetryOption, of_this_cluster};
use crate::cli::error::{Failure, YES};
use crate::cli::output::{Output, reader_gone};
use crate::cli::text::short;
use crate::shapes::{Happened, ResumePosition};

#[derive(Debug, Args)]
pub(in crate::cli) struct WatchOptions {
    /// Only locks whose names have this prefix
    #[arg(default_value = "")]
    prefix: String,
    /// Continue after this position; with the first digits of a cluster_id, only in that cluster [default: from now on]
    #[arg(long, value_name = "INDEX.N[@CLUSTER]")]
    from: Option<ResumePosition>,
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
        output.answer(&happened, || text(&happened))?;
    }
}

/// Returns the event as one line of text.
fn text(event: &Happened) -> String {
    let why = event.why.clone().filter(|why| event.reason.as_ref() != Some(why));
    let facts = [
        ("", event.lock.clone()),
        ("token ", event.token.clone()),
        ("session ", event.session.clone()),
        ("", event.reason.clone()),
        ("", why),
        ("waited=", event.waited_ms.map(short)),
        ("held=", event.held_ms.map(short)),
        ("gap=", event.gap_ms.map(short)),
    ];
    let facts = facts.into_iter().filter_map(|(label, fact)| fact.map(|fact| format!("  {label}{fact}")));
    format!("{}  {}  {:<13}{}", event.at, event.position, event.event, facts.collect::<String>())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::model::{
        Claim, EndReason, Event, EventKind, FencingToken, LogTime, Namespace, Position, RequestId, SessionId, Subject,
        WallTime,
    };
    use crate::shapes::tests::{lock, value};

    /// An event has a position to continue from, a date, and only the fields that apply to it.
    #[test]
    fn events_have_positions_and_dates() {
        let claim = Claim::Request(RequestId { session: SessionId::new(0, 3), number: 1 });
        let token = FencingToken::new(0, 17);
        let kind = EventKind::Expired { reason: EndReason::Lost, held_ms: 65_007 };
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
            "reason": "lost", "why": null, "by": null, "from": null, "was_session": null, "waited_ms": null, "held_ms": 65_007,
            "gap_ms": null, "cluster_id": "00000000000000000000000000000abc",
        });
        assert_eq!(value(&happened), expected);
        assert!(text(&happened).contains("nightly  token 17"), "{}", text(&happened));
        assert!(text(&happened).ends_with("  lost  held=1m 5s"), "{}", text(&happened));
    }
}
