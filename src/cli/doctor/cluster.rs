//! Checks of the cluster, as its nodes answer them.

use std::collections::BTreeMap;

use super::finding::{Finding, Level};
use super::listeners::certificate;
use crate::cli::text::ms;
use crate::clock::{Clock, SystemClock, micros};
use crate::limits::{DOCTOR_LAG_WARN, DOCTOR_ROUND_TRIPS};
use crate::model::Query;
use crate::net::CertificateEnd;
use crate::service::{Freshness, LockService, NodeStatus, Role, STATES_DIFFER, Status};
use crate::shapes::behind;

/// The check of the time from here to the nodes and back.
const ROUND_TRIP: &str = "round trip";

/// Checks the state of the cluster.
pub(super) fn checks(status: &Status) -> Vec<Finding> {
    let mut findings = vec![quorum(status)];
    findings.extend(lags(status));
    findings.extend(ending_certificates(status, SystemClock::new().wall().0));
    findings.push(versions(status));
    findings.extend(status.warnings.iter().map(|warning| {
        let (what, fix) = warning.rsplit_once("; ").unwrap_or((warning, "see the manual's page on operations"));
        if warning.starts_with(STATES_DIFFER) {
            return Finding::fail("states", what, fix);
        }
        Finding::warn("warning", format!("node {}: {what}", status.node), fix)
    }));
    findings
}

/// Checks that the cluster has a leader, and that it survives one more failure.
fn quorum(status: &Status) -> Finding {
    const CHECK: &str = "quorum";
    let Some(leader) = status.leader else {
        let detail = format!("node {} reaches no leader with a majority", status.node);
        return Finding::fail(CHECK, detail, "start the other nodes, and check that they reach each other");
    };
    let voters: Vec<_> = status.nodes.iter().filter(|node| node.role != Role::Learner).collect();
    let silent: Vec<_> = voters.iter().filter(|node| node.healthy != Some(true)).map(|node| node.id).collect();
    let needed = voters.len() / 2 + 1;
    let detail = format!("node {leader} leads, {} of {} voters answer", voters.len() - silent.len(), voters.len());
    if voters.len() < 3 {
        return Finding::warn(
            CHECK,
            format!("{detail}: each failure stops the service"),
            "add nodes: three survive one",
        );
    }
    if silent.is_empty() {
        return Finding::ok(CHECK, detail);
    }
    let advice = format!("bring back node {}", ids(&silent));
    if voters.len() - silent.len() <= needed {
        return Finding::fail(CHECK, format!("{detail}: one more failure stops the service"), advice);
    }
    Finding::warn(CHECK, detail, advice)
}

/// The ids of nodes as a text.
fn ids(nodes: &[u64]) -> String {
    nodes.iter().map(u64::to_string).collect::<Vec<_>>().join(" and ")
}

/// Returns a finding for each node that lacks many entries.
fn lags(status: &Status) -> impl Iterator<Item = Finding> {
    status.nodes.iter().filter_map(|node| {
        let lag = behind(status, node).filter(|lag| DOCTOR_LAG_WARN < *lag)?;
        let detail = format!("node {} lacks {lag} log entries", node.id);
        Some(Finding::warn("lag", detail, "check its disk and its network"))
    })
}

/// Returns a finding for each node with a certificate that ends soon.
fn ending_certificates(status: &Status, now_ms: u64) -> impl Iterator<Item = Finding> {
    let ending = status.nodes.iter().filter(|node| node.certificate_ends.is_some());
    let judged = ending.map(move |node| certificate(&CertificateEnd::of_node(node.id, node.certificate_ends), now_ms));
    judged.filter(|judged| judged.level != Level::Ok)
}

/// Checks that all nodes run the same build, and one that supports the cluster's feature level.
pub(super) fn versions(status: &Status) -> Finding {
    const CHECK: &str = "versions";
    let old = |node: &&NodeStatus| node.features.is_some_and(|level| level < status.features);
    if let Some(old) = status.nodes.iter().find(old) {
        let detail = format!("node {} does not support the feature level {} of the cluster", old.id, status.features);
        return Finding::fail(CHECK, detail, "install the version of the other nodes on it");
    }
    let mut known = BTreeMap::<_, Vec<_>>::new();
    for node in &status.nodes {
        if let Some(version) = node.version.as_deref() {
            known.entry(version).or_default().push(node.id);
        }
    }
    let runs = |(version, nodes): (&&str, &Vec<u64>)| match &nodes[..] {
        [node] => format!("node {node} runs {version}"),
        nodes => format!("nodes {} run {version}", ids(nodes)),
    };
    if 1 < known.len() {
        let advice = "finish the upgrade: until then the cluster does only what all its nodes can do";
        return Finding::warn(CHECK, known.iter().map(runs).collect::<Vec<_>>().join(", "), advice);
    }
    let only = known.into_keys().next().unwrap_or_default();
    Finding::ok(CHECK, format!("{only}, feature level {}", status.features))
}

/// Measures the round trip from here to each node.
pub(super) async fn round_trips(status: &Status, service: &impl LockService) -> Finding {
    let (clock, mut took) = (SystemClock::monotonic(), Vec::with_capacity(DOCTOR_ROUND_TRIPS));
    for _ in 0..DOCTOR_ROUND_TRIPS {
        let begun = clock.now();
        if let Err(error) = service.query(Query::Totals, Freshness::Linearizable).await {
            return Finding::fail(ROUND_TRIP, format!("a read failed: {error}"), "see the check quorum");
        }
        took.push(micros(clock.now().since(begun)));
    }
    took.sort_unstable();
    round_trip(took[took.len() * 99 / 100], status.timing_ms)
}

