//! Limits the commands per second of each namespace, and the commands and renewals per second of each principal: one
//! token bucket each, on the leader, before the log.
//!
//! Commands that release or end something are never refused, neither those of its owner nor a break or an end of
//! another's session. They count for their principal. Those that find nothing to end are limited like others: each is
//! remembered, or takes a place in the log.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, Ordering};

use super::authorizer::Authorizer;
use super::buckets::Buckets;
use crate::clock::{Clock, Instant};
use crate::config;
use crate::machine::Machine;
use crate::model::{Command, DocumentCommand, Manage, Managing, Namespace, Principal};
use crate::mutex::Mutex;
use crate::service::NotSent;

/// All buckets, with the limits that fill those of namespaces. The limits of principals come with their calls.
#[derive(Debug, Default)]
pub(super) struct RateLimits {
    /// Whether any namespace has a limit.
    on: AtomicBool,
    limited: Mutex<Limited>,
}

#[derive(Debug, Default)]
struct Limited {
    rates: config::Rates,
    buckets: Buckets<Bucket>,
}

/// What shares one bucket.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Bucket {
    Namespace(Namespace),
    Commands(Principal),
    Renewals(Principal),
}

impl Bucket {
    /// Returns the refusal of a call because of this bucket.
    fn exceeded(&self, a_second: u32, pause_ms: u64) -> NotSent {
        let of_principal = |name: &Principal, calls: &str| {
            let limit = format!("principal {:?} may send {a_second} {calls} a second", name.as_str());
            NotSent::LimitReached { limit, pause_ms }
        };
        match self {
            Self::Namespace(_) => NotSent::RateExceeded { a_second, pause_ms },
            Self::Commands(name) => of_principal(name, "commands"),
            Self::Renewals(name) => of_principal(name, "renewals"),
        }
    }
}

/// The namespace of a command that a limit may refuse.
enum Within<'a> {
    Namespace(&'a Namespace),
    /// The namespace of its session.
    Session,
}

/// A bucket with the tokens that it gets in a second.
type Rated = (Bucket, u32);

impl Limited {
    fn check(&self, (bucket, a_second): &Rated, now: Instant) -> Result<(), NotSent> {
        let checked = self.buckets.check(bucket, *a_second, now);
        checked.map_err(|pause_ms| bucket.exceeded(*a_second, pause_ms))
    }

    fn rated(&self, namespace: Namespace) -> Option<Rated> {
        let a_second = self.rates.of(&namespace)?;
        Some((Bucket::Namespace(namespace), a_second))
    }
}

impl RateLimits {
    pub(super) fn new(rates: config::Rates) -> Self {
        let limits = Self::default();
        limits.set(rates);
        limits
    }

    /// Replaces the limits of namespaces. Commands that were already sent still count.
    pub(super) fn set(&self, rates: config::Rates) {
        let mut limited = self.limited.lock();
        self.on.store(!rates.is_off(), Ordering::Relaxed);
        limited.rates = rates;
    }

    /// Takes the command out of the buckets of its principal and its namespace. A command that releases or ends
    /// something is only counted for its principal. `found` returns the namespace of the command's session, and whether
    /// the command ends something. The error names the limit and says how long to wait.
    pub(super) fn check(
        &self,
        command: &Command,
        authorizer: Option<&Authorizer>,
        clock: &dyn Clock,
        found: impl FnOnce() -> (Option<Namespace>, bool),
    ) -> Result<(), NotSent> {
        let rated = |authorizer: &Authorizer| {
            let a_second = authorizer.access.commands_a_second(&authorizer.principal)?;
            Some((Bucket::Commands(authorizer.principal.clone()), a_second.get()))
        };
        let of_principal = authorizer.and_then(rated);
        if of_principal.is_none() && !self.on.load(Ordering::Relaxed) {
            return Ok(());
        }
        let within = within(command);
        let (of_session, ends) = if within.is_some() { found() } else { (None, false) };
        let within = within.filter(|_| !ends);
        let refusable = within.is_some();
        let namespace = within.and_then(|within| match within {
            Within::Namespace(namespace) => Some(namespace.clone()),
            Within::Session => of_session,
        });
        let (now, mut limited) = (clock.now(), self.limited.lock());
        let of_namespace = namespace.and_then(|namespace| limited.rated(namespace));
        let rated = [of_principal, of_namespace];
        if refusable {
            rated.iter().flatten().try_for_each(|rated| limited.check(rated, now))?;
        }
        rated.iter().flatten().for_each(|(bucket, a_second)| limited.buckets.take(bucket, 1, *a_second, now));
        Ok(())
    }

