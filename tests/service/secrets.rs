//! Handles prove sessions and leases: no other client, watcher or log of a node may contain one.

use std::fmt::{Debug, Write as _};
use std::sync::{Mutex, OnceLock, PoisonError};

use lockkeeper::codec::{Kind, encode_message};
use lockkeeper::model::{
    About, Handle, ListFilter, ListShow, LockKey, LockName, Namespace, Query, WhichDocuments, WhichPings,
};
use lockkeeper::service::{Freshness, LockService};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::suite::{BACKEND, LONG, SHORT, client, in_use};

/// Everything that the nodes and clients of this process have logged, at every level.
#[derive(Default)]
struct Lines(Mutex<String>);

struct Log(&'static Lines);

/// Returns the log since the first call, shared by all tests.
fn lines() -> &'static Lines {
    static LINES: OnceLock<Lines> = OnceLock::new();
    static STARTED: OnceLock<()> = OnceLock::new();
    let lines = LINES.get_or_init(Lines::default);
    STARTED.get_or_init(|| tracing::subscriber::set_global_default(Log(lines)).expect("there is no other subscriber"));
    lines
}

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, " {field}={value:?}").expect("text");
    }
}

impl Log {
    fn note(&self, record: impl FnOnce(&mut Text)) {
        let mut text = Text(String::new());
        record(&mut text);
        let mut lines = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        writeln!(lines, "{}", text.0).expect("text");
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("lockkeeper") || metadata.target().starts_with(module_path!())
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        self.note(|text| span.record(text));
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, values: &Record<'_>) {
        self.note(|text| values.record(text));
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        self.note(|text| event.record(text));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Everything that clients have received so far, as bytes and as text.
#[derive(Default)]
struct Received(Vec<u8>);

impl Received {
    fn note<T: serde::Serialize + Debug>(&mut self, received: &T) {
        self.0.extend_from_slice(&encode_message(Kind::Answer, received));
        self.print(received);
    }

    fn print(&mut self, received: &impl Debug) {
        self.0.extend_from_slice(format!("{received:#?}").as_bytes());
    }

    fn has(&self, text: &str) -> bool {
        self.0.windows(text.len()).any(|part| part == text.as_bytes())
    }
}

fn queries(namespace: &Namespace, lock: &LockKey) -> Vec<Query> {
    let (of, rows, show) = (|| namespace.clone(), 1_000, ListShow::All);
    vec![
        Query::Inspect { lock: lock.clone() },
        Query::Tokens { lock: lock.clone() },
        Query::Explain(About::Lock(lock.clone())),
        Query::List(ListFilter { namespace: of(), prefix: String::new(), show, older_than_ms: 0, after: None, rows }),
        Query::Sessions { namespace: of(), after: None, rows },
        Query::History { namespace: of(), lock: None, after: None, rows },
        Query::Documents { namespace: of(), which: WhichDocuments::After(None), rows },
        Query::Pings { namespace: of(), which: WhichPings::After(None), rows },
    ]
}

/// Two sessions and two leases compete, are refused, queried, broken and ended. No answer, event, error or log line
/// contains one of their handles.
async fn a_handle_is_never_disclosed<S: LockService>(service: S) {
    let (lines, mut received) = (lines(), Received::default());
    let secrets = ["one", "two", "three", "four"].map(|which| format!("a secret of {} {which}", BACKEND.get()));
    let [one, two, three, four] = secrets.clone().map(|text| Handle::parse(&text).expect("legal"));
    let client = client(service.clone(), "secrets");
    let mut watch = client.watch("", None).await.expect("watching");

    let first = client.session().handle(one.clone()).open().await.expect("opened");
    received.print(&client.session().handle(one).open().await.expect_err("it is open"));
    let second = client.session().handle(two).open().await.expect("opened");
    let guard = first.lock("a").acquire().await.expect("free");
    received.print(&second.lock("a").wait(SHORT).acquire().await.expect_err("held"));
    let lease = client.lease("b").handle(three).duration(LONG).take().await.expect("free");
    received.print(&client.lease("b").handle(four.clone()).take().await.expect_err("held"));
    received.print(&client.refresh("b", &four, LONG).await.expect_err("not its handle"));

    let waiting = second.lock("a").wait(LONG).acquire();
    let (waited, ()) = tokio::join!(waiting, async {
        in_use(&client, "a", 1, 1).await;
        for name in ["a", "b"] {
            let lock = LockKey { namespace: first.namespace().clone(), name: LockName::parse(name).expect("legal") };
            for query in queries(first.namespace(), &lock) {
                received.note(&service.query(query, Freshness::Linearizable).await.expect("answered"));
            }
        }
        drop(guard);
    });
    received.print(&waited.expect("granted").release().await.expect("released"));
    let token = lease.token();
    received.print(&lease.release().await.expect("released"));
    first.close().await.expect("closed");
    second.close().await.expect("closed");
    loop {
        let event = watch.next().await.expect("an event");
        received.note(&event);
        if event.subject.token() == Some(token) && matches!(event.kind, lockkeeper::model::EventKind::Released { .. }) {
            break;
        }
    }
    tracing::info!(service = BACKEND.get(), "this line is recorded");
    let lines = lines.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
    assert!(lines.contains("this line is recorded") && received.has("secrets."), "nothing was recorded");
    for secret in secrets {
        assert!(!received.has(&secret) && !lines.contains(&secret), "{secret}");
    }
}

backend_tests! {
    a_handle_is_never_disclosed
}
