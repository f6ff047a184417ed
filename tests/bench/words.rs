//! The entries of the benchmarks: batches of commands of open sessions.

use lockkeeper::machine::{Applied, Machine};
use lockkeeper::model::{
    Acquire, Command, Entry, FencingToken, Handle, Instance, LockName, LogTime, Metadata, Mode, Namespace, OpenSession,
    Outcome, Patience, Principal, Release, RequestId, SessionId, Submission, WallTime,
};

/// Commands of one entry, as a busy leader batches them.
pub(crate) const COMMANDS: u64 = 50;
/// TTL of the sessions, which are never renewed.
pub(crate) const TTL_MS: u64 = 10_000;

/// An entry with this log time.
pub(crate) fn entry(stamp_ms: u64, commands: impl IntoIterator<Item = Command>) -> Entry {
    let submission = |command| Submission { principal: Principal::default(), since: None, command };
    Entry {
        stamp: LogTime(stamp_ms),
        wall: WallTime(1_795_000_000_000 + stamp_ms),
        renewals: Vec::new(),
        commands: commands.into_iter().map(submission).collect(),
        digest: None,
    }
}

/// Applies the next entry like a node, including the collection of changed records.
pub(crate) fn apply(machine: &mut Machine, entry: &Entry) -> Applied {
    let applied = machine.apply(machine.applied() + 1, entry);
    machine.take_dirty(|_, _| ());
    applied
}

/// Opens this many sessions, which all end at the same time.
pub(crate) fn open(machine: &mut Machine, sessions: u64) -> Vec<SessionId> {
    let opened = apply(machine, &entry(0, (0..sessions).map(open_session)));
    let id = |outcome: &Outcome| {
        let Outcome::Opened { session, .. } = outcome else { panic!("not opened: {outcome:?}") };
        *session
    };
    opened.commands.iter().map(|reply| id(&reply.outcome)).collect()
}

fn open_session(number: u64) -> Command {
    Command::OpenSession(OpenSession {
        namespace: Namespace::default(),
        handle: Handle::from_random(number.into()),
        instance: Instance(1),
        ttl_ms: TTL_MS,
        disconnect_grace_ms: None,
        metadata: Metadata::default(),
        accepts_hand_over: false,
    })
}

/// A command that requests a lock and waits in its queue. All earlier requests of the session are answered.
pub(crate) fn acquire(session: SessionId, number: u64, name: &LockName) -> Command {
    Command::Acquire(wish(session, number, name))
}

/// The same request, not yet a command.
pub(crate) fn wish(session: SessionId, number: u64, name: &LockName) -> Acquire {
    Acquire {
        request: RequestId { session, number },
        answered_below: number,
        locks: (name.clone(), Mode::Exclusive.into()).into(),
        owner: None,
        patience: Patience::Session,
        metadata: Metadata { who: "bench".into(), host: "localhost".into(), pid: 1, ..Metadata::default() },
        lease_ms: None,
        extras: None,
    }
}

/// A command that releases a lock. All earlier requests of the session are answered.
pub(crate) fn release(session: SessionId, number: u64, name: &LockName, token: FencingToken) -> Command {
    let request = RequestId { session, number };
    Command::Release(Release { request, answered_below: number, name: name.clone(), token, acquire: 0 })
}

/// The token in a grant.
pub(crate) fn token(outcome: &Outcome) -> FencingToken {
    let Outcome::Granted(grant) = outcome else { panic!("not granted: {outcome:?}") };
    grant.token
}

/// The name of the lock with this number.
pub(crate) fn name(number: u64) -> LockName {
    LockName::parse(&format!("bench/{number}")).expect("a legal name")
}
