//! Why a command failed: a code of the error table, a sentence, and the next step.

use std::io;

use crate::client::{ClientError, Lost};
use crate::config::ConfigError;
use crate::model::{DeadlockLink, EndReason, FencingToken, HolderView, Invalid, LockName, Position, Refusal};
use crate::service::{ErrorCode, LeaderHint, ServiceError};

/// Exit code for success, or for the answer yes.
pub(super) const YES: u8 = 0;
/// Exit code for the answer no.
pub(super) const NO: u8 = 1;
/// Exit code for a wrong command line.
pub(super) const USAGE: u8 = 64;
/// Exit code for refused input, such as a damaged backup.
pub(super) const REFUSED: u8 = 65;

/// Ends a command with an exit code and a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) code: ErrorCode,
    pub(crate) detail: String,
    pub(crate) more: Box<More>,
    /// Replaces the exit code of the table.
    pub(crate) exit: Option<u8>,
    /// Whether the detail already contains the next step, so that of the code is not printed.
    pub(crate) names_next_step: bool,
    /// Whether nothing is printed, because the reader of standard output has closed it.
    pub(crate) silent: bool,
}

/// Facts that only some failures have. Boxed, because results with a failure are moved often.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct More {
    /// The leader, as the node that answered knows it.
    pub(crate) leader: Option<LeaderHint>,
    /// The waiters of a deadlock.
    pub(crate) cycle: Vec<DeadlockLink>,
    /// The lock that the failure is about.
    pub(crate) lock: Option<LockName>,
    /// Time to wait before a retry, in milliseconds.
    pub(crate) pause_ms: Option<u64>,
    /// The position to continue from.
    pub(crate) resume: Option<Position>,
    /// One of the holders of the lock.
    pub(crate) holder: Option<Box<HolderView>>,
    /// The value that was refused, and its bound.
    pub(crate) invalid: Option<Invalid>,
}

impl More {
    fn of_lock(lock: &LockName) -> Self {
        Self { lock: Some(lock.clone()), ..Self::default() }
    }

    fn of_value(invalid: &Invalid) -> Self {
        Self { invalid: Some(invalid.clone()), ..Self::default() }
    }

    fn of(error: &ServiceError) -> Self {
        let (leader, pause_ms) = (error.leader().cloned(), Some(error.pause_ms()).filter(|pause_ms| *pause_ms != 0));
        match error {
            ServiceError::Refused(refusal) => Self::of_refusal(refusal),
            ServiceError::EventsMissed { resume, .. } => Self { resume: Some(*resume), ..Self::default() },
            ServiceError::Invalid(invalid) => Self::of_value(invalid),
            ServiceError::NotSent { .. }
            | ServiceError::Unknown { .. }
            | ServiceError::Forbidden { .. }
            | ServiceError::Stopping
            | ServiceError::Internal(_)
            | ServiceError::Unauthenticated { .. } => Self { leader, pause_ms, ..Self::default() },
        }
    }

    #[allow(clippy::wildcard_enum_match_arm, reason = "no other refusal has one of these facts")]
    fn of_refusal(refusal: &Refusal) -> Self {
        match refusal {
            Refusal::Held { lock, holder, .. } => Self { holder: holder.clone(), ..Self::of_lock(&lock.name) },
            Refusal::HeldByOther { lock, holder } => Self { holder: Some(holder.clone()), ..Self::of_lock(&lock.name) },
            Refusal::AlreadyHeld { lock, .. }
            | Refusal::KindMismatch { lock, .. }
            | Refusal::LimitMismatch { lock, .. }
            | Refusal::LimitExceeded { lock, .. }
            | Refusal::LimitUnknown { lock }
            | Refusal::NotHeld { lock }
            | Refusal::Reentered { lock, .. }
            | Refusal::NotAccepted { lock, .. }
            | Refusal::Changed { lock, .. }
            | Refusal::PermitsNotHeld { lock, .. } => Self::of_lock(&lock.name),
            Refusal::Deadlock { cycle } => Self { cycle: cycle.clone(), ..Self::default() },
            Refusal::Closed { left_ms } => Self { pause_ms: Some(*left_ms), ..Self::default() },
            Refusal::OutOfBounds { field, low, high, value, .. } => {
                Self::of_value(&Invalid::new(&field.to_string(), format!("{low}ms to {high}ms"), format!("{value}ms")))
            }
            _ => Self::default(),
        }
    }
}

