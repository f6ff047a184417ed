//! Options that several commands share, and the parsers of their values.

use std::io::BufRead;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use rustix::process::Signal;

use super::error::Failure;
use crate::limits::HANDLE_BYTES_MAX;
use crate::model::{FencingToken, Handle, LockName, Namespace};

/// Common to all commands.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Common options")]
pub(super) struct Common {
    /// Addresses of nodes, separated by commas
    #[arg(
        short,
        long,
        global = true,
        env = "LOCKKEEPER_ENDPOINTS",
        value_delimiter = ',',
        default_value = "127.0.0.1:7601,127.0.0.1:7602,127.0.0.1:7603",
        value_name = "HOST:PORT,…"
    )]
    pub(super) endpoints: Vec<String>,
    /// Whether the addresses are those of the caller, not the default ones.
    #[arg(skip)]
    pub(super) endpoints_given: bool,
    /// Id of the cluster, as `status` shows it; other clusters are refused [env: LOCKKEEPER_CLUSTER]
    // Read from the environment where it is used: `restore` has another option of this name, which the variable must
    // not set.
    #[arg(long, global = true, value_name = "ID")]
    pub(super) cluster: Option<String>,
    /// Namespace of the locks
    #[arg(short = 'N', long, global = true, env = "LOCKKEEPER_NAMESPACE", default_value = "default", value_parser = Namespace::parse)]
    pub(super) namespace: Namespace,
    /// Longest time for connecting plus one request, such as 500ms, 10s or 1m; it never bounds a wait or a child
    #[arg(short, long, global = true, env = "LOCKKEEPER_TIMEOUT", default_value = "5s", value_parser = timeout, value_name = "DURATION")]
    pub(super) timeout: Duration,
    /// Certificates of the nodes' authorities, in PEM: connects with TLS [default: plain text]
    #[arg(long, global = true, env = "LOCKKEEPER_CA", value_name = "FILE")]
    pub(super) ca: Option<PathBuf>,
    /// Certificate to show to the nodes, in PEM [default: none]
    #[arg(long, global = true, env = "LOCKKEEPER_CERT", value_name = "FILE")]
    pub(super) cert: Option<PathBuf>,
    /// Private key of the certificate, in PEM [default: none]
    #[arg(long, global = true, env = "LOCKKEEPER_KEY", value_name = "FILE")]
    pub(super) key: Option<PathBuf>,
    /// File with a token of the principal to act as, which no other user may read [default: none]
    #[arg(long, global = true, env = "LOCKKEEPER_AUTH_TOKEN_FILE", value_name = "FILE")]
    pub(super) auth_token_file: Option<PathBuf>,
    /// Print answers and errors as JSON, one object a line
    #[arg(short, long, global = true)]
    pub(super) json: bool,
    /// Write a log to standard error; repeat it for more detail
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(super) verbose: u8,
}

/// Names one hold by its lock and its token.
#[derive(Debug, Args)]
pub(super) struct HoldArgs {
    /// Name of the lock
    #[arg(value_parser = LockName::parse)]
    pub(super) name: LockName,
    /// Fencing token of the hold
    pub(super) token: FencingToken,
}

/// The secret of a lease.
#[derive(Debug, Args)]
pub(super) struct HandleOption {
    /// Secret of the lease, as `acquire` printed it; `-` reads it from standard input. Other users of this machine can
    /// see arguments, but neither the variable nor standard input
    #[arg(value_parser = Handle::parse, env = "LOCKKEEPER_HANDLE", hide_env_values = true)]
    handle: Handle,
}

impl HandleOption {
    /// The secret, from the option or from standard input.
    pub(super) fn read(self) -> Result<Handle, Failure> {
        given_handle(self.handle)
    }
}

/// Returns the handle, or for `-` the handle on standard input.
pub(super) fn given_handle(handle: Handle) -> Result<Handle, Failure> {
    if handle.reveal() != "-" { Ok(handle) } else { read_handle(std::io::stdin().lock()) }
}

/// Returns the handle on the first line of a text.
fn read_handle(from: impl BufRead) -> Result<Handle, Failure> {
    let mut line = String::new();
    let most = u64::try_from(HANDLE_BYTES_MAX + "\r\n".len()).unwrap_or(u64::MAX);
    from.take(most).read_line(&mut line)?;
    Ok(Handle::parse(line.trim_end_matches(['\r', '\n']))?)
}

/// Parses a duration. A number without a unit is refused.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    if digits(whole) && digits(fraction) {
        return Err(format!("a duration needs a unit: did you mean {text}s?"));
    }
    humantime::parse_duration(text).map_err(|error| format!("{error}; write it like 250ms, 10s or 5m"))
}

/// Parses the longest time of a request. Within no time none can be answered.
pub(super) fn timeout(text: &str) -> Result<Duration, String> {
    let timeout = duration(text)?;
    if timeout < Duration::from_millis(1) { Err("a timeout is at least 1ms".to_owned()) } else { Ok(timeout) }
}

