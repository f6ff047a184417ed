//! The order within an entry: first renewals, then everything that is due, then the commands.

use super::{Applied, Machine};
use crate::faults::{self, Fault};
use crate::limits;
use crate::model::{
    Announcement, Command, DurationField, EndReason, Entry, EventKind, LogTime, Outcome, RaiseFeatures, Refusal,
    Renewal, RenewalTarget, Reply, SessionId, Subject, Submission,
};
use crate::state::{Holder, RecordKey};

impl Machine {
    /// Applies the entry at `index`. It cannot fail; refusals are replies.
    ///
    /// Log time never goes back: an entry with an older stamp is applied at the current log time.
    pub fn apply(&mut self, index: u64, entry: &Entry) -> Applied {
        self.apply_with(index, entry, |_| ())
    }

    /// Like [`apply`](Self::apply), but calls `decided` after each command with the results so far, which do not change
    /// any more.
    pub fn apply_with(&mut self, index: u64, entry: &Entry, mut decided: impl FnMut(&Applied)) -> Applied {
        let previous = self.state.globals.now;
        self.state.globals.applied = index;
        self.state.globals.now = previous.max(entry.stamp);
        self.state.globals.wall = self.state.globals.wall.max(entry.wall);
        self.deadlock_steps_left = limits::DEADLOCK_STEPS_AN_ENTRY_MAX;
        self.large_unlocks.clear();
        self.unlocks_looked = 0;
        self.state.mark(RecordKey::Globals);
        if faults::on(Fault::OtherState) {
            self.state.globals.wall.0 += 1;
        }

        let mut applied = Applied {
            renewals: Vec::with_capacity(entry.renewals.len()),
            commands: Vec::with_capacity(entry.commands.len()),
            ..Applied::default()
        };
        for renewal in &entry.renewals {
            let outcome = self.renew(renewal, previous).unwrap_or_else(Outcome::Refused);
            applied.renewals.push(self.reply(renewal.target.session(), outcome));
        }
        self.sweep();
        for submission in &entry.commands {
            let outcome = self.execute(submission).unwrap_or_else(Outcome::Refused);
            self.grant_ready();
            applied.commands.push(self.reply(submission.command.session(), outcome));
            decided(&applied);
        }
        if let Some(newest) = self.events.last() {
            self.state.globals.newest_event = newest.position;
        }
        applied.events = self.events.drain(..).collect();
        applied.deadlocks = std::mem::take(&mut self.deadlocks);
        applied.handed_over = std::mem::take(&mut self.handed_over);
        applied
    }

    /// Records that a log position without an entry (a blank or a membership) was applied.
    pub fn skip(&mut self, index: u64) {
        self.state.globals.applied = index;
        self.state.mark(RecordKey::Globals);
    }

    fn reply(&self, session: Option<SessionId>, outcome: Outcome) -> Reply {
        let recalled = self.recalled_with(session, &outcome);
        Reply { index: self.state.globals.applied, stamp: self.state.globals.now, outcome, recalled }
    }

    fn execute(&mut self, submission: &Submission) -> Result<Outcome, Refusal> {
        let Submission { principal, since, command } = submission;
        match command {
            Command::OpenSession(open) => self.open_session(principal, open),
            Command::Attach(attach) => self.attach(attach),
            Command::Disconnected { session, attachment } => Ok(self.disconnected(*session, *attachment)),
            Command::CloseSession { session, end } => Ok(self.close_session(*session, *end)),
            Command::Acquire(acquire) => Ok(self.acquire(principal, acquire)),
            Command::Cancel { request } => self.cancel(*request),
            Command::Release(release) => Ok(self.release(release)),
            Command::TakeLease(take) => self.take_lease(principal, take, *since),
            Command::CancelTake { lock, take, handle } => self.cancel_take(lock, *take, handle, *since),
            Command::DropLease { lock, handle } => self.drop_lease(lock, handle, *since),
            Command::Tick => Ok(Outcome::Done),
            Command::Alter(alter) => Ok(self.alter(principal, alter)),
            Command::Manage(manage) => self.manage(principal, manage),
            Command::LeaderlessGap { gap_ms } => {
                self.state.globals.leaderless_ms = self.state.globals.leaderless_ms.saturating_add(*gap_ms);
                self.event(None, Subject::Cluster, EventKind::LeaderlessGap { gap_ms: *gap_ms });
                Ok(Outcome::Done)
            }
            Command::Configure { settings, cluster_id } => {
                self.state.globals.settings.get_or_insert(*settings);
                self.state.globals.cluster_id.get_or_insert(*cluster_id);
                Ok(Outcome::Done)
            }
            Command::Document(command) => self.document(principal, command, *since),
            Command::Announce(announcement) => self.announce(announcement),
            Command::RaiseFeatures(raise) => self.raise_features(raise),
            Command::ChangeSetting(setting) => self.change_setting(*setting),
            Command::EndSession(end) => self.end_session_of_another(principal, end),
        }
    }

