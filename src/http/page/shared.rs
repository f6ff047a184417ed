//! What all screens of one node share: the status of the cluster, summaries of namespaces, and sign-ins.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, Semaphore, watch};
use tokio::time::Instant as TokioInstant;

use super::failures::Failures;
use super::measures::Measures;
use super::scans::Scans;
use super::sign_ins::SignIns;
use super::summary::{Summary, summary};
use crate::clock::{Clock, SystemClock};
use crate::http::scrape::Render;
use crate::limits;
use crate::model::{LogTime, Namespace};
use crate::service::{LockService, ServerInfo, ServiceError, Status};

/// What all screens of one node share.
pub(super) struct Shared<S> {
    pub(super) service: S,
    pub(super) info: ServerInfo,
    pub(super) clock: Arc<dyn Clock>,
    /// Whether the port speaks TLS.
    pub(super) tls: bool,
    pub(super) sign_ins: SignIns,
    pub(super) failures: Failures,
    /// Limits the screens that are notified of changes.
    pub(super) live: Arc<Semaphore>,
    /// True once the node stops: then notifications end.
    pub(super) stop: watch::Receiver<bool>,
    pub(super) scans: Scans,
    pub(super) measures: Measures,
    status: Mutex<Option<(TokioInstant, Status)>>,
    grants: Mutex<Grants>,
    /// Of each namespace: its lock, and the last summary with the time until which it is shown.
    summaries: Mutex<BTreeMap<Namespace, Summarized>>,
}

type Summarized = Arc<Mutex<Option<(TokioInstant, Arc<Summary>)>>>;

impl<S: LockService> Shared<S> {
    pub(super) fn new(
        service: S,
        info: ServerInfo,
        tls: bool,
        render: Render,
        stop: watch::Receiver<bool>,
    ) -> Arc<Self> {
        Arc::new(Self {
            measures: Measures::new(render, info.node),
            scans: Scans::new(info.node),
            service,
            info,
            clock: Arc::new(SystemClock::new()),
            tls,
            sign_ins: SignIns::default(),
            failures: Failures::default(),
            live: Arc::new(Semaphore::new(limits::LIVE_SCREENS_MAX)),
            stop,
            status: Mutex::default(),
            grants: Mutex::default(),
            summaries: Mutex::default(),
        })
    }

    /// Returns the status of the cluster, which all screens of a short time share. `service` is that of the caller, who
    /// must be a principal if the cluster has some.
    pub(super) async fn status(&self, service: &S) -> Result<Status, ServiceError> {
        let mut last = self.status.lock().await;
        let newest = Duration::from_millis(limits::SUMMARY_MS);
        if let Some((_, status)) = last.as_ref().filter(|(at, _)| at.elapsed() < newest) {
            return Ok(status.clone());
        }
        let status = service.status().await?;
        *last = Some((TokioInstant::now(), status.clone()));
        Ok(status)
    }

    /// Returns how many locks the cluster granted in a second, over the last minute in which the page was shown.
    /// `None` until it was shown for a second.
    pub(super) async fn grants_a_second(&self, now: LogTime, grants: u64) -> Option<f64> {
        self.grants.lock().await.add(now, grants)
    }

    /// Returns the summary of a namespace, which all screens of a short time share. The caller must have the right to
    /// list all names of the namespace.
    pub(super) async fn summary(&self, service: &S, namespace: &Namespace) -> Result<Arc<Summary>, ServiceError> {
        let own = {
            let mut all = self.summaries.lock().await;
            // One that no screen reads at the moment can be made again.
            if limits::SUMMARIES_MAX <= all.len() && !all.contains_key(namespace) {
                all.retain(|_, summarized| 1 < Arc::strong_count(summarized));
            }
            if limits::SUMMARIES_MAX <= all.len() && !all.contains_key(namespace) {
                return Err(self.scans.overloaded());
            }
            Arc::clone(all.entry(namespace.clone()).or_default())
        };
        let mut last = own.lock().await;
        if let Some((_, summary)) = last.as_ref().filter(|(until, _)| TokioInstant::now() < *until) {
            return Ok(Arc::clone(summary));
        }
        let begun = TokioInstant::now();
        let made = Arc::new(summary(service, &self.scans, namespace).await?);
        let [shortest, longest] = [limits::SUMMARY_MS, limits::SUMMARY_REST_MS_MAX].map(Duration::from_millis);
        let rest = (begun.elapsed() * limits::SUMMARY_REST_FACTOR).clamp(shortest, longest);
        *last = Some((TokioInstant::now() + rest, Arc::clone(&made)));
        Ok(made)
    }
}

/// Values of the counter of grants, with their log times, over the last minute.
#[derive(Default)]
struct Grants(VecDeque<(LogTime, u64)>);

impl Grants {
    fn add(&mut self, now: LogTime, grants: u64) -> Option<f64> {
        let recent = |at: &LogTime| now.ms_since(*at) <= limits::GRANT_RATE_MS;
        while self.0.front().is_some_and(|(at, _)| !recent(at)) {
            self.0.pop_front();
        }
        let last = self.0.back().map_or(LogTime(0), |(at, _)| *at);
        if limits::SUMMARY_MS <= now.ms_since(last) {
            self.0.push_back((now, grants));
        }
        let (since, before) = self.0.front()?;
        let ms = now.ms_since(*since);
        (limits::SUMMARY_MS <= ms).then(|| grants.saturating_sub(*before) as f64 * 1_000.0 / ms as f64)
    }
}

#[cfg(test)]
mod tests {
    use metrics_exporter_prometheus::PrometheusBuilder;

    use super::*;
    use crate::testing::Cluster;

    /// A summary for which the node has no place counts as refused, although the service does not see it.
    #[tokio::test]
    async fn a_summary_without_a_place_is_counted() {
        let cluster = Cluster::start(1, None).await.expect("started");
        let (node, (_stop, stopped)) = (cluster.leader().await, watch::channel(false));
        let recorder = PrometheusBuilder::new().build_recorder();
        let new = || Shared::new(node.service(), node.info(), false, Arc::new(String::new), stopped);
        let shared = metrics::with_local_recorder(&recorder, new);
        let read: Vec<_> = (0..limits::SUMMARIES_MAX).map(|_| Summarized::default()).collect();
        let places = (0..).map(|number| Namespace::parse(&format!("read-{number}")).expect("legal"));
        *shared.summaries.lock().await = places.zip(read.iter().cloned()).collect();
        shared.summary(&shared.service, &Namespace::default()).await.expect_err("no place");
        let (text, series) = (recorder.handle().render(), r#"lockkeeper_refusals_total{node="1",word="overloaded"} 1"#);
        assert!(text.lines().any(|line| line == series), "{text}");
    }

    /// The rate is that of the last minute, and unknown until a second was seen.
    #[test]
    fn grants_are_counted_over_a_minute() {
        let mut grants = Grants::default();
        assert_eq!(grants.add(LogTime(5_000), 100), None);
        assert_eq!(grants.add(LogTime(5_900), 190), None);
        assert_eq!(grants.add(LogTime(7_000), 300), Some(100.0));
        assert_eq!(grants.add(LogTime(67_000), 300), Some(0.0), "what is older than a minute does not count");
        assert_eq!(grants.add(LogTime(200_000), 900), None, "nor is a rate known after a pause");
    }
}