/// A signal by its name, with or without SIG.
pub(super) fn signal(text: &str) -> Result<Signal, String> {
    let name = text.to_uppercase();
    let name = name.strip_prefix("SIG").unwrap_or(&name);
    let known: Option<nix::sys::signal::Signal> = format!("SIG{name}").parse().ok();
    known
        .and_then(|known| Signal::from_named_raw(known as i32))
        .ok_or_else(|| "a signal is written like USR1".to_owned())
}

/// Parses a lock-delay, which has an upper bound.
pub(super) fn delay(text: &str) -> Result<Duration, String> {
    let (delay, longest) = (duration(text)?, Duration::from_millis(crate::limits::LOCK_DELAY_MS_MAX));
    if longest < delay {
        Err(format!("a lock-delay is at most {}", humantime::format_duration(longest)))
    } else {
        Ok(delay)
    }
}

/// Parses the shortest time that a lock stays closed.
pub(super) fn at_least(text: &str) -> Result<Duration, String> {
    from_the_grant("at-least", text, crate::limits::AT_LEAST_MS_MAX)
}

/// Parses the longest time that a lock is held.
pub(super) fn at_most(text: &str) -> Result<Duration, String> {
    from_the_grant("at-most", text, crate::limits::AT_MOST_MS_MAX)
}

fn from_the_grant(what: &str, text: &str, longest_ms: u64) -> Result<Duration, String> {
    let (length, longest) = (duration(text)?, Duration::from_millis(longest_ms));
    if (Duration::from_millis(1)..=longest).contains(&length) {
        Ok(length)
    } else {
        Err(format!("--{what} is 1ms to {}h", longest_ms / 3_600_000))
    }
}

/// Parses the setting `ttl_max`, which is at most a day.
pub(super) fn ttl_max(text: &str) -> Result<Duration, String> {
    let (ttl_max, longest) = (duration(text)?, Duration::from_millis(crate::limits::TTL_MS_MAX));
    if longest < ttl_max { Err("ttl_max is at most 24h".to_owned()) } else { Ok(ttl_max) }
}

/// Parses a port base, of which 0 means free ports. The ports of nine nodes must fit above it.
pub(super) fn port_base(text: &str) -> Result<u16, String> {
    let base: u16 = text.parse().map_err(|_| "a port number is 0 to 65535".to_owned())?;
    if base > u16::MAX - 29 {
        return Err(format!("the ports from {base} do not all exist: choose a base from 0 to {}", u16::MAX - 29));
    }
    Ok(base)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Durations need a unit. The error for a bare number proposes one.
    #[test]
    fn durations_need_a_unit() {
        assert_eq!(duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(duration("1m 30s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("0s"), Ok(Duration::ZERO));
        assert!(duration("10").unwrap_err().contains("did you mean 10s?"));
        assert!(duration("0").unwrap_err().contains("did you mean 0s?"));
        assert!(duration("2.5").unwrap_err().contains("did you mean 2.5s?"));
        assert!(duration("soon").unwrap_err().contains("write it like"));
        for text in ["-5s", "1e1", "inf", "nan", "-3", "1.", ".5"] {
            let refused = duration(text).unwrap_err();
            assert!(refused.contains("write it like") && !refused.contains("did you mean"), "{refused}");
        }
    }

    /// Signals have names, as `kill -l` prints them.
    #[test]
    fn signals_are_named() {
        for text in ["USR1", "SIGUSR1", "usr1"] {
            assert_eq!(signal(text), Ok(Signal::USR1));
        }
        assert!(signal("10").unwrap_err().contains("USR1"));
        assert!(signal("NOTHING").is_err());
    }

    /// All ports above a port base exist.
    #[test]
    fn ports_above_the_base_exist() {
        assert_eq!(port_base("7600"), Ok(7600));
        assert!(port_base("65530").unwrap_err().contains("choose a base"));
        assert_eq!(port_base("0"), Ok(0));
    }

    /// A handle from standard input is the first line, with or without a line end. A longer line than a handle may be
    /// is refused, and not read to its end.
    #[test]
    fn a_handle_is_read_from_standard_input() {
        let read = |text: &[u8]| read_handle(text).map(|handle| handle.reveal().to_owned());
        assert_eq!(read(b"secret\nmore\n").expect("a handle"), "secret");
        assert_eq!(read(b"secret\r\n").expect("a handle"), "secret");
        let longest = "x".repeat(HANDLE_BYTES_MAX);
        assert_eq!(read(format!("{longest}\n").as_bytes()).expect("a handle"), longest);
        let mut endless = std::io::BufReader::new(std::io::repeat(b'x'));
        for refused in [read(b""), read(b"\n"), read_handle(&mut endless).map(|_| String::new())] {
            assert_eq!(refused.expect_err("no handle").exit(), 64);
        }
    }
}
