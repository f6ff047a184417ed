//! What the admission of commands needs to know before it proposes one: whether the command only ends something, and
//! whether its answer is known. A rate limit lets both pass.

use super::Machine;
use super::lease::KnownTake;
use super::requests::{of_alter, of_release};
use crate::model::{
    Alter, Alteration, Command, DocumentCommand, FencingToken, LockKey, LockName, Mode, Outcome, Release, RequestId,
    SessionId,
};
use crate::state::{ClaimState, Holder, WhichHeld};

impl Machine {
    /// Whether a command gives back or ends something of its own caller, so that no rate limit applies
    /// to it. False if it finds nothing or changes nothing, if it was executed before, and for all other commands.
    #[must_use]
    pub fn ends_something(&self, command: &Command) -> bool {
        if self.known_answer(command).is_some() {
            return false;
        }
        match command {
            Command::CloseSession { session, .. } => self.lives(*session),
            Command::Cancel { request } => {
                !self.granted_upgrade(*request) && self.state.claims_of(*request).next().is_some()
            }
            Command::Release(Release { request, name, token, acquire, .. }) => {
                // 0 is the newest acquire.
                let releases = |number| *acquire == 0 || number == *acquire;
                self.hold_of_session(request.session, name, *token).is_some_and(|holder| holder.numbers().any(releases))
            }
            Command::Alter(Alter { request, name, what, .. }) => match *what {
                Alteration::Downgrade { token } => {
                    self.mode_if_acquired_once(*request, name, token) == Some(Mode::Exclusive)
                }
                Alteration::ReturnPermits { token, count } => {
                    let mode = self.mode_if_acquired_once(*request, name, token);
                    matches!(mode, Some(Mode::Permits(held)) if (1..=held).contains(&count))
                }
                Alteration::Upgrade { .. } | Alteration::SetValue { .. } | Alteration::Resume { .. } => false,
            },
            // A finished take with this handle was answered above.
            Command::CancelTake { lock, take, handle } => self.take_proven(lock, *take, handle) == Some(true),
            Command::DropLease { lock, handle } => self.lease_of(lock, handle).is_some(),
            Command::Document(DocumentCommand::Unlock { namespace, ts, name: Some(name) }) => {
                let lock = LockKey { namespace: namespace.clone(), name: name.clone() };
                self.take_principal(&lock, ts.take_id()).is_some()
            }
            Command::Document(DocumentCommand::Unlock { namespace, ts, name: None }) => {
                self.frees_some(namespace, WhichHeld::Stamp(*ts))
            }
            Command::Document(DocumentCommand::UnlockAll { namespace, process, term }) => {
                self.frees_some(namespace, WhichHeld::Process(process.clone(), *term))
            }
            Command::OpenSession(_)
            | Command::Attach(_)
            | Command::Disconnected { .. }
            | Command::EndSession(_)
            | Command::ChangeSetting(_)
            | Command::Acquire(_)
            | Command::TakeLease(_)
            | Command::Document(_)
            | Command::Manage(_)
            | Command::Tick
            | Command::LeaderlessGap { .. }
            | Command::Configure { .. }
            | Command::Announce(_)
            | Command::RaiseFeatures(_) => false,
        }
    }

    /// The hold of an open session at this lock of its namespace, under this token.
    fn hold_of_session(&self, session: SessionId, name: &LockName, token: FencingToken) -> Option<&Holder> {
        let lock = LockKey { namespace: self.namespace_of(session)?.clone(), name: name.clone() };
        self.state.holder(&lock, token).filter(|holder| holder.request.claim.session() == Some(session))
    }

    /// The mode of this hold, if its owner acquired it once.
    fn mode_if_acquired_once(&self, request: RequestId, name: &LockName, token: FencingToken) -> Option<Mode> {
        let holder = self.hold_of_session(request.session, name, token).filter(|holder| holder.depth() == 1);
        holder.map(|holder| holder.request.mode)
    }

    /// Returns the answer to a command if no further entry can change it: the command was executed before, or its
    /// session has ended. Only commands of a session and the cancel of a take have such an answer.
    #[must_use]
    pub fn known_answer(&self, command: &Command) -> Option<Outcome> {
        if let Command::CancelTake { lock, take, handle } = command {
            let known = self.known_take(lock, *take).filter(|known| matches!(known, KnownTake::Finished(_)));
            return known.filter(|known| known.is_proven_by(handle)).map(|_| Outcome::Withdrawn);
        }
        let session = command.session()?;
        let ended = !self.lives(session) && self.was_opened(session);
        match command {
            Command::CloseSession { .. } => ended.then_some(Outcome::Closed),
            Command::Acquire(_) | Command::Release(_) | Command::Alter(_) | Command::Cancel { .. } if ended => {
                Some(Outcome::Refused(self.session_ended(session)))
            }
            Command::Release(release) => self.finished_answer(release.request, of_release(release)),
            // A request that waits or holds has no final answer, even if its number is below the remembered ones.
            Command::Alter(alter) if self.state.claims_of(alter.request).next().is_none() => {
                self.finished_answer(alter.request, of_alter(alter))
            }
            Command::Cancel { request } => {
                let finished = self.state.session(session)?.finished.contains_key(&request.number);
                finished.then_some(Outcome::Withdrawn)
            }
            Command::OpenSession(_)
            | Command::Attach(_)
            | Command::Disconnected { .. }
            | Command::EndSession(_)
            | Command::ChangeSetting(_)
            | Command::Acquire(_)
            | Command::Alter(_)
            | Command::TakeLease(_)
            | Command::CancelTake { .. }
            | Command::DropLease { .. }
            | Command::Document(_)
            | Command::Manage(_)
            | Command::Tick
            | Command::LeaderlessGap { .. }
            | Command::Configure { .. }
            | Command::Announce(_)
            | Command::RaiseFeatures(_) => None,
        }
    }

    /// Whether this request is an upgrade that was granted. A cancel leaves its hold as it is.
    fn granted_upgrade(&self, request: RequestId) -> bool {
        self.state.claims_of(request).any(|(lock, state)| {
            let ClaimState::Holding(token) = state else { return false };
            self.state.holder(lock, token).is_some_and(|holder| holder.was_upgraded_by(request.number))
        })
    }
}