impl Failure {
    pub(crate) fn new(code: ErrorCode, detail: impl Into<String>) -> Self {
        Self { code, detail: detail.into(), more: Box::default(), exit: None, names_next_step: false, silent: false }
    }

    /// Creates a failure whose detail says why, and what to do.
    pub(crate) fn with_next_step(code: ErrorCode, detail: impl Into<String>) -> Self {
        Self { names_next_step: true, ..Self::new(code, detail) }
    }

    /// Creates the failure of a node that cannot run. The detail says why, and what to do.
    pub(crate) fn stopped(detail: impl Into<String>) -> Self {
        Self::with_next_step(ErrorCode::Internal, detail)
    }

    /// Creates the failure of a wrong command line. The field is what is wrong: an option as `--ttl`, a value as
    /// `<TOKEN>`, or a variable.
    pub(crate) fn usage(field: &str, detail: impl Into<String>) -> Self {
        Self::new(ErrorCode::Invalid, detail).of_field(field)
    }

    /// Creates the failure of wrong settings. The option or value names their file.
    pub(crate) fn config(file: &str, error: &ConfigError) -> Self {
        let field = error.place.strip_prefix("environment variable ").unwrap_or(file);
        Self::usage(field, error.to_string())
    }

    /// Adds the name of the lock that the failure is about.
    pub(crate) fn about(mut self, lock: &LockName) -> Self {
        self.more.lock = Some(lock.clone());
        self
    }

    /// Names the option, the value or the variable that is wrong.
    pub(crate) fn of_field(mut self, field: &str) -> Self {
        self.more.invalid.get_or_insert_with(|| Invalid::new("", "", "")).field = field.to_owned();
        self
    }

    /// Puts the option of the command line in the place of a request's field.
    fn in_options(mut self) -> Self {
        let Some(invalid) = &mut self.more.invalid else { return self };
        let option = option_of(&invalid.field);
        let rest = self.detail.strip_prefix(&*invalid.field).filter(|rest| rest.starts_with([':', ' ']));
        if let Some(rest) = rest.filter(|_| option.starts_with("--")) {
            self.detail = format!("{option}{rest}");
        }
        invalid.field = option;
        self
    }

    /// The failure of a write to standard output.
    pub(crate) fn unwritten(error: io::Error) -> Self {
        let detail = format!("standard output cannot be written: {error}");
        Self { detail, names_next_step: true, ..Self::from(error) }
    }

