//! Entries as the benchmarks make them: batches of commands by sessions that are open.

use lockkeeper::machine::{Applied, Machine};
use lockkeeper::model::{
    Acquire, Command, Entry, FencingToken, Handle, Instance, LockName, LogTime, Metadata, Mode, Namespace, OpenSession,
    Outcome, Patience, Principal, Release, RequestId, SessionId, Submission, WallTime,
};

/// Commands of one entry, as a busy leader gathers them.
pub(crate) const COMMANDS: u64 = 50;
/// How long the sessions live without a renewal.
pub(crate) const TTL_MS: u64 = 10_000;

/// An entry at this log time.
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

/// Applies the next entry as a node does it: the touched records are taken, too.
pub(crate) fn apply(machine: &mut Machine, entry: &Entry) -> Applied {
    let applied = machine.apply(machine.applied() + 1, entry);
    machine.take_dirty(|_, _| ());
    applied
}

/// Opens so many sessions, which all end together unless renewed.
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

/// Asks for a lock, to wait in its queue where it is held. Everything before this request has been answered.
pub(crate) fn acquire(session: SessionId, number: u64, name: &LockName) -> Command {
    Command::Acquire(wish(session, number, name))
}

/// The same, not yet a command.
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

/// Gives a lock back. Everything before this request has been answered.
pub(crate) fn release(session: SessionId, number: u64, name: &LockName, token: FencingToken) -> Command {
    let request = RequestId { session, number };
    Command::Release(Release { request, answered_below: number, name: name.clone(), token })
}

/// The token of a grant.
pub(crate) fn token(outcome: &Outcome) -> FencingToken {
    let Outcome::Granted(grant) = outcome else { panic!("not granted: {outcome:?}") };
    grant.token
}

/// The lock of this number.
pub(crate) fn name(number: u64) -> LockName {
    LockName::parse(&format!("bench/{number}")).expect("a legal name")
}
