//! Random stories for the machine: few names, few sessions, times near deadlines, repeated numbers, cancels of numbers
//! that nobody used. The same seed tells the same story.

#![allow(clippy::wildcard_enum_match_arm, reason = "a story changes some commands and leaves the rest")]

mod documents;

use super::mirror::entry;
use crate::machine::Applied;
use crate::model::*;

/// Numbers that are the same for the same seed (SplitMix64).
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

    /// 0 to `bound` - 1.
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

/// Whether this is the request, and it asks for a lock-delay.
fn delays(command: &Command, request: RequestId) -> bool {
    match command {
        Command::Acquire(acquire) => acquire.request == request && 0 < acquire.choices().delay_ms,
        _ => false,
    }
}

/// What the story knows of a session.
#[derive(Debug, Clone)]
struct Known {
    id: SessionId,
    open: OpenSession,
    next: u64,
    attempt: u64,
    attachment: u64,
    /// How often it was answered that the session has ended.
    gone: u64,
    past: Vec<Command>,
    tokens: Vec<(LockName, FencingToken)>,
}

/// A session's hold.
#[derive(Debug, Clone)]
struct Held {
    request: RequestId,
    name: LockName,
    token: FencingToken,
}

/// A story: entries, and what their answers taught.
#[derive(Debug, Clone)]
pub(crate) struct Story {
    random: Random,
    stamp: u64,
    known: Vec<Known>,
    takes: Vec<TakeLease>,
    /// Documents that were asked for.
    grabs: Vec<Grab>,
    /// Ends of sessions, as they were told.
    renewed: Vec<(SessionId, LogTime)>,
    /// What sessions hold now.
    held: Vec<Held>,
    /// Who waits for what.
    waits: Vec<(LockKey, RequestId)>,
    /// Upgrades and resumes that were queued or granted.
    altered: Vec<Command>,
    /// Holds that ended against their holders' will, and the handles of their sessions.
    lost: Vec<(LockKey, FencingToken, Handle)>,
    drawn: u128,
    attempts: u64,
}

const LOCKS: [&str; 7] = ["a", "b", "c", "d", "pool-a", "pool-b", "pool-c"];
const SESSIONS_KNOWN: usize = 5;

fn handle(number: u128) -> Handle {
    Handle::from_random(number)
}

impl Story {
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

    /// The next entry; the machine's next deadline is what many stamps aim at.
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