/// Judges the time of a read by the timing of the nodes: a heartbeat and the shortest election timeout.
fn round_trip(p99_us: u64, [heartbeat_ms, election_ms_min, _]: [u64; 3]) -> Finding {
    let detail = format!(
        "{DOCTOR_ROUND_TRIPS} linearizable reads from here: p99 {} ms (want {} ms)",
        ms(p99_us),
        heartbeat_ms.div_ceil(2)
    );
    let advice = "the network or a node is slow: compare the nodes with `lockkeeper top`, or choose the profile wan";
    Finding::below(ROUND_TRIP, p99_us, [Some(heartbeat_ms * 500), Some(election_ms_min * 500)], detail, advice)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{LogTime, Totals};

    fn node(id: u64, healthy: bool, applied: u64) -> NodeStatus {
        NodeStatus {
            id,
            role: if id == 1 { Role::Leader } else { Role::Follower },
            client: String::new(),
            peer: String::new(),
            http: String::new(),
            applied: Some(applied),
            healthy: Some(healthy),
            version: Some("0.1.0".to_owned()),
            features: Some(1),
            rules: None,
            certificate_ends: None,
        }
    }

    fn status(leader: Option<u64>, healthy: &[bool]) -> Status {
        let nodes = healthy.iter().zip(1..).map(|(healthy, id)| node(id, *healthy, 20_000)).collect();
        Status {
            cluster: "harbour".to_owned(),
            cluster_id: Some(1),
            peers_id: 1,
            node: 1,
            leader,
            term: 2,
            log_time: LogTime(1),
            applied: 20_000,
            nodes,
            totals: Totals::default(),
            ttl_ms_min: 1,
            ttl_ms_max: 2,
            features: 1,
            timing_ms: [50, 150, 300],
            closed_ms: 0,
            led_ms: 3_000,
            uncounted_ms: 0,
            warnings: Vec::new(),
        }
    }

    /// A cluster without a leader fails, and so does one that the next failure stops.
    #[test]
    fn the_next_failure_is_judged() {
        let level = |leader, healthy: &[bool]| quorum(&status(leader, healthy)).level;
        assert_eq!(level(None, &[true, true, true]), Level::Fail);
        assert_eq!(level(Some(1), &[true, true, true]), Level::Ok);
        assert_eq!(level(Some(1), &[true, true, false]), Level::Fail);
        assert_eq!(level(Some(1), &[true, true, true, true, false]), Level::Warn);
        assert_eq!(level(Some(1), &[true]), Level::Warn, "one node is a choice");
    }

    /// The certificate of any node that ends soon is a finding. A node without TLS has none.
    #[test]
    fn certificates_of_all_nodes_are_judged() {
        let ending = |days: Option<u64>| {
            let mut of_one = status(Some(1), &[true, true]);
            of_one.nodes[1].certificate_ends = days.map(|days| 1_000 + days * 86_400);
            ending_certificates(&of_one, 1_000_000).next()
        };
        assert_eq!(ending(Some(30)), None);
        let soon = ending(Some(29)).expect("a finding");
        assert_eq!((soon.level, &*soon.detail), (Level::Warn, "the certificate of node 2 ends in 29 days"));
        assert_eq!(ending(Some(6)).map(|finding| finding.level), Some(Level::Fail));
        assert_eq!(ending(None), None);
    }

    /// A read may take half a heartbeat. It fails above half of the shortest election timeout.
    #[test]
    fn the_round_trip_is_judged() {
        let judged = |p99_us| round_trip(p99_us, [50, 150, 300]);
        let levels = [25_000, 25_001, 75_000, 75_001].map(|p99_us| judged(p99_us).level);
        assert_eq!(levels, [Level::Ok, Level::Warn, Level::Warn, Level::Fail]);
        assert!(judged(75_001).detail.ends_with("p99 75.00 ms (want 25 ms)"), "{}", judged(75_001).detail);
    }

    /// Different builds and a node that lags are warnings. A build below the feature level fails.
    #[test]
    fn nodes_are_compared() {
        let mut status = status(Some(1), &[true; 3]);
        assert!(checks(&status).iter().all(|finding| finding.level == Level::Ok));
        status.nodes[1].version = Some("0.2.0".to_owned());
        status.nodes[2].applied = Some(9_999);
        status.warnings = vec!["n1.pem expires on 2026-12-01; renew it".to_owned()];
        let warned: Vec<_> = checks(&status).into_iter().filter(|finding| finding.level == Level::Warn).collect();
        assert_eq!(warned.iter().map(|finding| finding.check).collect::<Vec<_>>(), ["lag", "versions", "warning"]);
        assert_eq!(warned[1].detail, "nodes 1 and 3 run 0.1.0, node 2 runs 0.2.0");
        assert_eq!(warned[2].advice.as_deref(), Some("renew it"));
        status.warnings = vec![format!("{STATES_DIFFER} at log entry 9; restore a backup")];
        let states = checks(&status).into_iter().find(|finding| finding.check == "states").expect("a finding");
        assert_eq!((states.level, states.advice.as_deref()), (Level::Fail, Some("restore a backup")));
        status.nodes[1].features = Some(0);
        assert_eq!(versions(&status).level, Level::Fail);
    }
}