    /// The failure of an answer that could not be printed, unless the reader has closed standard output: then the exit
    /// code is the answer, and must not become that of a success.
    pub(crate) fn unless_closed<T>(printed: Result<T, Self>) -> Result<(), Self> {
        match printed {
            Err(failure) if !failure.silent => Err(failure),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// The failure of a grant whose line could not be written, and which was therefore released. In this case a closed
    /// standard output is an error.
    pub(crate) fn unprinted(self) -> Self {
        let detail = format!("the grant could not be printed, so it was released: {}", self.detail);
        Self { detail, silent: false, names_next_step: true, ..self }
    }

    #[must_use]
    pub(crate) fn exit(&self) -> u8 {
        if self.silent { 0 } else { self.exit.unwrap_or(self.code.row().exit) }
    }

    /// Returns what to do next, with the name of the lock if it is known.
    #[must_use]
    pub(crate) fn next_step(&self) -> Option<String> {
        let name = self.more.lock.as_ref().map_or("NAME", |lock| lock.as_str());
        // A name that begins with a dash would be read as an option.
        let end = if name.starts_with('-') { "-- " } else { "" };
        let show = format!("`lockkeeper show {end}{}`", quoted(name));
        self.step().map(|step| step.replace("SHOW", &show))
    }

    fn step(&self) -> Option<&'static str> {
        Some(match self.code {
            // The detail names the bound and the fix.
            ErrorCode::Invalid => return None,
            ErrorCode::NotAcquired => "wait longer with -w, or see what blocks it with SHOW",
            ErrorCode::AlreadyHeld => "release it first, or use another owner",
            ErrorCode::Deadlock => "release what the others named here wait for, then try again",
            ErrorCode::KindMismatch | ErrorCode::LimitMismatch | ErrorCode::LimitExceeded | ErrorCode::LimitUnknown => {
                "see how it is used with SHOW"
            }
            ErrorCode::Quota => "release what is no longer needed, or ask for a larger quota",
            ErrorCode::NotHeld | ErrorCode::HeldByOther | ErrorCode::WrongHandle => "see who holds it with SHOW",
            ErrorCode::Changed => "read it again, then repeat the change",
            ErrorCode::NotAccepted => "see who waits for it with SHOW",
            ErrorCode::SessionEnded | ErrorCode::AlreadyOpen => "start again with a new session",
            ErrorCode::StaleAttempt | ErrorCode::TooOld | ErrorCode::RequestReused => "start again with a new request",
            ErrorCode::FeatureLevel => "see what the nodes support with `lockkeeper features`",
            ErrorCode::MembersUnfit => "see who belongs to the cluster with `lockkeeper member ls`",
            ErrorCode::NotPermitted => "ask for the right, or use another certificate or auth token",
            ErrorCode::Unauthenticated => "give --cert and --key, or --auth-token-file; `lockkeeper auth` makes tokens",
            ErrorCode::Unreachable => "check --endpoints and --ca, and that the nodes run",
            ErrorCode::NoLeader | ErrorCode::Stopping => "try again; `lockkeeper status` shows which nodes are healthy",
            ErrorCode::Overloaded => "try again later",
            ErrorCode::Unknown => "check the result with SHOW, then try again",
            ErrorCode::EventsMissed => "continue with --from and the position named here",
            ErrorCode::Lost => "the last work of the command may overlap with another holder: check it",
            ErrorCode::Internal => "please report it",
        })
    }
}

/// Returns the option or the value of the command line that gives a request's field. Other fields stay as they are.
fn option_of(field: &str) -> String {
    let named = match field {
        "lock" => "<NAME>",
        "features" => "<LEVEL>",
        "token" | "session" | "node" | "handle" | "prefix" => return format!("<{}>", field.to_uppercase()),
        "lease" => "--for",
        "position" => "--from",
        "locks" => "--and",
        "cluster_id" => "--cluster",
        "cluster" | "endpoints" | "auth_token_file" | "namespace" | "ttl" | "disconnect_grace" | "delay"
        | "at_least" | "at_most" | "limit" | "permits" | "wait" | "why" | "value" | "owner" | "client" | "peer"
        | "instead_of" | "epoch" => return format!("--{}", field.replace('_', "-")),
        other => other,
    };
    named.to_owned()
}

/// Returns a name as one word of a shell.
fn quoted(name: &str) -> String {
    let is_safe = |c: char| c.is_alphanumeric() || "-_./:@%+=,".contains(c);
    if name.chars().all(is_safe) { name.to_owned() } else { format!("'{}'", name.replace('\'', r"'\''")) }
}

impl From<ServiceError> for Failure {
    fn from(error: ServiceError) -> Self {
        let more = Box::new(More::of(&error));
        // An error with a pause says when to try again.
        let names_next_step = error.pause_ms() != 0;
        Self { more, names_next_step, ..Self::new(error.code(), error.to_string()) }.in_options()
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        let (code, detail) = (error.code(), error.to_string());
        match error {
            ClientError::Service(error) => error.into(),
            ClientError::Refused(refusal) => {
                Self { more: More::of_refusal(&refusal).into(), ..Self::new(code, detail) }.in_options()
            }
            ClientError::NotAcquired { lock, holder, .. } => {
                let more = More { holder, ..More::of_lock(&lock) };
                Self { more: more.into(), ..Self::new(code, detail) }
            }
            ClientError::HoldEnded { lock, .. } => Self::new(code, detail).about(&lock),
            ClientError::Invalid(invalid) => invalid.into(),
            ClientError::SessionLost { .. } => Self::new(code, detail),
        }
    }
}

impl From<Lost> for Failure {
    fn from(lost: Lost) -> Self {
        Self::new(ErrorCode::Lost, lost.to_string()).about(&lost.lock)
    }
}

impl From<Invalid> for Failure {
    fn from(invalid: Invalid) -> Self {
        let failure = Self::new(ErrorCode::Invalid, invalid.to_string());
        Self { more: More::of_value(&invalid).into(), ..failure }.in_options()
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::config("--config", &error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        let silent = error.kind() == io::ErrorKind::BrokenPipe;
        Self { silent, ..Self::new(ErrorCode::Internal, error.to_string()) }
    }
}

/// The failure of a command that names a hold by its token, and perhaps a session.
pub(super) fn no_hold(error: ClientError, token: FencingToken) -> Failure {
    let ClientError::Refused(Refusal::NotHeld { lock }) = &error else { return not_open(error) };
    let detail = format!("no hold of {} has the token {token}", lock.name);
    Failure { detail, ..error.into() }
}

/// The failure of a command that names a session which is not open. Of a session that never existed, the cluster says
/// that it expired.
pub(super) fn not_open(error: ClientError) -> Failure {
    let ClientError::SessionLost { session, reason, .. } = &error else { return error.into() };
    let how = match reason {
        Some(EndReason::Expired) | None => "it has expired, or never existed".to_owned(),
        Some(reason) => format!("it has ended: {reason}"),
    };
    let detail = format!("session {session} is not open ({how}); `lockkeeper sessions` lists those that are");
    Failure::with_next_step(error.code(), detail)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{BoundAdvice, DurationField, LockKey, Namespace, SessionId};
    use crate::service::{NotSent, TABLE};

    /// Every error of the table has a next step and the exit code of its row.
    #[test]
    fn every_error_has_a_next_step() {
        for row in TABLE {
            let failure = Failure::new(row.code, "x");
            assert_eq!(failure.exit(), row.exit);
            let says_it_itself = row.code == ErrorCode::Invalid;
            assert_eq!(failure.next_step().is_none_or(|step| step.is_empty()), says_it_itself, "{}", row.text);
            assert!(!failure.next_step().is_some_and(|step| step.contains("SHOW")), "{}", row.text);
        }
    }

    /// The next step about a lock can be pasted into a shell.
    #[test]
    fn the_next_step_names_the_lock() {
        for (lock, command) in [
            ("nightly", "`lockkeeper show nightly`"),
            ("my job", "`lockkeeper show 'my job'`"),
            ("-x", "`lockkeeper show -- -x`"),
        ] {
            let lock = LockName::parse(lock).unwrap();
            let held = ClientError::NotAcquired { lock, holder: None, closed: None };
            let step = Failure::from(held).next_step().unwrap();
            assert!(step.ends_with(command), "{step}");
        }
    }

    /// An error with a pause says when to try again, so no other next step is printed. A script gets the pause, and the
    /// position after missed events.
    #[test]
    fn a_pause_is_the_next_step() {
        let limit = NotSent::LimitReached { limit: "3 backups".to_owned(), pause_ms: 30_000 };
        let failure = Failure::from(ServiceError::not_sent(limit));
        assert!(failure.names_next_step && failure.detail.contains("try again in 30s"), "{failure:?}");
        assert_eq!((failure.exit(), failure.more.pause_ms), (69, Some(30_000)));
        let resume = Position { index: 1_292, n: 0 };
        let missed = Failure::from(ServiceError::EventsMissed { why: "they are old".to_owned(), resume });
        assert_eq!((missed.more.resume, missed.more.pause_ms), (Some(resume), None));
    }

    /// A script gets the holder of a lock that was not acquired, and the bound of a value that was refused.
    #[test]
    fn an_error_has_its_holder_or_bound() {
        let lock = LockKey { namespace: Namespace::default(), name: LockName::parse("nightly").unwrap() };
        let refused = Refusal::OutOfBounds {
            field: DurationField::Ttl,
            low: 3_000,
            high: 600_000,
            value: 1,
            advice: BoundAdvice::RaiseToFloor,
        };
        let failure = Failure::from(ClientError::from(refused));
        let invalid = failure.more.invalid.expect("a value");
        assert_eq!((&*invalid.field, &*invalid.bound), ("--ttl", "3000ms to 600000ms"));
        assert!(failure.detail.starts_with("--ttl must be 3s to 10m, got 1ms"), "{}", failure.detail);
        let unnamed = LockName::parse("").expect_err("no name");
        let invalid = Failure::from(ServiceError::from(unnamed.clone())).more.invalid;
        assert_eq!(invalid, Some(Invalid { field: "<NAME>".to_owned(), ..unnamed }));
        let holder = Box::new(crate::shapes::tests::holder());
        for refused in [
            Refusal::Held { lock: lock.clone(), holder: Some(holder.clone()), closed: None },
            Refusal::HeldByOther { lock, holder: holder.clone() },
        ] {
            assert_eq!(Failure::from(ClientError::from(refused)).more.holder.as_ref(), Some(&holder));
        }
    }

    /// A script gets the option that gave a wrong value, and the text names it, too. A file names the option or the
    /// value that gave it, and a variable its own name.
    #[test]
    fn a_wrong_value_is_named_by_its_option() {
        let failure = Failure::from(Invalid::new("position", "at most 5, the newest entry", "13.0"));
        assert_eq!(failure.detail, "--from: at most 5, the newest entry, got 13.0");
        assert_eq!(failure.more.invalid.map(|invalid| invalid.field).as_deref(), Some("--from"));
        let named = |place: &str| {
            let (problem, fix) = ("it is wrong".to_owned(), "write another".to_owned());
            let error = ConfigError { place: place.to_owned(), problem, fix };
            Failure::config("<FILE>", &error).more.invalid.map(|invalid| invalid.field)
        };
        assert_eq!(named("n1.toml:2").as_deref(), Some("<FILE>"));
        assert_eq!(named("environment variable LOCKKEEPER_NODE").as_deref(), Some("LOCKKEEPER_NODE"));
    }

    /// A closed standard output (`ls | head`) is not a failure.
    #[test]
    fn a_closed_pipe_is_silent() {
        let failure = Failure::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert_eq!((failure.silent, failure.exit()), (true, 0));
        assert_eq!(Failure::unless_closed(Err::<(), _>(failure.clone())), Ok(()), "the exit code is the answer");
        let full = Failure::from(io::Error::from(io::ErrorKind::StorageFull));
        assert_eq!(Failure::unless_closed(Err::<(), _>(full.clone())), Err(full));
        let failure = failure.unprinted();
        assert_eq!((failure.silent, failure.exit()), (false, 70), "unless it was a grant");
    }

    /// The caller gave a token, so the failure names the token, and the next step the lock.
    #[test]
    fn a_token_without_a_hold_is_named() {
        let refusal = Refusal::NotHeld { lock: crate::shapes::tests::lock() };
        let failure = no_hold(ClientError::Refused(refusal), FencingToken::new(0, 3));
        assert_eq!(failure.detail, "no hold of nightly has the token 3");
        assert_eq!(failure.next_step().as_deref(), Some("see who holds it with `lockkeeper show nightly`"));
    }

    /// A session that is not open may never have existed. The next step is the list of sessions.
    #[test]
    fn a_session_that_is_not_open_may_never_have_existed() {
        let detail = |reason| {
            let session = SessionId::from_u64(99).expect("an id");
            let failure = not_open(ClientError::SessionLost { session, reason: Some(reason), why: None });
            assert!(failure.names_next_step);
            failure.detail
        };
        let list = "`lockkeeper sessions` lists those that are";
        let expired = format!("session 99 is not open (it has expired, or never existed); {list}");
        assert_eq!(detail(EndReason::Expired), expired);
        assert!(detail(EndReason::Broken).contains("(it has ended: "), "{}", detail(EndReason::Broken));
    }
}
