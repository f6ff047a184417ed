//! Measures whether a fault had an effect: retransmitted packets, another hour on a clock, connections that are not
//! accepted. A fault without an effect proves nothing.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

/// The read timeout: a node without free descriptors does not answer at all.
const ANSWER_WAIT: Duration = Duration::from_secs(2);

/// The number of TCP segments that these nodes have retransmitted, each in its own network namespace. It is zero while
/// no packet is lost.
pub(super) fn sent_again(nodes: &[u32]) -> u64 {
    nodes.iter().filter_map(|node| counter(&format!("/proc/{node}/net/snmp"), "Tcp:", "RetransSegs")).sum()
}

/// Reads a number from a file with pairs of lines: names, then values.
fn counter(file: &str, group: &str, name: &str) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    let mut lines = text.lines().filter(|line| line.starts_with(group));
    let (names, values) = (lines.next()?, lines.next()?);
    let at = names.split_whitespace().position(|found| found == name)?;
    values.split_whitespace().nth(at)?.parse().ok()
}

/// The day and hour of a node's wall clock, from the date header of its HTTP answers.
pub(super) fn hour(http: &str) -> Option<String> {
    let mut stream = TcpStream::connect(http).ok()?;
    stream.set_read_timeout(Some(ANSWER_WAIT)).ok()?;
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    // `date: Sun, 22 Nov 2026 07:51:47 GMT`
    let date = answer.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("date: ").map(str::to_owned))?;
    Some(date.split(':').next()?.to_owned())
}

/// The number of connections to a node's port that are not yet accepted.
pub(super) fn unaccepted(node: u32, address: &str) -> u64 {
    let port: u16 = address.rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port");
    let text = fs::read_to_string(format!("/proc/{node}/net/tcp")).unwrap_or_default();
    let waiting = text.lines().skip(1).filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        // The columns are number, local address, remote address, state (0A is listening), and queues.
        let listens = words.get(3) == Some(&"0A") && words.get(1)?.ends_with(&format!(":{port:04X}"));
        let (_, queue) = words.get(4)?.split_once(':')?;
        listens.then(|| u64::from_str_radix(queue, 16).ok()).flatten()
    });
    waiting.sum()
}

/// The number of periods in which a control group used up its processor quota.
pub(super) fn throttled(group: &Path) -> u64 {
    let text = fs::read_to_string(group.join("cpu.stat")).unwrap_or_default();
    let found = text.lines().find_map(|line| line.strip_prefix("nr_throttled ")?.trim().parse().ok());
    found.unwrap_or_default()
}
