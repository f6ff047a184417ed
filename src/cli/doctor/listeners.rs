//! Checks of a node's listeners: the processes that have their ports, the machines that can reach them, and their
//! certificates.

use std::collections::BTreeSet;
use std::net::{SocketAddr, TcpListener};

use super::finding::Finding;
use crate::auth::{Access, ClusterRight, Right};
use crate::cli::server::check_certificates;
use crate::cli::sockets::{lock_owner, process_at};
use crate::clock::{Clock, SystemClock};
use crate::config::{Config, Protection, TlsMode};
use crate::limits::{DAY_MS, DOCTOR_CERTIFICATE_DAYS_MIN, DOCTOR_CERTIFICATE_DAYS_WARN};
use crate::model::Principal;
use crate::net::CertificateEnd;

/// Checks the listeners of a node. `access` has the rules of the node, and `runs` is whether a process has the node's
/// directory open.
pub(super) fn checks(config: &Config, access: Option<&Access>, runs: bool) -> Vec<Finding> {
    let node = lock_owner(&config.data.join("lock"));
    let mut findings = vec![ports(config, runs, node)];
    findings.extend(exposures(config, access));
    findings.extend(certificates(config));
    findings
}

/// Checks that the ports are free, or that the node itself has them. `node` is the process that has locked the node's
/// directory, if it is known.
fn ports(config: &Config, runs: bool, node: Option<u32>) -> Finding {
    let taken: Vec<_> = config.listeners().filter(|(_, _, address)| is_taken(*address)).collect();
    if taken.is_empty() {
        return Finding::ok("ports", if runs { "free, although a process has the directory open" } else { "free" });
    }
    let described: Vec<_> = taken.iter().map(|(name, _, at)| format!("listen.{name} {at} {}", user_of(*at))).collect();
    let detail = described.join(", ");
    // The node opens all its ports: if two processes have them, one is not the node.
    let owners: BTreeSet<_> = taken.iter().map(|(_, _, at)| process_at(*at).map(|(_, pid)| pid)).collect();
    let is_foreign = |owner: &u32| node.is_some_and(|node| node != *owner);
    if runs && owners.len() == 1 && !owners.iter().flatten().any(is_foreign) {
        return Finding::ok("ports", format!("in use while the node runs: {detail}"));
    }
    Finding::fail("ports", detail, "stop that process, or give the node another port")
}

fn is_taken(address: SocketAddr) -> bool {
    matches!(TcpListener::bind(address), Err(error) if error.kind() == std::io::ErrorKind::AddrInUse)
}

/// Names the process that listens at an address.
fn user_of(address: SocketAddr) -> String {
    process_at(address).map_or_else(
        || "is used by a process of another user".to_owned(),
        |(name, pid)| format!("is used by {name} (pid {pid})"),
    )
}

/// Checks which listeners other machines can reach.
fn exposures(config: &Config, access: Option<&Access>) -> Vec<Finding> {
    let mut findings: Vec<_> = config.listeners().filter_map(|listener| exposure(config, access, listener)).collect();
    if findings.is_empty() {
        let detail = if config.listeners().all(|(_, _, address)| is_local(address)) {
            "only this machine"
        } else {
            "every caller is recognized"
        };
        findings.push(Finding::ok("exposure", detail));
    }
    findings
}