    /// Takes over what the machine answered.
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
        for event in &applied.events {
            self.follow(&event.kind);
        }
    }

    /// Keeps up with who holds what, and what was lost.
    fn follow(&mut self, event: &EventKind) {
        let gone = match event {
            EventKind::Upgraded { from, .. } | EventKind::HandedOver { from, .. } => Some(*from),
            EventKind::Broken { token, .. } => Some(*token),
            EventKind::Released { token, .. } | EventKind::Expired { token, .. } => Some(*token),
            _ => None,
        };
        self.held.retain(|held| Some(held.token) != gone);
        match event {
            EventKind::Queued { lock, claim: Claim::Request(request), .. } => self.waits.push((lock.clone(), *request)),
            _ => self.waits.retain(|(_, request)| event.claim() != Some(Claim::Request(*request))),
        }
        if let EventKind::Expired { lock, token, claim: Claim::Request(request), .. } = event
            && let Some(known) = self.known.iter().find(|known| known.id == request.session)
            && known.past.iter().any(|past| delays(past, *request))
        {
            self.lost.push((lock.clone(), *token, known.open.handle.clone()));
        }
        if let EventKind::Granted { lock, claim: Claim::Request(request), token, .. }
        | EventKind::Upgraded { lock, claim: Claim::Request(request), token, .. }
        | EventKind::HandedOver { lock, claim: Claim::Request(request), token, .. }
        | EventKind::Resumed { lock, claim: Claim::Request(request), token, .. } = event
            && let Some(known) = self.known.iter_mut().find(|known| known.id == request.session)
        {
            known.tokens.push((lock.name.clone(), *token));
            self.held.push(Held { request: *request, name: lock.name.clone(), token: *token });
        }
    }

    /// Mostly what the session holds now, or else what it held once.
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

    /// What the session holds under a named owner, to be entered again.
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
        match self.random.below(120) {
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
            96 => self.close(),
            97 => Command::Tick,
            98 => Command::LeaderlessGap { gap_ms: self.random.below(5000) },
            99 => self.announce(),
            100 => {
                let voters = (1..=4).filter(|_| self.random.percent(50)).collect();
                Command::RaiseFeatures(RaiseFeatures { to: 1 + self.random.below(4) as u32, voters })
            }
            102..120 => self.document(),
            _ => Command::Configure(ClusterSettings {
                timing_ms: [100, 500, 1000],
                ttl_ms_min: 1000,
                ttl_ms_max: 60_000,
            }),
        }
    }

    /// Mostly the node's own disk; another one where it was lost.
    fn announce(&mut self) -> Command {
        let node = 1 + self.random.below(4);
        let disk = if self.random.percent(70) { node } else { node + 10 };
        let http = self.random.percent(50).then(|| format!("n{node}:7620"));
        let (disk, features) = (u128::from(disk), 1 + self.random.below(4) as u32);
        Command::Announce(Announcement { node, disk, features, version: "0.1.0".into(), http })
    }

    fn session(&mut self) -> usize {
        self.random.below(self.known.len() as u64) as usize
    }

    fn open(&mut self) -> Command {
        let drawn = self.draw();
        let again = self.random.pick(&self.known).map(|known| known.open.clone());
        if let Some(mut again) = again.filter(|_| 3 <= self.known.len() && self.random.percent(45)) {
            if self.random.percent(50) {
                again.instance = Instance(drawn);
            }
            return Command::OpenSession(again);
        }
        let ttl_ms = match self.random.below(20) {
            0 => 999,
            1 => 60_001,
            2..5 => 1000 + self.random.below(1000),
            _ => 5_000 + self.random.below(30_000),
        };
        let grace = [None, None, None, Some(500), Some(1000), Some(0), Some(ttl_ms + 1), Some(ttl_ms)];
        let batch = self.random.percent(20);
        Command::OpenSession(OpenSession {
            namespace: Namespace::parse(if batch { "batch" } else { "default" }).expect("legal"),
            handle: handle(drawn),
            instance: Instance(drawn),
            ttl_ms,
            disconnect_grace_ms: self.random.pick(&grace).copied().flatten(),
            metadata: Metadata::default(),
            accepts_hand_over: self.random.percent(30),
        })
    }

    fn attach(&mut self) -> Command {
        let at = self.session();
        let known = &self.known[at];
        let attempt = known.attempt + 2 - self.random.below(3).min(known.attempt + 1);
        let stranger = self.random.percent(15);
        let handle = if stranger { handle(u128::MAX) } else { known.open.handle.clone() };
        Command::Attach(Attach { session: known.id, handle, attempt })
    }

    fn disconnected(&mut self) -> Command {
        let at = self.session();
        let known = &self.known[at];
        let attachment = Attachment(known.attachment.saturating_sub(self.random.below(4) / 3));
        Command::Disconnected { session: known.id, attachment }
    }

    fn close(&mut self) -> Command {
        let at = self.session();
        let end = if self.random.percent(50) { SessionClose::Done } else { SessionClose::Lost };
        Command::CloseSession { session: self.known[at].id, end }
    }

    fn name(&mut self) -> LockName {
        LockName::parse(self.random.pick(&LOCKS).expect("some")).expect("legal")
    }

    fn mode(&mut self, name: &LockName) -> Mode {
        let semaphore = name.as_str().starts_with("pool") != self.random.percent(5);
        if !semaphore {
            return if self.random.percent(45) { Mode::Exclusive } else { Mode::Shared };
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
        Mode::Permits { count, limit }
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

    fn acquire_set(&mut self) -> Command {
        let at = self.session();
        let sets: Vec<_> = self.known[at].past.iter().filter(|past| matches!(past, Command::AcquireSet(_))).collect();
        let recent = sets.len().saturating_sub(5);
        let again = self.random.pick(&sets[recent..]).copied().cloned();
        let (roll, patience, name) = (self.random.below(100), self.patience(), self.name());
        if let Some(Command::AcquireSet(mut again)) = again.filter(|_| roll < 25) {
            again.patience = patience;
            if roll < 6 {
                again.members.insert(name, Mode::Exclusive);
            }
            return Command::AcquireSet(again);
        }
        let mut members = std::collections::BTreeMap::new();
        for _ in 0..2 + self.random.below(2) {
            let name = self.name();
            members.insert(name.clone(), self.mode(&name));
        }
        let lease_ms = self.random.percent(20).then(|| self.lease_ms());
        let extras = Extras { lease_ms, ..Extras::default() };
        let set = AcquireSet {
            request: RequestId { session: self.known[at].id, number: self.number(at) },
            answered_below: self.answered_below(at),
            members,
            owner: self.owner(),
            patience: self.patience(),
            metadata: Metadata::default(),
            extras: Some(Box::new(extras)).filter(|_| lease_ms.is_some()),
        };
        let command = Command::AcquireSet(set);
        self.known[at].past.push(command.clone());
        command
    }

    fn extras(&mut self) -> Option<Box<Extras>> {
        if self.random.percent(45) {
            return None;
        }
        let reentry = match self.random.below(6) {
            0..3 => Reentry::Count,
            3 => Reentry::Wait,
            _ => Reentry::Refuse,
        };
        let lease_ms = self.random.percent(30).then(|| self.lease_ms());
        let fairness = if self.random.percent(25) { Fairness::Barging } else { Fairness::Fair };
        let value = self.random.percent(10).then(|| LockValue::parse("n1:7600").expect("legal"));
        let delay_ms = if self.random.percent(35) { self.random.below(20_000) } else { 0 };
        let parents = self.random.percent(25);
        let parent = self.random.pick(&self.known).map(|known| known.id).filter(|_| parents);
        let parent = parent.zip(self.owner()).map(|(session, owner)| Parent { session, owner });
        let deadlock = if self.random.percent(10) { OnDeadlock::Wait } else { OnDeadlock::Refuse };
        Some(Box::new(Extras { reentry, fairness, lease_ms, value, delay_ms, parent, deadlock }))
    }

    fn answered_below(&mut self, at: usize) -> u64 {
        let back = self.random.below(12);
        if self.random.percent(12) { self.known[at].next.saturating_sub(back) } else { 0 }
    }

    /// A past command of the session, as it was or slightly changed.
    fn again(&mut self, at: usize) -> Option<Command> {
        let recent = self.known[at].past.len().saturating_sub(12);
        let back = if self.random.percent(85) { recent } else { 0 };
        let mut command = self.random.pick(&self.known[at].past[back..]).cloned()?;
        let changed = self.random.percent(35);
        let (patience, name) = (self.patience(), self.name());
        match &mut command {
            Command::Acquire(acquire) => {
                acquire.patience = patience;
                if changed {
                    acquire.name = name;
                }
            }
            Command::AcquireSet(set) => {
                set.patience = patience;
                if changed {
                    set.members.insert(name, Mode::Exclusive);
                }
            }
            Command::Release(release) if changed => release.name = name,
            Command::Alter(alter) if changed => alter.name = name,
            _ => {}
        }
        Some(command)
    }

    fn number(&mut self, at: usize) -> u64 {
        let known = &mut self.known[at];
        let number = known.next + u64::from(self.random.percent(5));
        known.next = number + 1;
        if self.random.percent(6) { number.saturating_sub(1 + self.random.below(20)) } else { number }
    }

    fn acquire(&mut self) -> Command {
        let at = self.session();
        if self.random.percent(18)
            && let Some(again) = self.again(at)
        {
            return again;
        }
        if self.random.percent(14)
            && let Some(again) = self.enter_again(at)
        {
            return again;
        }
        let name = self.name();
        let command = Command::Acquire(Acquire {
            request: RequestId { session: self.known[at].id, number: self.number(at) },
            answered_below: self.answered_below(at),
            mode: self.mode(&name),
            owner: self.owner(),
            patience: self.patience(),
            metadata: Metadata::default(),
            extras: self.extras(),
            name,
        });
        self.known[at].past.push(command.clone());
        command
    }

    fn release(&mut self) -> Command {
        let at = self.session();
        if self.random.percent(10)
            && let Some(again) = self.again(at)
        {
            return again;
        }
        let (wrong, early, number) = (self.random.percent(8), self.random.percent(10), self.number(at));
        let answered_below = self.answered_below(at);
        let token = FencingToken::new(0, 1 + self.random.below(50));
        let known = &mut self.known[at];
        let (name, token) = match known.tokens.pop() {
            Some((name, _)) if wrong => (name, token),
            Some((name, token)) if early => {
                known.tokens.push((name.clone(), token));
                (name, token)
            }
            Some(found) => found,
            None => (self.name(), token),
        };
        let request = RequestId { session: self.known[at].id, number };
        let command = Command::Release(Release { request, answered_below, name, token });
        self.known[at].past.push(command.clone());
        command
    }

    /// Upgrades, downgrades and resumes, mostly of what is or was held.
    fn alter(&mut self) -> Command {
        let at = self.session();
        let altered: Vec<_> = self.known[at].past.iter().filter(|past| matches!(past, Command::Alter(_))).collect();
        let recent = altered.len().saturating_sub(8);
        let again = self.random.pick(&altered[recent..]).copied().cloned();
        if let Some(again) = again.filter(|_| self.random.percent(25)) {
            return again;
        }
        let recent = self.altered.len().saturating_sub(4);
        let again = self.random.pick(&self.altered[recent..]).cloned();
        if let Some(again) = again.filter(|_| self.random.percent(15)) {
            return again;
        }
        let (number, answered_below) = (self.number(at), self.answered_below(at));
        let (mut name, token) = self.held(at);
        let recent = self.lost.len().saturating_sub(3);
        let lost = self.random.pick(&self.lost[recent..]).cloned();
        let (patience, lease_ms) = (self.patience(), self.random.percent(30).then(|| self.lease_ms()));
        let what = match (self.random.below(10), lost) {
            (0..2, _) | (8.., None) => Alteration::Downgrade { token },
            (2, _) => Alteration::SetValue { token, value: self.value() },
            (3..6, _) | (_, None) => Alteration::Upgrade { token, patience },
            (_, Some((lock, token, known))) => {
                name = lock.name;
                let handle = if self.random.percent(25) { handle(u128::MAX) } else { known };
                Alteration::Resume { token, handle, lease_ms }
            }
        };
        let request = RequestId { session: self.known[at].id, number };
        let command = Command::Alter(Alter { request, answered_below, name, what });
        self.known[at].past.push(command.clone());
        command
    }

    fn value(&mut self) -> Option<LockValue> {
        let values = [None, Some("n1:7600"), Some("n2:7600")];
        self.random.pick(&values).copied().flatten().map(|text| LockValue::parse(text).expect("legal"))
    }

    /// Limits, breaks, requests and hand-overs, mostly of what is held now.
    fn manage(&mut self) -> Command {
        let why = Reason::parse("stuck").expect("legal");
        let (at, to) = (self.session(), self.session());
        let (mut name, mut token) = self.held(at);
        let namespace = self.known[at].open.namespace.clone();
        let to = self.known[to].id;
        let what = match self.random.below(20) {
            0..4 => {
                name = self.name();
                Managing::SetLimit { limit: 1 + self.random.below(5) as u32 }
            }
            4..8 => {
                name = self.name();
                Managing::RemoveLimit
            }
            8..12 => {
                let recent = self.lost.len().saturating_sub(2);
                if let Some((lock, lost, _)) = self.random.pick(&self.lost[recent..]).cloned()
                    && self.random.percent(30)
                {
                    (name, token) = (lock.name, lost);
                }
                Managing::Break { token, why, dry_run: self.random.percent(30) }
            }
            12..14 => Managing::Ask { token, why },
            _ => return self.hand_over(LockKey { namespace, name }, token, to),
        };
        Command::Manage(Manage { lock: LockKey { namespace, name }, what })
    }

    /// Mostly to somebody who waits.
    fn hand_over(&mut self, mut lock: LockKey, mut token: FencingToken, mut to: SessionId) -> Command {
        let known = |held: &&Held| self.waits.iter().any(|(lock, _)| lock.name == held.name);
        let held: Vec<_> = self.held.iter().filter(known).cloned().collect();
        let waiters = self.random.percent(70);
        if let Some(held) = self.random.pick(&held).cloned().filter(|_| waiters) {
            let waits: Vec<_> = self.waits.iter().filter(|(lock, _)| lock.name == held.name).cloned().collect();
            if let Some((of, request)) = self.random.pick(&waits).cloned() {
                (lock, token, to) = (of, held.token, request.session);
            }
        }
        Command::Manage(Manage { lock, what: Managing::HandOver { token, to } })
    }

    fn cancel(&mut self) -> Command {
        let recent = self.altered.len().saturating_sub(3);
        if let Some(Command::Alter(alter)) = self.random.pick(&self.altered[recent..]).cloned()
            && self.random.percent(8)
        {
            return Command::Cancel { request: alter.request };
        }
        let at = self.session();
        let (roll, back) = (self.random.below(10), self.random.below(8));
        let known = &self.known[at];
        let altered = known.past.iter().rev().find_map(|past| match past {
            Command::Alter(alter) => Some(alter.request.number),
            _ => None,
        });
        let number = match roll {
            0..3 if altered.is_some() => altered.unwrap_or_default(),
            0..7 => known.next.saturating_sub(back + 1),
            7..9 => known.next + back / 4,
            _ => back,
        };
        Command::Cancel { request: RequestId { session: known.id, number } }
    }

    fn recent_take(&mut self) -> Option<TakeLease> {
        let recent = self.takes.len().saturating_sub(6);
        self.random.pick(&self.takes[recent..]).cloned()
    }

    fn take(&mut self) -> Command {
        let drawn = self.draw();
        let roll = self.random.below(100);
        if let Some(mut again) = self.recent_take().filter(|_| roll < 38) {
            again.patience = self.patience();
            match roll {
                0..8 => again.lease_ms += 1,
                8..14 => again.handle = handle(drawn),
                14..22 => again.take = TakeId(drawn),
                _ => {}
            }
            return Command::TakeLease(again);
        }
        let name = self.name();
        let batch = self.random.percent(15);
        let namespace = Namespace::parse(if batch { "batch" } else { "default" }).expect("legal");
        let mode = self.mode(&name);
        let lock = LockKey { namespace, name };
        let (take, handle, lease_ms) = (TakeId(drawn), handle(drawn), self.lease_ms());
        let (patience, metadata) = (self.patience(), Metadata::default());
        let take = TakeLease { lock, take, handle, mode, lease_ms, patience, metadata };
        self.takes.push(take.clone());
        Command::TakeLease(take)
    }

    fn drop_lease(&mut self) -> Command {
        let drawn = self.draw();
        let stranger = self.random.percent(12);
        match self.recent_take() {
            Some(take) => {
                let handle = if stranger { handle(drawn) } else { take.handle };
                Command::DropLease { lock: take.lock, handle }
            }
            None => Command::Tick,
        }
    }

    fn cancel_take(&mut self) -> Command {
        let drawn = self.draw();
        let roll = self.random.below(10);
        let Some(take) = self.recent_take() else { return Command::Tick };
        let id = if roll == 0 { TakeId(drawn) } else { take.take };
        let handle = if roll == 1 { handle(drawn) } else { take.handle };
        Command::CancelTake { lock: take.lock, take: id, handle }
    }
}
