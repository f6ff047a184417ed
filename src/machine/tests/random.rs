//! Random scenarios for the machine: few names, few sessions, times near deadlines, repeated request numbers, cancels
//! of unused numbers. The same seed gives the same scenario.

#![allow(clippy::wildcard_enum_match_arm, reason = "a scenario changes some commands and leaves the rest")]

mod documents;
mod locks;
mod others;
mod sessions;

use super::mirror::entry;
use crate::machine::Applied;
use crate::model::*;

/// Pseudorandom numbers that are the same for the same seed (SplitMix64).
#[derive(Debug, Clone)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number from 0 to `bound` - 1.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.number() % bound
    }

    fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        if from.is_empty() { None } else { from.get(self.below(from.len() as u64) as usize) }
    }
}

/// Whether this command is the request, and asks for its lock to stay closed after the hold.
fn delays(command: &Command, request: RequestId) -> bool {
    match command {
        Command::Acquire(acquire) => {
            let Extras { delay_ms, at_least_ms, .. } = acquire.choices();
            acquire.request == request && (0 < *delay_ms || at_least_ms.is_some())
        }
        _ => false,
    }
}

/// What the scenario knows about a session.
#[derive(Debug, Clone)]
struct Known {
    id: SessionId,
    open: OpenSession,
    next: u64,
    attempt: u64,
    attachment: u64,
    /// How many times an answer said that the session has ended.
    gone: u64,
    past: Vec<Command>,
    tokens: Vec<(LockName, FencingToken)>,
}

/// A hold of a session.
#[derive(Debug, Clone)]
struct Held {
    request: RequestId,
    name: LockName,
    token: FencingToken,
}

/// A random scenario: entries, and what it learned from their answers.
#[derive(Debug, Clone)]
pub(crate) struct Scenario {
    random: Random,
    stamp: u64,
    known: Vec<Known>,
    takes: Vec<TakeLease>,
    /// The grabs that were sent.
    grabs: Vec<Grab>,
    /// Deadlines of sessions, as answers contained them.
    renewed: Vec<(SessionId, LogTime)>,
    /// The current holds of sessions.
    held: Vec<Held>,
    /// Requests that wait, with their locks.
    waits: Vec<(LockKey, RequestId)>,
    /// Upgrades and resumes that were queued or granted.
    altered: Vec<Command>,
    /// Holds that ended involuntarily, and the handles of their sessions.
    lost: Vec<(LockKey, FencingToken, Handle)>,
    drawn: u128,
    attempts: u64,
}

const LOCKS: [&str; 7] = ["a", "b", "c", "d", "pool-a", "pool-b", "pool-c"];
const SESSIONS_KNOWN: usize = 5;

fn handle(number: u128) -> Handle {
    Handle::from_random(number)
}

