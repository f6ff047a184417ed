//! Texts of the command line become values, or a refusal that says what was meant.

use std::time::Duration;

use rustix::process::Signal;

use crate::model::{FencingToken, Handle, LockName, LockValue, Namespace, Owner, Reason, SessionId};

/// A duration as people write it; a bare number is refused, for nobody knows its unit.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    if text.parse::<f64>().is_ok() {
        return Err(format!("a duration needs a unit: did you mean {text}s?"));
    }
    humantime::parse_duration(text).map_err(|error| format!("{error}; write it like 250ms, 10s or 5m"))
}

/// Checked when it is parsed, so that nothing is sent with a bad name.
pub(super) fn lock_name(text: &str) -> Result<LockName, String> {
    LockName::parse(text).map_err(|invalid| invalid.to_string())
}

pub(super) fn namespace(text: &str) -> Result<Namespace, String> {
    Namespace::parse(text).map_err(|invalid| invalid.to_string())
}

pub(super) fn handle(text: &str) -> Result<Handle, String> {
    Handle::parse(text).map_err(|invalid| invalid.to_string())
}

pub(super) fn owner(text: &str) -> Result<Owner, String> {
    Owner::parse(text).map_err(|invalid| invalid.to_string())
}

pub(super) fn token(text: &str) -> Result<FencingToken, String> {
    text.parse().map_err(|invalid: crate::model::Invalid| invalid.to_string())
}

pub(super) fn session(text: &str) -> Result<SessionId, String> {
    text.parse().map_err(|invalid: crate::model::Invalid| invalid.to_string())
}

pub(super) fn reason(text: &str) -> Result<Reason, String> {
    Reason::parse(text).map_err(|invalid| invalid.to_string())
}

pub(super) fn value(text: &str) -> Result<LockValue, String> {
    LockValue::parse(text).map_err(|invalid| invalid.to_string())
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

/// A lock-delay is short: for longer it would only stand in the way of others.
pub(super) fn delay(text: &str) -> Result<Duration, String> {
    let (delay, longest) = (duration(text)?, Duration::from_millis(crate::limits::LOCK_DELAY_MS_MAX));
    if longest < delay {
        Err(format!("a lock-delay is at most {}", humantime::format_duration(longest)))
    } else {
        Ok(delay)
    }
}

/// How long a lock stays closed at least.
pub(super) fn at_least(text: &str) -> Result<Duration, String> {
    from_the_grant("at-least", text, crate::limits::AT_LEAST_MS_MAX)
}

/// How long a lock is held at most.
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

/// The setting `ttl_max`, which no cluster has above a day.
pub(super) fn ttl_max(text: &str) -> Result<Duration, String> {
    let (ttl_max, longest) = (duration(text)?, Duration::from_millis(crate::limits::TTL_MS_MAX));
    if longest < ttl_max { Err("ttl_max is at most 24h".to_owned()) } else { Ok(ttl_max) }
}

/// The lowest port base that leaves room for every listener of nine nodes above it.
pub(super) fn port_base(text: &str) -> Result<u16, String> {
    let base: u16 = text.parse().map_err(|_| "a port number is 1 to 65535".to_owned())?;
    if base == 0 || base > u16::MAX - 29 {
        return Err(format!("the ports from {base} do not all exist: choose a base from 1 to {}", u16::MAX - 29));
    }
    Ok(base)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Durations are written as people write them, and a bare number is asked for its unit.
    #[test]
    fn durations_need_a_unit() {
        assert_eq!(duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(duration("1m 30s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("0s"), Ok(Duration::ZERO));
        assert!(duration("10").unwrap_err().contains("did you mean 10s?"));
        assert!(duration("0").unwrap_err().contains("did you mean 0s?"));
        assert!(duration("2.5").unwrap_err().contains("did you mean 2.5s?"));
        assert!(duration("soon").unwrap_err().contains("write it like"));
        assert!(duration("-5s").is_err());
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

    /// A port base leaves room for the ports above it.
    #[test]
    fn port_bases_leave_room() {
        assert_eq!(port_base("7600"), Ok(7600));
        assert!(port_base("65530").unwrap_err().contains("choose a base"));
        assert!(port_base("0").is_err());
    }
}
