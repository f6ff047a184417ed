//! Checks of a node's listeners: the processes that have their ports, the machines that can reach them, and their
//! certificates.

use std::net::{SocketAddr, TcpListener};

use super::finding::Finding;
use crate::cli::server::check_certificates;
use crate::cli::sockets::process_at;
use crate::clock::{Clock, SystemClock};
use crate::config::{Config, Protection};
use crate::limits::{CERTIFICATE_DAY_MS, DOCTOR_CERTIFICATE_DAYS_MIN, DOCTOR_CERTIFICATE_DAYS_WARN};
use crate::net::CertificateEnd;

/// Checks the listeners of a node. `runs` is whether a process has the node's directory open.
pub(super) fn checks(config: &Config, runs: bool) -> Vec<Finding> {
    let mut findings = vec![ports(config, runs)];
    findings.extend(exposures(config));
    findings.extend(certificates(config));
    findings
}

/// Checks that the ports are free, or that the node itself has them.
fn ports(config: &Config, runs: bool) -> Finding {
    let taken: Vec<_> = config.listeners().filter(|(_, _, address)| is_taken(*address)).collect();
    if taken.is_empty() {
        return Finding::ok("ports", if runs { "free, although a process has the directory open" } else { "free" });
    }
    let described: Vec<_> = taken.iter().map(|(name, _, at)| format!("listen.{name} {at} {}", user_of(*at))).collect();
    let detail = described.join(", ");
    if runs {
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
fn exposures(config: &Config) -> Vec<Finding> {
    let mut findings: Vec<_> = config.listeners().filter_map(|listener| exposure(config, listener)).collect();
    if findings.is_empty() {
        let detail = if config.auth.is_some() { "every caller is recognized" } else { "only this machine" };
        findings.push(Finding::ok("exposure", detail));
    }
    findings
}

fn exposure(config: &Config, (name, protection, address): (&str, &Protection, SocketAddr)) -> Option<Finding> {
    const CHECK: &str = "exposure";
    if address.ip().to_canonical().is_loopback() {
        return None;
    }
    let certificates = matches!(protection, Protection::Tls { client_cert_required: true, .. });
    if name != "peer" && config.auth.is_none() && !certificates {
        let detail = format!("{name} port {address} without [auth]: each machine that reaches it may break locks");
        return Some(Finding::fail(CHECK, detail, "set [auth] and [audit], or listen on 127.0.0.1"));
    }
    if let Some(warning) = protection.warning(name, address, config.auth.is_some()) {
        return Some(Finding::warn(CHECK, warning, "see the manual's page on security"));
    }
    let metrics = name == "http" && config.auth.is_none();
    metrics.then(|| Finding::warn(CHECK, format!("metrics at {address} are open to the network"), "set [auth]"))
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
    let days = (end * 1_000).saturating_sub(now_ms) / CERTIFICATE_DAY_MS;
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

    /// A certificate warns a month before its end, and fails a week before it.
    #[test]
    fn ends_of_certificates_are_judged() {
        let level = |days: u64| {
            let end = CertificateEnd { file: "n1.pem".to_owned(), seconds: Some(1_000 + days * 86_400) };
            certificate(&end, 1_000_000).level
        };
        assert_eq!([level(6), level(7), level(29), level(30)], [Level::Fail, Level::Warn, Level::Warn, Level::Ok]);
    }

    fn config(listen: &str, more: &str) -> Config {
        let text = format!(
            "cluster = \"harbour\"\nnode = 1\ndata = \"d\"\n[listen]\nclient = \"{listen}:7601\"\n\
             peer = \"127.0.0.1:7611\"\n[[member]]\nid = 1\nclient = \"127.0.0.1:7601\"\npeer = \"127.0.0.1:7611\"\n{more}"
        );
        Config::from_toml("test", &text, []).expect("valid")
    }

    /// A port for clients that the network reaches needs principals; on loopback it needs nothing.
    #[test]
    fn open_ports_fail() {
        let levels = |config: &Config| exposures(config).iter().map(|finding| finding.level).collect::<Vec<_>>();
        assert_eq!(levels(&config("127.0.0.1", "")), [Level::Ok]);
        assert_eq!(levels(&config("0.0.0.0", "[tls.client]\ninsecure = true\n")), [Level::Fail]);
    }
}