impl Scenario {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            random: Random(seed),
            stamp: 0,
            known: vec![],
            takes: vec![],
            grabs: vec![],
            renewed: vec![],
            held: vec![],
            lost: vec![],
            waits: vec![],
            altered: vec![],
            drawn: 0,
            attempts: 0,
        }
    }

    fn draw(&mut self) -> u128 {
        self.drawn += 1;
        self.drawn
    }

    /// Returns the next entry. Many stamps are close to the machine's next deadline.
    pub(crate) fn entry(&mut self, next_deadline: Option<LogTime>) -> Entry {
        let deadline = next_deadline.map_or(self.stamp, |deadline| deadline.0.max(self.stamp));
        let before = self.stamp;
        self.stamp = match self.random.below(1000) {
            0..400 => self.stamp,
            400..750 => self.stamp + self.random.below(200),
            750..800 => deadline.min(self.stamp + 60_000),
            800..850 => deadline.min(self.stamp + 60_000) + 1,
            850..995 => self.stamp + self.random.below(1500),
            995..998 => self.stamp + self.random.below(40_000),
            998 => self.stamp + 600_001,
            _ => self.stamp + if self.random.percent(20) { 345_600_001 } else { 600_001 },
        };
        let renewals = (0..self.random.below(4)).filter_map(|_| self.renewal(before, deadline)).collect();
        let commands = (0..1 + self.random.below(6)).map(|_| self.command()).collect();
        entry(self.stamp, renewals, commands)
    }

    /// Records what the machine answered.
    pub(crate) fn learn(&mut self, entry: &Entry, applied: &Applied) {
        for (submission, reply) in entry.commands.iter().zip(&applied.commands) {
            match (&submission.command, &reply.outcome) {
                (altered @ Command::Alter(_), Outcome::Granted(_) | Outcome::Queued(_)) => {
                    self.altered.push(altered.clone());
                }
                (Command::OpenSession(open), Outcome::Opened { session, .. }) => self.opened(open, *session),
                (Command::Attach(attach), Outcome::Attached { attachment, .. }) => {
                    if let Some(known) = self.known.iter_mut().find(|known| known.id == attach.session) {
                        known.attempt = attach.attempt;
                        known.attachment = attachment.0;
                    }
                }
                _ => {}
            }
        }
        for (renewal, reply) in entry.renewals.iter().zip(&applied.renewals) {
            if let (RenewalTarget::Session(id), Outcome::Renewed { deadline, .. }) = (&renewal.target, &reply.outcome) {
                self.renewed.push((*id, *deadline));
            }
        }
        for reply in &applied.commands {
            if let Outcome::Refused(Refusal::SessionEnded { session, .. }) = reply.outcome
                && let Some(known) = self.known.iter_mut().find(|known| known.id == session)
            {
                known.gone += 1;
            }
        }
        self.known.retain(|known| known.gone < 3);
        for event in &*applied.events {
            self.follow(event);
        }
    }

    /// Learns from an event which holds are current and which are lost.
    fn follow(&mut self, event: &Event) {
        let gone = match &event.kind {
            EventKind::Upgraded { from, .. } | EventKind::HandedOver { from, .. } => Some(*from),
            EventKind::Broken { .. } | EventKind::Released { .. } | EventKind::Expired { .. } => event.subject.token(),
            _ => None,
        };
        self.held.retain(|held| Some(held.token) != gone);
        let Subject::Lock { lock, claim: Some(Claim::Request(request)), token } = &event.subject else { return };
        match event.kind {
            EventKind::Queued { .. } => self.waits.push((lock.clone(), *request)),
            _ => self.waits.retain(|(_, waits)| waits != request),
        }
        let Some(token) = token else { return };
        if let EventKind::Expired { .. } | EventKind::Released { .. } = event.kind
            && let Some(known) = self.known.iter().find(|known| known.id == request.session)
            && known.past.iter().any(|past| delays(past, *request))
        {
            self.lost.push((lock.clone(), *token, known.open.handle.clone()));
        }
        if let EventKind::Granted { .. }
        | EventKind::Upgraded { .. }
        | EventKind::HandedOver { .. }
        | EventKind::Resumed { .. } = event.kind
            && let Some(known) = self.known.iter_mut().find(|known| known.id == request.session)
        {
            known.tokens.push((lock.name.clone(), *token));
            self.held.push(Held { request: *request, name: lock.name.clone(), token: *token });
        }
    }

    /// A hold of the session: mostly a current one, otherwise a former one.
    fn held(&mut self, at: usize) -> (LockName, FencingToken) {
        let id = self.known[at].id;
        let held: Vec<_> = self.held.iter().filter(|held| held.request.session == id).cloned().collect();
        let now = self.random.percent(80);
        if let Some(held) = self.random.pick(&held).filter(|_| now) {
            return (held.name.clone(), held.token);
        }
        let recent = self.known[at].tokens.len().saturating_sub(4);
        let once = self.random.pick(&self.known[at].tokens[recent..]).cloned();
        once.unwrap_or((self.name(), FencingToken::new(0, 1 + self.random.below(50))))
    }

    /// An acquire of a lock that a named owner of the session holds already.
    fn enter_again(&mut self, at: usize) -> Option<Command> {
        let (id, number) = (self.known[at].id, self.known[at].next);
        let mine = |number: u64, command: &&Command| match command {
            Command::Acquire(acquire) => acquire.request.number == number && acquire.owner.is_some(),
            _ => false,
        };
        let held = self.held.iter().filter(|held| held.request.session == id);
        let past = |held: &Held| self.known[at].past.iter().find(|past| mine(held.request.number, past)).cloned();
        let entered: Vec<_> = held.filter_map(past).collect();
        let mut command = self.random.pick(&entered).cloned()?;
        if let Command::Acquire(acquire) = &mut command {
            acquire.request.number = number;
            acquire.extras.get_or_insert_default().reentry = Reentry::Count;
        }
        self.known[at].next += 1;
        self.known[at].past.push(command.clone());
        Some(command)
    }

    fn opened(&mut self, open: &OpenSession, id: SessionId) {
        if self.known.iter().any(|known| known.id == id) {
            return;
        }
        if SESSIONS_KNOWN <= self.known.len() {
            self.known.remove(0);
        }
        let open = open.clone();
        let (past, tokens) = (vec![], vec![]);
        self.known.push(Known { id, open, next: 1, attempt: 0, attachment: 0, gone: 0, past, tokens });
    }

    fn renewal(&mut self, before: u64, deadline: u64) -> Option<Renewal> {
        let receipt = match self.random.below(10) {
            0..6 => self.stamp,
            6 => deadline,
            7 => deadline + 1,
            _ => before + self.random.below(self.stamp - before + 1),
        };
        let target = if self.random.percent(60) {
            RenewalTarget::Session(self.random.pick(&self.known)?.id)
        } else if self.random.percent(50) {
            let lease_ms = self.lease_ms();
            if self.known.is_empty() {
                return None;
            }
            let at = self.session();
            let (name, token) = self.held(at);
            let known = &self.known[at];
            let lock = LockKey { namespace: known.open.namespace.clone(), name };
            RenewalTarget::Hold { lock, session: known.id, token, lease_ms }
        } else {
            let take = self.recent_take()?;
            let stranger = self.random.percent(12);
            let handle = if stranger { handle(u128::MAX) } else { take.handle };
            RenewalTarget::Lease { lock: take.lock, handle, lease_ms: self.lease_ms() }
        };
        self.attempts += 1;
        Some(Renewal { target, attempt: self.attempts, receipt: LogTime(receipt) })
    }

    fn lease_ms(&mut self) -> u64 {
        match self.random.below(40) {
            0 => 0,
            1 => 60_001,
            2..8 => 1 + self.random.below(100),
            _ => 500 + self.random.below(4000),
        }
    }

    fn command(&mut self) -> Command {
        if self.known.len() < 3 || self.random.percent(5) {
            return self.open();
        }
        match self.random.below(128) {
            0..18 => self.acquire(),
            18..25 => self.acquire_set(),
            25..39 => self.alter(),
            39..44 => self.manage(),
            44..59 => self.release(),
            59..67 => self.cancel(),
            67..78 => self.take(),
            78..87 => self.drop_lease(),
            87..91 => self.cancel_take(),
            91..94 => self.attach(),
            94..96 => self.disconnected(),
            96 if self.random.percent(80) => self.close(),
            96 => self.end(),
            97 => Command::Tick,
            98 => Command::LeaderlessGap { gap_ms: self.random.below(5000) },
            99 => self.announce(),
            100 => {
                let voters = (1..=4).filter(|_| self.random.percent(50)).collect();
                Command::RaiseFeatures(RaiseFeatures { to: 1 + self.random.below(4) as u32, voters })
            }
            101 if self.random.percent(50) => {
                // No value is much shorter: if few sessions can be opened, little happens.
                let values = [0, 36_000, 60_000, 60_000, 24 * 60 * 60 * 1000 + 1];
                Command::ChangeSetting(Setting::TtlMax(*self.random.pick(&values).expect("some")))
            }
            102..120 => self.document(),
            120..122 => self.acquire_cached(),
            122..128 => self.release(),
            _ => Command::Configure {
                settings: ClusterSettings { timing_ms: [100, 500, 1000], ttl_ms_min: 1000, ttl_ms_max: 60_000 },
                cluster_id: u128::from(self.random.below(9)),
            },
        }
    }

    fn session(&mut self) -> usize {
        self.random.below(self.known.len() as u64) as usize
    }

    fn name(&mut self) -> LockName {
        LockName::parse(self.random.pick(&LOCKS).expect("some")).expect("legal")
    }

    fn access(&mut self, name: &LockName) -> Access {
        let semaphore = name.as_str().starts_with("pool") != self.random.percent(5);
        if !semaphore {
            return if self.random.percent(45) { Mode::Exclusive.into() } else { Mode::Shared.into() };
        }
        let limit = match self.random.below(20) {
            0 => Some(2),
            1..4 => None,
            _ => Some(4),
        };
        let count = match self.random.below(20) {
            0 => 5,
            1 => 0,
            roll => 1 + (roll % 3) as u32,
        };
        Access::permits(count, limit)
    }

    fn patience(&mut self) -> Patience {
        match self.random.below(100) {
            0..30 => Patience::Try,
            30..80 => Patience::For { ms: self.random.below(1500) },
            _ => Patience::Session,
        }
    }

    fn owner(&mut self) -> Option<Owner> {
        let owners = [None, None, Some("job"), Some("task")];
        self.random.pick(&owners).copied().flatten().map(|text| Owner::parse(text).expect("legal"))
    }

    fn number(&mut self, at: usize) -> u64 {
        let known = &mut self.known[at];
        let number = known.next + u64::from(self.random.percent(5));
        known.next = number + 1;
        if self.random.percent(6) { number.saturating_sub(1 + self.random.below(20)) } else { number }
    }
}