    /// Applies a renewal. It counts if it was received in time and no earlier entry had already passed the deadline.
    fn renew(&mut self, renewal: &Renewal, previous: LogTime) -> Result<Outcome, Refusal> {
        let in_time = |deadline| previous <= deadline && renewal.receipt <= deadline;
        let attempt = renewal.attempt;
        match &renewal.target {
            RenewalTarget::Session(id) => {
                let session = self.state.sessions.get_mut(id).map(|session| &mut session.record);
                let Some(session) = session.filter(|session| in_time(session.deadline)) else {
                    return Err(self.session_ended(*id));
                };
                let soon = self.state.globals.now.ms_since(session.renewed) < session.ttl_ms / 2;
                let deadline = if faults::on(Fault::RenewalDeduplicated) && soon {
                    self.state.globals.now.after_ms(session.ttl_ms)
                } else if is_overtaken(attempt, session.renewal) {
                    session.deadline
                } else {
                    session.renewal = session.renewal.max(attempt);
                    self.prolong_session(*id)
                };
                Ok(Outcome::Renewed { deadline, attempt, token: None })
            }
            RenewalTarget::Lease { lock, handle, lease_ms } => {
                self.lease_in_bounds(DurationField::Lease, *lease_ms)?;
                let held = self.lease_of(lock, handle).filter(|(_, deadline)| in_time(*deadline));
                let mine =
                    |holder: &Holder| holder.lease.as_ref().is_some_and(|lease| lease.handle.as_ref() == Some(handle));
                let (token, _) = held.ok_or_else(|| self.not_held(lock, mine))?;
                let deadline = self.prolong_lease(lock, token, *lease_ms, attempt);
                Ok(Outcome::Renewed { deadline, attempt, token: Some(token) })
            }
            RenewalTarget::Hold { lock, session, token, lease_ms } => {
                self.hold_lease_in_bounds(*lease_ms)?;
                if !self.state.session_deadline(Some(*session)).is_some_and(in_time) {
                    return Err(self.session_ended(*session));
                }
                if !self.leased_until(lock, *session, *token).is_some_and(in_time) {
                    return Err(self.not_held(lock, |holder| holder.request.claim.session() == Some(*session)));
                }
                let deadline = self.prolong_lease(lock, *token, *lease_ms, attempt);
                Ok(Outcome::Renewed { deadline, attempt, token: Some(*token) })
            }
        }
    }

    /// Returns the refusal of a renewal whose session, lease or hold does not exist in this state, or whose lease is
    /// out of bounds; `None` for any other renewal.
    #[must_use]
    pub fn refuses_renewal(&self, target: &RenewalTarget) -> Option<Refusal> {
        match target {
            RenewalTarget::Session(id) => self.state.session(*id).is_none().then(|| self.session_ended(*id)),
            RenewalTarget::Lease { lock, handle, lease_ms } => {
                let missing = || self.lease_of(lock, handle).is_none().then(|| self.not_proven(lock));
                self.lease_in_bounds(DurationField::Lease, *lease_ms).err().or_else(missing)
            }
            RenewalTarget::Hold { lock, session, token, lease_ms } => {
                let mine = |holder: &Holder| holder.request.claim.session() == Some(*session);
                let missing = || self.leased_until(lock, *session, *token).is_none().then(|| self.not_held(lock, mine));
                let ended = || self.refuses_renewal(&RenewalTarget::Session(*session));
                self.hold_lease_in_bounds(*lease_ms).err().or_else(ended).or_else(missing)
            }
        }
    }

    /// How a session ended. Returns *expired* if its tombstone has been removed too.
    pub(super) fn end_of(&self, session: SessionId) -> EndReason {
        self.state.tombstones.get(&session).map_or(EndReason::Expired, |tombstone| tombstone.reason)
    }

    /// The refusal of a command that names a session that has ended.
    pub(super) fn session_ended(&self, session: SessionId) -> Refusal {
        let why = self.state.tombstones.get(&session).and_then(|tombstone| tombstone.why.clone());
        Refusal::SessionEnded { session, reason: self.end_of(session), why }
    }

    /// The newest announcement of this node.
    #[must_use]
    pub fn announced(&self, node: u64) -> Option<&Announcement> {
        self.state.nodes.get(&node)
    }

    /// The announcements of all nodes, in the order of their ids. An announcement is never removed.
    pub fn announcements(&self) -> impl ExactSizeIterator<Item = &Announcement> {
        self.state.nodes.values()
    }

    /// Records what a node announces. The first announcement fixes the node's disk permanently; the rest may change
    /// later.
    fn announce(&mut self, announcement: &Announcement) -> Result<Outcome, Refusal> {
        if self.state.nodes.get(&announcement.node).is_some_and(|known| known.disk != announcement.disk) {
            return Err(Refusal::OtherDisk { node: announcement.node });
        }
        self.state.nodes.insert(announcement.node, announcement.clone());
        self.state.mark(RecordKey::Node(announcement.node));
        Ok(Outcome::Done)
    }

    /// The cluster's feature level. Commands above it are not proposed.
    #[must_use]
    pub fn feature_level(&self) -> u32 {
        self.state.globals.feature_level.max(limits::FEATURE_LEVEL_MIN)
    }

    /// Raises the cluster's feature level to one that every voter supports. It never lowers the level.
    fn raise_features(&mut self, raise: &RaiseFeatures) -> Result<Outcome, Refusal> {
        for node in &raise.voters {
            let supports = self.state.nodes.get(node).map(|announcement| announcement.features);
            if supports.is_none_or(|level| level < raise.to) {
                return Err(Refusal::FeaturesUnsupported { to: raise.to, node: *node, supports });
            }
        }
        self.state.globals.feature_level = self.state.globals.feature_level.max(raise.to);
        Ok(Outcome::Done)
    }
}

/// Whether a newer renewal of the same session or lease was applied before this delayed one, which would undo the newer
/// one. A client that does not number its renewals sends 0, and such a renewal always applies.
pub(super) fn is_overtaken(attempt: u64, newest: u64) -> bool {
    attempt != 0 && attempt < newest
}
