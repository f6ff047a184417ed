//! Counters, gauges and histograms of a node. Without a recorder they cost next to nothing.
//!
//! Knows: limits. Never: what is counted, and how it is read.
//!
//! Each handle is created once and kept, so that an update is one atomic operation. A recorder has only whole counters,
//! so a counter of seconds is a gauge whose name ends in `_total` and that only grows; the port for metrics corrects
//! its type.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, Label, SharedString};

use crate::mutex::Mutex;

/// The value of a label that all share that have no separate value, so that the number of values is limited.
pub(crate) const OTHER: &str = "other";

/// Stands for the codes of all calls beyond the limit, so that they are one series.
const OTHER_CODE: u16 = u16::MAX;

/// Creates the metrics of one node. Several nodes may run in one process, so each metric has the node's id as label.
#[derive(Debug, Clone)]
pub(crate) struct Series {
    node: SharedString,
}

/// A further label of a metric.
pub(crate) type Named<'a> = (&'static str, &'a str);

impl Series {
    pub(crate) fn new(node: u64) -> Self {
        Self { node: SharedString::from_shared(node.to_string().into()) }
    }

    fn labels(&self, further: &[Named<'_>]) -> Vec<Label> {
        let own = Label::new("node", self.node.clone());
        let further = further.iter().map(|(name, value)| Label::new(*name, (*value).to_owned()));
        std::iter::once(own).chain(further).collect()
    }

    /// Creates a counter, or returns the one with this name and these labels.
    pub(crate) fn counter(&self, name: &'static str, help: &'static str, further: &[Named<'_>]) -> Counter {
        metrics::describe_counter!(name, help);
        metrics::counter!(name, self.labels(further))
    }

    /// Creates a gauge, or returns the one with this name and these labels.
    pub(crate) fn gauge(&self, name: &'static str, help: &'static str, further: &[Named<'_>]) -> Gauge {
        metrics::describe_gauge!(name, help);
        metrics::gauge!(name, self.labels(further))
    }

    /// Creates a histogram, or returns the one with this name and these labels.
    pub(crate) fn histogram(&self, name: &'static str, help: &'static str, further: &[Named<'_>]) -> Histogram {
        metrics::describe_histogram!(name, help);
        metrics::histogram!(name, self.labels(further))
    }
}

/// How long a call usually takes: the label `kind` of its duration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallKind {
    Read,
    /// Changes the state.
    Command,
    Wait,
}

impl CallKind {
    /// All kinds with their labels, in order.
    const ALL: [&str; 3] = ["read", "command", "wait"];
}

/// Names and texts of the metrics of a port.
#[derive(Debug)]
pub(crate) struct CallNames {
    /// Name and help of the counter of requests.
    pub(crate) requests: [&'static str; 2],
    /// Label of the counter that names the call.
    pub(crate) call: &'static str,
    /// Name and help of the histogram of durations.
    pub(crate) duration: [&'static str; 2],
    /// Name and help of the gauge of open streams.
    pub(crate) streams: [&'static str; 2],
    /// Most series of the counter.
    pub(crate) most: usize,
}

/// The metrics of the calls of a port.
pub(crate) struct CallMetrics {
    series: Series,
    names: &'static CallNames,
    requests: Mutex<HashMap<String, BTreeMap<u16, Counter>>>,
    durations: [Histogram; CallKind::ALL.len()],
    streams: Gauge,
}

impl CallMetrics {
    /// Creates the metrics of a port of this node.
    pub(crate) fn new(node: u64, names: &'static CallNames) -> Self {
        let series = Series::new(node);
        let [name, help] = names.duration;
        let durations = CallKind::ALL.map(|kind| series.histogram(name, help, &[("kind", kind)]));
        let [name, help] = names.streams;
        let streams = series.gauge(name, help, &[]);
        let new = Self { series, names, requests: Mutex::default(), durations, streams };
        // The metric exists before the first request.
        new.count(OTHER, OTHER_CODE, 0);
        new
    }

    /// Counts an answered request with the code of its answer.
    pub(crate) fn answered(&self, call: &str, code: u16) {
        self.count(call, code, 1);
    }

    /// Records how long a request took.
    pub(crate) fn took(&self, kind: CallKind, time: Duration) {
        self.durations[kind as usize].record(time.as_secs_f64());
    }

    /// Counts an open stream until the result is dropped.
    pub(crate) fn stream(&self) -> OpenStream {
        self.streams.increment(1.0);
        OpenStream(self.streams.clone())
    }

    /// Adds to the counter of a call and code. Beyond the most series, it is the counter of all others.
    fn count(&self, call: &str, code: u16, by: u64) {
        let mut requests = self.requests.lock();
        if let Some(counter) = requests.get(call).and_then(|codes| codes.get(&code)) {
            return counter.increment(by);
        }
        let full = self.names.most <= requests.values().map(BTreeMap::len).sum();
        let (call, code) = if full { (OTHER, OTHER_CODE) } else { (call, code) };
        let [name, help] = self.names.requests;
        let codes = requests.entry(call.to_owned()).or_default();
        let counter = codes.entry(code).or_insert_with(|| {
            let code = if code == OTHER_CODE { OTHER.to_owned() } else { code.to_string() };
            self.series.counter(name, help, &[(self.names.call, call), ("code", code.as_str())])
        });
        counter.increment(by);
    }
}

#[derive(Debug)]
pub(crate) struct OpenStream(Gauge);

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.0.decrement(1.0);
    }
}
