//! Texts of the page: durations, times, clients, links and commands.

use std::fmt::Write as _;

use super::escape::is_unseen;
use crate::clock::date_of;
use crate::model::{LockName, Metadata, Mode, Namespace, WallTime};

/// A blank at which no line ends.
const NO_BREAK: &str = "\u{a0}";

/// Returns a duration with its two largest units, as in `2 h 05 m`.
pub(super) fn span(ms: u64) -> String {
    let seconds = ms / 1_000;
    let (minutes, hours) = (seconds / 60, seconds / 3_600);
    let text = match seconds {
        0 => format!("{ms} ms"),
        1..=9 => format!("{seconds}.{} s", ms % 1_000 / 100),
        10..=59 => format!("{seconds} s"),
        60..=3_599 => format!("{minutes} m {:02} s", seconds % 60),
        3_600..=86_399 => format!("{hours} h {:02} m", minutes % 60),
        _ => format!("{} d {:02} h", hours / 24, hours % 24),
    };
    text.replace(' ', NO_BREAK)
}

/// Returns a number with a comma before each three digits.
pub(super) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at != 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Returns `one` of a thing as `1 lock`, and other numbers with the plural.
pub(super) fn several(number: u64, one: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {one}{plural}", count(number))
}

/// Returns the time of the day, in UTC.
pub(super) fn clock(at: WallTime) -> String {
    full(at).get(11..19).unwrap_or_default().to_owned()
}

/// Returns the time with its date, in the format of RFC 3339.
pub(super) fn full(at: WallTime) -> String {
    humantime::format_rfc3339_seconds(date_of(at)).to_string()
}

/// A client, as it describes itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Client {
    pub(super) name: String,
    /// Its host and process, if they are not in its name; may be empty.
    pub(super) place: String,
    /// The purpose of its request; may be empty.
    pub(super) why: String,
}

impl Client {
    pub(super) fn new(metadata: &Metadata) -> Self {
        let name = metadata.name();
        let host = Some(&*metadata.host).filter(|host| !host.is_empty() && !name.contains(host));
        let process = (metadata.pid != 0 && !metadata.who.is_empty()).then(|| format!("pid {}", metadata.pid));
        let place: Vec<_> = host.map(str::to_owned).into_iter().chain(process).collect();
        Self { name: name.into_owned(), place: place.join(", "), why: metadata.why.to_string() }
    }
}

/// Returns how a lock is held, or is to be held.
pub(super) fn mode(mode: Mode) -> String {
    match mode {
        Mode::Exclusive => "exclusive".to_owned(),
        Mode::Shared => "shared".to_owned(),
        Mode::Permits(count) => several(u64::from(count), "permit"),
    }
}

/// A link within the page: a path and the fields of its query.
#[derive(Debug, Clone)]
pub(super) struct Link(String);

impl Link {
    /// The link to a path that needs no namespace in its query.
    pub(super) fn to(path: &str) -> Self {
        Self(path.to_owned())
    }

    /// The link to a screen. The usual namespace is left out.
    pub(super) fn new(path: &str, namespace: &Namespace) -> Self {
        let link = Self::to(path);
        if *namespace == Namespace::default() { link } else { link.with("ns", namespace.as_str()) }
    }

    /// The link to the screen of a lock.
    pub(super) fn lock(namespace: &Namespace, lock: &LockName) -> Self {
        Self::new("/lock", namespace).with("lock", lock.as_str())
    }

    /// Adds a field.
    pub(super) fn with(mut self, name: &str, value: &str) -> Self {
        let mark = if self.0.contains('?') { '&' } else { '?' };
        let value: String = form_urlencoded::byte_serialize(value.as_bytes()).collect();
        // Writing to a string cannot fail.
        let _ = write!(self.0, "{mark}{name}={value}");
        self
    }

    /// Adds a field unless its value is empty.
    pub(super) fn with_any(self, name: &str, value: &str) -> Self {
        if value.is_empty() { self } else { self.with(name, value) }
    }

    pub(super) fn text(self) -> String {
        self.0
    }
}

/// Returns a word of a shell's command line. Characters that are not seen are written as escapes of bash.
pub(crate) fn shell(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@%+=,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    if !word.contains(is_unseen) {
        return format!("'{}'", word.replace('\'', "'\\''"));
    }
    let mut text = String::from("$'");
    for c in word.chars() {
        match c {
            '\\' | '\'' => text.extend(['\\', c]),
            c if is_unseen(c) => text += &format!("\\U{:08x}", u32::from(c)),
            c => text.push(c),
        }
    }
    text + "'"
}

/// Returns a name as the operand of a command.
pub(super) fn operand(name: &str) -> String {
    let end = if name.starts_with('-') { "-- " } else { "" };
    format!("{end}{}", shell(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_two_units() {
        let texts = [0, 850, 8_250, 41_000, 723_000, 7_500_000, 273_600_000].map(|ms| span(ms).replace(NO_BREAK, " "));
        assert_eq!(texts, ["0 ms", "850 ms", "8.2 s", "41 s", "12 m 03 s", "2 h 05 m", "3 d 04 h"]);
        assert_eq!([0, 999, 1_000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([several(1, "lock"), several(2_000, "lock")], ["1 lock", "2,000 locks"]);
    }

    /// Names keep all their characters in links and commands.
    #[test]
    fn links_and_commands_are_exact() {
        let name = LockName::parse("a b&c=d#é").expect("a name");
        assert_eq!(Link::lock(&Namespace::default(), &name).text(), "/lock?lock=a+b%26c%3Dd%23%C3%A9");
        let prod = Namespace::parse("prod").expect("a namespace");
        assert_eq!(Link::new("/locks", &prod).with_any("prefix", "").text(), "/locks?ns=prod");
        assert_eq!(["nightly", "a b", "it's", ""].map(shell), ["nightly", "'a b'", "'it'\\''s'", "''"]);
        assert_eq!(shell("a\u{202e}'"), "$'a\\U0000202e\\''");
        assert_eq!(["a b", "-a"].map(operand), ["'a b'", "-- -a"]);
    }

    /// The place leaves out what the name says already.
    #[test]
    fn a_client_is_named_once() {
        let client = |who: &str, host: &str, pid| {
            let client = Client::new(&Metadata { who: who.into(), host: host.into(), pid, ..Metadata::default() });
            (client.name, client.place)
        };
        let texts = |name: &str, place: &str| (name.to_owned(), place.to_owned());
        assert_eq!(client("ann", "db1", 812), texts("ann", "db1, pid 812"));
        assert_eq!(client("ann@db1", "db1", 0), texts("ann@db1", ""));
        assert_eq!(client("", "db1", 812), texts("pid 812 on db1", ""));
    }
}