    /// Takes this number of renewals out of the bucket of a principal. All of them pass if one may pass. The error
    /// names the limit and says how long to wait.
    pub(super) fn check_renewals(
        &self,
        renewals: usize,
        principal: &Principal,
        a_second: NonZeroU32,
        now: Instant,
    ) -> Result<(), NotSent> {
        let rated = (Bucket::Renewals(principal.clone()), a_second.get());
        let mut limited = self.limited.lock();
        limited.check(&rated, now)?;
        limited.buckets.take(&rated.0, renewals, rated.1, now);
        Ok(())
    }
}

/// Whether a command ends something that its caller need not own: a hold, a session, or the record of a process.
pub(super) fn ends_of_any_caller(machine: &Machine, command: &Command) -> bool {
    if let Command::Manage(Manage { lock, what: Managing::BreakHold { token, .. } }) = command {
        return machine.hold_principal(lock, *token).is_some();
    }
    if let Command::Document(DocumentCommand::StopPing { namespace, process }) = command {
        return machine.state().processes.contains_key(&(namespace.clone(), process.clone()));
    }
    matches!(command, Command::EndSession(end) if machine.namespace_of(end.session) == Some(&end.namespace))
}

/// Returns the namespace of a command that a limit may refuse; `None` for an attach, for commands of nodes, and for a
/// change of a setting.
fn within(command: &Command) -> Option<Within<'_>> {
    match command {
        Command::OpenSession(open) => Some(Within::Namespace(&open.namespace)),
        Command::Acquire(_)
        | Command::Alter(_)
        | Command::CloseSession { .. }
        | Command::Cancel { .. }
        | Command::Release(_) => Some(Within::Session),
        Command::TakeLease(take) => Some(Within::Namespace(&take.lock.namespace)),
        Command::CancelTake { lock, .. } | Command::DropLease { lock, .. } => Some(Within::Namespace(&lock.namespace)),
        Command::Manage(manage) => Some(Within::Namespace(&manage.lock.namespace)),
        Command::Document(document) => match document {
            DocumentCommand::Grab(grab) => Some(Within::Namespace(&grab.lock.namespace)),
            DocumentCommand::SwapValue { lock, .. }
            | DocumentCommand::Confirm { lock, .. }
            | DocumentCommand::RemoveExpired { lock, .. } => Some(Within::Namespace(&lock.namespace)),
            DocumentCommand::Ping { namespace, .. }
            | DocumentCommand::Unlock { namespace, .. }
            | DocumentCommand::StopPing { namespace, .. }
            | DocumentCommand::UnlockAll { namespace, .. } => Some(Within::Namespace(namespace)),
        },
        Command::EndSession(end) => Some(Within::Namespace(&end.namespace)),
        Command::Attach(_)
        | Command::Disconnected { .. }
        | Command::ChangeSetting(_)
        | Command::Tick
        | Command::LeaderlessGap { .. }
        | Command::Configure { .. }
        | Command::Announce(_)
        | Command::RaiseFeatures(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::auth::Access;
    use crate::clock::ManualClock;
    use crate::limits::RATES_SWEPT_MIN;
    use crate::model::{
        Alter, Alteration, DocumentId, EndSession, Entry, FencingToken, Handle, Instance, LeaseRequestId, LockKey,
        LockName, LogTime, Metadata, Mode, OpenSession, Patience, ProcessId, Reason, Release, RequestId, SessionClose,
        SessionId, Submission, TakeLease, WallTime,
    };

    fn rates(a_second: Option<u32>, of: &[(&str, u32)]) -> RateLimits {
        let of = of.iter().map(|(name, rate)| (namespace(name), *rate)).collect();
        RateLimits::new(config::Rates { a_second, of })
    }

    fn namespace(name: &str) -> Namespace {
        Namespace::parse(name).expect("legal")
    }

    fn key_of(namespace: &Namespace) -> LockKey {
        LockKey { namespace: namespace.clone(), name: LockName::parse("a").expect("legal") }
    }

    fn open(namespace: &Namespace) -> Command {
        Command::OpenSession(OpenSession {
            namespace: namespace.clone(),
            handle: Handle::from_random(1),
            instance: Instance(1),
            ttl_ms: 60_000,
            disconnect_grace_ms: None,
            metadata: Metadata::default(),
            accepts_hand_over: false,
        })
    }

    /// Limits and the clock that they use.
    struct Timed {
        rates: RateLimits,
        clock: ManualClock,
    }

    impl Timed {
        fn new(rates: RateLimits) -> Self {
            Self { rates, clock: ManualClock::new(1) }
        }

        fn pass(&self, ms: u64) {
            self.clock.advance(Duration::from_millis(ms));
        }

        fn open(&self, authorizer: Option<&Authorizer>, namespace: &Namespace) -> Result<(), NotSent> {
            self.rates.check(&open(namespace), authorizer, &self.clock, || (None, false))
        }

        fn take(&self, namespace: &Namespace) -> Result<(), NotSent> {
            self.open(None, namespace)
        }

        fn close(&self, authorizer: &Authorizer) -> Result<(), NotSent> {
            let close = Command::CloseSession { session: SessionId::new(0, 1), end: SessionClose::Done };
            self.rates.check(&close, Some(authorizer), &self.clock, || (None, true))
        }

        fn renew(&self, authorizer: &Authorizer, renewals: usize) -> Result<(), NotSent> {
            let a_second = authorizer.access.renewals_a_second(&authorizer.principal).expect("a rate");
            self.rates.check_renewals(renewals, &authorizer.principal, a_second, self.clock.now())
        }
    }

    /// The principal `ci`, with these lines in its entry.
    fn authorizer(rates: &str) -> Authorizer {
        let text = format!("version = 1\n[[principal]]\nname = \"ci\"\nroles = []\n{rates}");
        let access = Arc::new(Access::from_toml("auth.toml", &text, WallTime(0)).expect("good rules"));
        Authorizer { access, principal: Principal::parse("ci").expect("legal") }
    }

    fn reached(limit: &str, pause_ms: u64) -> Result<(), NotSent> {
        Err(NotSent::LimitReached { limit: limit.to_owned(), pause_ms })
    }

    /// The commands of one second may arrive at once, then one at a time; the refusal names the rate and the time to
    /// wait.
    #[test]
    fn a_bucket_holds_one_second() {
        let rates = Timed::new(rates(Some(10), &[]));
        let ours = namespace("ours");
        for _ in 0..10 {
            rates.take(&ours).expect("within the burst");
        }
        let refused = rates.take(&ours).expect_err("one too many");
        assert_eq!(refused, NotSent::RateExceeded { a_second: 10, pause_ms: 100 });
        rates.pass(99);
        assert_eq!(rates.take(&ours), Err(NotSent::RateExceeded { a_second: 10, pause_ms: 1 }));
        rates.pass(1);
        rates.take(&ours).expect("one more");
        assert!(rates.take(&ours).is_err());
        rates.pass(1_900);
        for _ in 0..10 {
            rates.take(&ours).expect("full again, and no fuller");
        }
        assert!(rates.take(&ours).is_err());
    }

    /// A namespace at its limit takes nothing from another; each has its own limit, and a namespace without one is
    /// unlimited.
    #[test]
    fn one_namespace_does_not_slow_another() {
        let rates = Timed::new(rates(None, &[("slow", 1), ("fast", 100)]));
        rates.take(&namespace("slow")).expect("the first");
        assert!(rates.take(&namespace("slow")).is_err());
        for _ in 0..100 {
            rates.take(&namespace("fast")).expect("its own bound");
        }
        for _ in 0..1_000 {
            rates.take(&namespace("free")).expect("no bound");
        }
    }

    /// Namespaces without commands for a second leave no entries.
    #[test]
    fn quiet_namespaces_leave_nothing() {
        let rates = Timed::new(rates(Some(1), &[]));
        for number in 0..10_000 {
            rates.take(&namespace(&format!("n{number}"))).expect("its first");
            rates.pass(100);
        }
        assert!(rates.rates.limited.lock().buckets.len() <= 2 * RATES_SWEPT_MIN);
    }

    /// A principal at its rate is refused by name, in every namespace. What it gives back passes and counts, but its
    /// next command waits at most two seconds for that. A refused command takes nothing from the namespace.
    #[test]
    fn giving_back_counts_and_passes() {
        let rates = Timed::new(rates(Some(11), &[]));
        let (ours, ci) = (namespace("ours"), authorizer("commands_a_second = 10\n"));
        for _ in 0..10 {
            rates.open(Some(&ci), &ours).expect("within the burst");
        }
        let limit = "principal \"ci\" may send 10 commands a second";
        for namespace in [&ours, &namespace("another")] {
            assert_eq!(rates.open(Some(&ci), namespace), reached(limit, 100));
        }
        rates.take(&ours).expect("the refused command did not count for the namespace");
        rates.close(&ci).expect("giving back is never refused");
        assert_eq!(rates.open(Some(&ci), &ours), reached(limit, 200));
        for _ in 0..1_000 {
            rates.close(&ci).expect("giving back is never refused");
        }
        assert_eq!(rates.open(Some(&ci), &ours), reached(limit, 1_100));
        rates.pass(1_100);
        rates.open(Some(&ci), &ours).expect("one more");
    }

    /// What finds nothing to give back or to end is limited, because it takes a place in the log, and so are pings and
    /// changes of documents. What finds something passes, and counts for its principal.
    #[test]
    fn ending_nothing_is_limited() {
        let (ours, ci) = (namespace("ours"), authorizer("commands_a_second = 1\n"));
        let key = || key_of(&ours);
        let (lock, namespace, process) = (key(), ours.clone(), || ProcessId::parse("p").expect("legal"));
        let (handle, ts) = (Handle::from_random(1), DocumentId([1; 12]));
        let cancel = Command::CancelTake { lock: lock.clone(), take: LeaseRequestId(1), handle: handle.clone() };
        let ping = DocumentCommand::Ping { namespace: namespace.clone(), process: process() };
        let request = RequestId { session: SessionId::new(0, 1), number: 1 };
        let (name, token, answered_below) = (key().name, FencingToken::new(0, 1), 0);
        let alter = |what| Command::Alter(Alter { request, answered_below, name: key().name, what });
        let why = || Reason::parse("stuck").expect("legal");
        let end = EndSession { namespace: namespace.clone(), session: request.session, why: why() };
        let ending = [
            cancel.clone(),
            Command::EndSession(end),
            Command::Manage(Manage { lock: key(), what: Managing::BreakHold { token, why: why() } }),
            Command::Document(DocumentCommand::StopPing { namespace: namespace.clone(), process: process() }),
            Command::DropLease { lock: key(), handle: handle.clone() },
            Command::CloseSession { session: request.session, end: SessionClose::Done },
            Command::Cancel { request },
            Command::Release(Release { request, answered_below, name, token, acquire: 0 }),
            alter(Alteration::Downgrade { token }),
            alter(Alteration::ReturnPermits { token, count: 1 }),
            Command::Document(DocumentCommand::Unlock { namespace: namespace.clone(), ts, name: Some(key().name) }),
            Command::Document(DocumentCommand::UnlockAll {
                namespace: namespace.clone(),
                process: process(),
                term: None,
            }),
        ];
        let always = [
            ping,
            DocumentCommand::Confirm { lock: key(), ts },
            DocumentCommand::SwapValue { lock: key(), handle, seen: None, value: None },
            DocumentCommand::RemoveExpired { lock, token: FencingToken::new(0, 1), deadline: LogTime(1) },
        ];
        for command in ending.into_iter().chain(always.map(Command::Document)) {
            for (rates, authorizer) in [(rates(None, &[("ours", 1)]), None), (RateLimits::default(), Some(&ci))] {
                let rates = Timed::new(rates);
                let found = |ends| (Some(namespace.clone()), ends);
                let sent = |ends| rates.rates.check(&command, authorizer, &rates.clock, || found(ends));
                sent(false).expect("the first");
                sent(false).expect_err("its rate");
                sent(true).expect("it gives something back");
            }
        }
    }

    /// Callers that do not own them end a hold, a session and a process at any rate, but only while these exist.
    #[test]
    fn what_others_own_is_ended_if_it_exists() {
        let (ours, mut machine) = (namespace("ours"), Machine::new());
        let (lock, why) = (key_of(&ours), || Reason::parse("stuck").expect("legal"));
        let take = TakeLease {
            lock: lock.clone(),
            take: LeaseRequestId(1),
            handle: Handle::from_random(2),
            access: Mode::Exclusive.into(),
            lease_ms: 60_000,
            patience: Patience::Try,
            metadata: Metadata::default(),
            claim_ms: None,
        };
        let (namespace, process) = (ours.clone(), ProcessId::parse("p").expect("legal"));
        let ping = DocumentCommand::Ping { namespace: namespace.clone(), process: process.clone() };
        let stop = DocumentCommand::StopPing { namespace: namespace.clone(), process };
        let end = EndSession { namespace, session: SessionId::new(0, 1), why: why() };
        let what = Managing::BreakHold { token: FencingToken::new(0, 1), why: why() };
        for (made, ends) in [
            (open(&ours), Command::EndSession(end)),
            (Command::TakeLease(take), Command::Manage(Manage { lock, what })),
            (Command::Document(ping), Command::Document(stop)),
        ] {
            assert!(!ends_of_any_caller(&machine, &ends), "{ends:?}");
            let submission = Submission { principal: Principal::default(), since: None, command: made };
            let (stamp, wall, commands) = (LogTime(1), WallTime(1), vec![submission]);
            let entry = Entry { stamp, wall, renewals: Vec::new(), commands, digest: None };
            machine.apply(machine.applied() + 1, &entry);
            assert!(ends_of_any_caller(&machine, &ends), "{ends:?}");
        }
    }

    /// Renewals do not count as commands. A list of them passes as a whole, and the next list waits until the
    /// bucket has tokens again.
    #[test]
    fn renewals_have_their_own_rate() {
        let rates = Timed::new(RateLimits::default());
        let ci = authorizer("commands_a_second = 1\nrenewals_a_second = 10\n");
        rates.open(Some(&ci), &namespace("ours")).expect("the first");
        assert!(rates.open(Some(&ci), &namespace("ours")).is_err());
        rates.renew(&ci, 9).expect("renewals do not count as commands");
        rates.renew(&ci, 100).expect("one of them may pass");
        let limit = "principal \"ci\" may send 10 renewals a second";
        assert_eq!(rates.renew(&ci, 1), reached(limit, 10_000));
        rates.pass(10_000);
        rates.renew(&ci, 1).expect("one more");
        assert!(rates.renew(&ci, 1).is_err());
    }

    /// Another rate of a principal applies to its next command. What it has sent before still counts.
    #[test]
    fn a_reload_keeps_what_was_sent() {
        let (rates, ours) = (Timed::new(RateLimits::default()), namespace("ours"));
        let (slow, fast, free) =
            (authorizer("commands_a_second = 2\n"), authorizer("commands_a_second = 4\n"), authorizer(""));
        for _ in 0..2 {
            rates.open(Some(&slow), &ours).expect("within the burst");
        }
        assert!(rates.open(Some(&fast), &ours).is_err(), "its bucket is empty");
        rates.open(Some(&free), &ours).expect("no limit any more");
        rates.pass(250);
        rates.open(Some(&fast), &ours).expect("its bucket fills at the new rate");
        assert!(rates.open(Some(&fast), &ours).is_err());
    }
}