fn is_local(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

fn exposure(
    config: &Config,
    access: Option<&Access>,
    (name, protection, address): (&str, &Protection, SocketAddr),
) -> Option<Finding> {
    const CHECK: &str = "exposure";
    if is_local(address) {
        return None;
    }
    let certificates = matches!(protection, Protection::Tls { mode: TlsMode::Require, client_cert_required: true, .. });
    let open = name != "peer" && !certificates;
    if open && config.auth.is_none() {
        let detail = format!("{name} port {address} without [auth]: each machine that reaches it may break locks");
        return Some(Finding::fail(CHECK, detail, "set [auth] and [audit], or listen on 127.0.0.1"));
    }
    let (may, only_reads) = access.filter(|_| open).map(anonymous).unwrap_or_default();
    let advice = "take these rights from the principal anonymous in the file of [auth]";
    let detail = format!("{name} port {address}: without proof, each machine that reaches it may {may}");
    if !may.is_empty() && !only_reads {
        return Some(Finding::fail(CHECK, detail, advice));
    }
    if let Some(warning) = protection.warning(name, address, config.auth.is_some()) {
        return Some(Finding::warn(CHECK, warning, "see the manual's page on security"));
    }
    (!may.is_empty()).then(|| Finding::warn(CHECK, detail, advice))
}

/// Returns what a caller without proof may do, which may be nothing, and whether that is only to read locks or metrics.
fn anonymous(access: &Access) -> (String, bool) {
    let caller = Principal::default();
    let right = access.largest_right(&caller);
    let all = [ClusterRight::Metrics, ClusterRight::Backup, ClusterRight::Operate];
    let cluster = all.into_iter().filter(|right| access.need_cluster(&caller, *right).is_ok()).collect::<Vec<_>>();
    let on_names = right.map(|right| format!("{right} names"));
    let may = on_names.into_iter().chain(cluster.iter().map(ToString::to_string)).collect::<Vec<_>>().join(" and ");
    let only_reads = right <= Some(Right::Read) && cluster.iter().all(|right| *right == ClusterRight::Metrics);
    (may, only_reads)
}

/// Checks the certificates of the listeners.
fn certificates(config: &Config) -> Vec<Finding> {
    let now = SystemClock::new().wall().0;
    match check_certificates(config) {
        Ok(own) => own.iter().map(|own| certificate(own, now)).collect(),
        Err(failure) => {
            let detail = failure.detail;
            let (what, fix) = detail.rsplit_once("; ").unwrap_or((&detail, "see `lockkeeper certs`"));
            vec![Finding::fail("certificates", what, fix)]
        }
    }
}

/// Judges the end of a certificate.
pub(super) fn certificate(own: &CertificateEnd, now_ms: u64) -> Finding {
    const CHECK: &str = "certificates";
    let Some(end) = own.seconds else { return Finding::ok(CHECK, format!("{}: its end is unknown", own.file)) };
    let days = end.saturating_mul(1_000).saturating_sub(now_ms) / DAY_MS;
    let (detail, advice) =
        (format!("{} ends in {days} days", own.file), "run `lockkeeper certs DIR --renew all`, then HUP");
    if days < DOCTOR_CERTIFICATE_DAYS_MIN {
        return Finding::fail(CHECK, detail, advice);
    }
    if days < DOCTOR_CERTIFICATE_DAYS_WARN {
        return Finding::warn(CHECK, detail, advice);
    }
    Finding::ok(CHECK, detail)
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;
    use crate::model::WallTime;

    /// A port that a process has is named with the process, and counts as good only while the node runs.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_taken_port_is_named() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        assert!(is_taken(address));
        assert!(user_of(address).ends_with(&format!("(pid {})", std::process::id())), "{}", user_of(address));
        drop(listener);
        assert!(!is_taken(address));
    }

    /// A taken port is good only if the process that runs the node has it, also if it is the only one that is taken.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_port_of_another_process_fails_while_the_node_runs() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        let text = format!(
            "cluster = \"harbour\"\nnode = 1\ndata = \"d\"\n[listen]\nhttp = \"127.0.0.1:{port}\"\n\
             [[member]]\nid = 1\nclient = \"127.93.0.1:{port}\"\npeer = \"127.93.0.2:{port}\"\n"
        );
        let config = Config::from_toml("test", &text, []).expect("valid");
        let own = std::process::id();
        let level = |runs, node| ports(&config, runs, node).level;
        assert_eq!([level(true, Some(own)), level(true, None)], [Level::Ok; 2]);
        assert_eq!([level(true, Some(own + 1)), level(false, None)], [Level::Fail; 2]);
    }

    /// A certificate warns a month before its end, and fails a week before it.
    #[test]
    fn ends_of_certificates_are_judged() {
        let level = |days: u64| {
            let end = CertificateEnd { file: "n1.pem".to_owned(), seconds: Some(1_000 + days * 86_400) };
            certificate(&end, 1_000_000).level
        };
        assert_eq!([level(6), level(7), level(29), level(30)], [Level::Fail, Level::Warn, Level::Warn, Level::Ok]);
    }

    fn config([client, http]: [&str; 2], more: &str) -> Config {
        let text = format!(
            "cluster = \"harbour\"\nnode = 1\ndata = \"d\"\n[listen]\nclient = \"{client}:7601\"\n\
             peer = \"127.0.0.1:7611\"\nhttp = \"{http}:7621\"\n[[member]]\nid = 1\n\
             client = \"127.0.0.1:7601\"\npeer = \"127.0.0.1:7611\"\n{more}"
        );
        Config::from_toml("test", &text, []).expect("valid")
    }

    /// A port for clients that the network reaches needs principals; on loopback it needs nothing.
    #[test]
    fn open_ports_fail() {
        let levels = |config: &Config| exposures(config, None).iter().map(|finding| finding.level).collect::<Vec<_>>();
        assert_eq!(levels(&config(["127.0.0.1"; 2], "")), [Level::Ok]);
        let insecure = "[tls.client]\ninsecure = true\n";
        assert_eq!(levels(&config(["0.0.0.0", "127.0.0.1"], insecure)), [Level::Fail]);
    }

    /// Rights that the rules give to callers without proof: a change, a backup or an operation is a failure, and a look
    /// at locks or metrics is a warning. Required certificates keep such callers out, unless plain text is accepted.
    #[test]
    fn rights_without_proof_are_named() {
        const AUTH: &str = "[auth]\nfile = \"a\"\n[audit]\nfile = \"b\"\n";
        const TLS: &str = "[tls]\nca = \"ca\"\ncert = \"c\"\nkey = \"k\"\n[tls.http]\n";
        let judged = |names: &str, cluster: &str, http: &str| {
            let rules = format!(
                "version = 1\n[[role]]\nname = \"some\"\nrules = [{names}]\ncluster = [{cluster}]\n\
                 [[principal]]\nname = \"anonymous\"\nroles = [\"some\"]\n"
            );
            let access = Access::from_toml("rules", &rules, WallTime(0)).expect("rules");
            let open = config(["127.0.0.1", "0.0.0.0"], &format!("{AUTH}{TLS}{http}"));
            let [finding] = &exposures(&open, Some(&access))[..] else { panic!("more than one finding") };
            (finding.level, finding.detail.clone())
        };
        let right = |right: &str| format!("{{ namespace = \"prod\", prefix = \"a/\", right = \"{right}\" }}");
        let may =
            |what: &str| format!("http port 0.0.0.0:7621: without proof, each machine that reaches it may {what}");
        for (names, cluster, level, what) in [
            (right("admin"), "", Level::Fail, "administer names"),
            (right("lock"), "\"metrics\"", Level::Fail, "lock names and read the metrics"),
            (String::new(), "\"backup\"", Level::Fail, "make a backup"),
            (String::new(), "\"operate\"", Level::Fail, "operate the cluster"),
            (right("read"), "", Level::Warn, "read names"),
            (String::new(), "\"metrics\"", Level::Warn, "read the metrics"),
        ] {
            assert_eq!(judged(&names, cluster, ""), (level, may(what)));
        }
        let recognized = (Level::Ok, "every caller is recognized".to_owned());
        assert_eq!(judged("", "", ""), recognized);
        assert_eq!(judged(&right("admin"), "", "client_cert = \"required\"\n"), recognized);
        let plain = judged(&right("admin"), "", "client_cert = \"required\"\nmode = \"allow\"\n");
        assert_eq!(plain.0, Level::Fail);
        let (level, detail) = judged("", "", "mode = \"allow\"\n");
        assert!(level == Level::Warn && detail.contains("accepts plain text, too"), "{detail}");
    }
}
