//! The tables of several caching sessions against the naive model of the lock machine. Commands, answers and events are
//! delivered in any order, answers and events are lost, and holds and sessions end in every way.
//!
//! No two uses of a name overlap, no use begins after a recall is known or a release was sent, and every acquire is
//! served in the end.

mod deliveries;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use self::deliveries::{Arrives, Sent};
use crate::client::hold::{Hold, Released};
use crate::client::session::cached_holds::{Admitted, Asked, CachedHolds, Ticket};
use crate::client::session::hold_table::HoldTable;
use crate::clock::{Clock, Instant, ManualClock};
use crate::limits::CACHED_IDLE_MS_MAX;
use crate::machine::tests::mirror::entry;
use crate::machine::tests::naive::Naive;
use crate::model::*;

const SCENARIOS: u64 = 200;
const STEPS: usize = 400;
const SESSIONS: usize = 3;
const NAMES: [&str; 6] = ["bay", "dam", "hill", "lake", "river", "sea"];
const TTL: Duration = Duration::from_secs(600);

/// What the cluster applies as one entry.
enum Submitted {
    Command(Command),
    Renewal(SessionId),
}

/// An acquire in the local queue, with its place in the order of all acquires.
struct Waiting {
    order: u64,
    name: LockName,
    ticket: Ticket,
    admitted: oneshot::Receiver<Admitted>,
}

/// A client with one session. After the end of the session it opens another one.
struct Client {
    session: SessionId,
    table: HoldTable,
    numbers: u64,
    orders: u64,
    /// Commands and renewals on their way to the cluster.
    sent: Vec<Sent>,
    arriving: Vec<Arrives>,
    waiting: Vec<Waiting>,
    /// Requests without an answer, by number: the name, and the ticket if the request is for a cached hold.
    requests: BTreeMap<u64, (LockName, Option<Ticket>)>,
    uses: Vec<Arc<Hold>>,
    /// Tokens of holds that the client knows to be recalled or ended, or whose release it has sent.
    over: BTreeSet<FencingToken>,
}

struct World {
    clock: ManualClock,
    naive: Naive,
    opened: u128,
    clients: Vec<Client>,
    /// The client that uses each name, and its token.
    used: BTreeMap<LockName, (usize, FencingToken)>,
    /// Tokens of holds that an operator ended, to which exclusion does not apply.
    excepted: BTreeSet<FencingToken>,
    granted: Vec<(LockKey, FencingToken)>,
    /// Numbers of uses that began without a request and with one, of uses that waited locally, and of recalls.
    counts: [usize; 4],
}

fn key(name: &LockName) -> LockKey {
    LockKey { namespace: Namespace::default(), name: name.clone() }
}

fn why() -> Reason {
    Reason::parse("mine").expect("a reason")
}

impl World {
    fn new(seed: u64) -> Self {
        let mut world = Self {
            clock: ManualClock::new(seed),
            naive: Naive::default(),
            opened: 0,
            clients: Vec::new(),
            used: BTreeMap::new(),
            excepted: BTreeSet::new(),
            granted: Vec::new(),
            counts: [0; 4],
        };
        for _ in 0..SESSIONS {
            let client = world.client();
            world.clients.push(client);
        }
        world
    }

    fn below(&self, n: usize) -> usize {
        usize::try_from(self.clock.random_below(n as u64)).expect("small")
    }

    fn client(&mut self) -> Client {
        self.opened += 1;
        let open = OpenSession {
            namespace: Namespace::default(),
            handle: Handle::from_random(self.opened),
            instance: Instance(self.opened),
            ttl_ms: u64::try_from(TTL.as_millis()).expect("short"),
            disconnect_grace_ms: None,
            metadata: Metadata::default(),
            accepts_hand_over: false,
        };
        let outcome = self.apply(Submitted::Command(Command::OpenSession(open))).0;
        let Outcome::Opened { session, .. } = outcome else { panic!("{outcome:?}") };
        let table = HoldTable::new();
        table.cached(CachedHolds::followed);
        table.cached(|cached| cached.renewed(Some(self.clock.now().after(TTL / 2))));
        Client {
            session,
            table,
            numbers: 0,
            orders: 0,
            sent: Vec::new(),
            arriving: Vec::new(),
            waiting: Vec::new(),
            requests: BTreeMap::new(),
            uses: Vec::new(),
            over: BTreeSet::new(),
        }
    }

    /// Applies a command, or a renewal of a session. Returns its outcome and the recalled holds that it names, and
    /// sends the grants and events of the entry.
    fn apply(&mut self, submitted: Submitted) -> (Outcome, Vec<FencingToken>) {
        let stamp = self.clock.now().as_nanos() / 1_000_000;
        let (renewals, commands) = match submitted {
            Submitted::Command(command) => (vec![], vec![command]),
            Submitted::Renewal(session) => {
                let target = RenewalTarget::Session(session);
                (vec![Renewal { target, attempt: 0, receipt: LogTime(stamp) }], vec![])
            }
        };
        let (renewed, done) = self.naive.apply(&entry(stamp, renewals, commands));
        let outcome = renewed.into_iter().chain(done).next().expect("one answer");
        let named = self.naive.named.concat();
        for (lock, claim, token) in self.naive.granted.clone() {
            let Claim::Request(request) = claim else { panic!("{claim:?}") };
            self.granted.push((lock, token));
            self.send(request.session, Arrives::Granted(request.number, token, named.clone()));
        }
        for token in self.naive.recalls.clone() {
            self.counts[3] += 1;
            self.push(token, EventKind::Recalled);
        }
        (outcome, named)
    }

    fn send(&mut self, session: SessionId, arrives: Arrives) {
        if let Some(client) = self.clients.iter_mut().find(|client| client.session == session) {
            client.arriving.push(arrives);
        }
    }

    /// Sends an event of a hold to every session; the token selects its holder.
    fn push(&mut self, token: FencingToken, kind: EventKind) {
        let (lock, _) = self.granted.iter().find(|(_, granted)| *granted == token).expect("granted").clone();
        for client in &mut self.clients {
            let claim = Claim::Request(RequestId { session: client.session, number: 1 });
            let (position, at, wall) = (Position::default(), LogTime(1), WallTime(0));
            let (namespace, subject) = (None, Subject::hold(&lock, claim, token));
            let event = Event { position, at, wall, namespace, subject, kind: kind.clone() };
            client.arriving.push(Arrives::Event(event));
        }
    }

    fn begin_use(&mut self, client_index: usize, hold: Arc<Hold>) {
        let token = hold.token();
        let client = &mut self.clients[client_index];
        assert!(!client.over.contains(&token), "a use of {token} begins after its end or recall is known");
        if !self.excepted.contains(&token) {
            let other = self.used.insert(hold.name.clone(), (client_index, token));
            assert!(other.is_none(), "{} is used by {other:?} and with {token}", hold.name);
        }
        client.uses.push(hold);
    }

    fn no_longer_used(&mut self, token: FencingToken) {
        self.used.retain(|_, (_, used)| *used != token);
    }

    fn end_use(&mut self, client_index: usize, place: usize) {
        let (now, client) = (self.clock.now(), &mut self.clients[client_index]);
        let hold = client.uses.swap_remove(place);
        hold.release();
        self.no_longer_used(hold.token());
        let kept = hold.kept.is_some() && self.clients[client_index].table.give_back(&hold, now);
        if !kept {
            self.release(client_index, &hold);
        }
        self.poll(client_index);
    }

    fn release(&mut self, client_index: usize, hold: &Hold) {
        let client = &mut self.clients[client_index];
        client.numbers += 1;
        client.over.insert(hold.token());
        let request = RequestId { session: client.session, number: client.numbers };
        let release = Release { request, answered_below: 1, name: hold.name.clone(), token: hold.token(), acquire: 0 };
        client.sent.push(Sent::Command(Command::Release(release)));
    }

    fn request(&mut self, client_index: usize, name: LockName, ticket: Option<Ticket>) {
        let client = &mut self.clients[client_index];
        client.numbers += 1;
        client.requests.insert(client.numbers, (name.clone(), ticket));
        let acquire = Acquire {
            request: RequestId { session: client.session, number: client.numbers },
            answered_below: 1,
            locks: (name, Mode::Exclusive.into()).into(),
            owner: None,
            patience: Patience::Session,
            metadata: Metadata::default(),
            lease_ms: None,
            extras: ticket.map(|_| Box::new(Extras { cached: true, ..Extras::default() })),
        };
        client.sent.push(Sent::Command(Command::Acquire(acquire)));
    }

    fn admitted(&mut self, client_index: usize, name: LockName, admitted: Admitted) {
        match admitted {
            Admitted::Taken(hold) => {
                self.counts[0] += 1;
                self.begin_use(client_index, hold);
            }
            Admitted::Request(ticket) => self.request(client_index, name, Some(ticket)),
        }
    }

    fn ask(&mut self, client_index: usize) {
        let name = LockName::parse(NAMES[self.below(NAMES.len())]).expect("a name");
        if self.below(12) == 0 {
            return self.request(client_index, name, None);
        }
        let (now, client) = (self.clock.now(), &mut self.clients[client_index]);
        client.orders += 1;
        match client.table.ask_cached(&name, now) {
            Asked::Now(admitted) => self.admitted(client_index, name, admitted),
            Asked::Queued(ticket, admitted) => {
                client.waiting.push(Waiting { order: client.orders, name, ticket, admitted })
            }
        }
    }

    /// Lets the acquires of the local queue continue that have their turn.
    fn poll(&mut self, client_index: usize) {
        loop {
            let client = &mut self.clients[client_index];
            let mut turns = client.waiting.iter_mut().enumerate();
            let Some((at, admitted)) = turns.find_map(|(at, waiting)| Some((at, waiting.admitted.try_recv().ok()?)))
            else {
                return;
            };
            let waited = client.waiting.remove(at);
            let mut others = client.waiting.iter().filter(|other| other.name == waited.name);
            assert!(others.all(|other| waited.order < other.order), "not the first in the local queue");
            self.counts[2] += 1;
            self.admitted(client_index, waited.name, admitted);
        }
    }

    /// The caller of an acquire drops it.
    fn drop_one(&mut self, client_index: usize) {
        let at = self.below(self.clients[client_index].waiting.len() + self.clients[client_index].requests.len() + 1);
        let client = &mut self.clients[client_index];
        if at < client.waiting.len() {
            let Waiting { name, ticket, mut admitted, .. } = client.waiting.remove(at);
            client.table.cached(|cached| cached.leave(&name, ticket));
            assert!(admitted.try_recv().is_err(), "every admitted was taken at once");
        } else if let Some((number, (name, ticket))) =
            client.requests.iter().nth(at - client.waiting.len()).map(|(number, of)| (*number, of.clone()))
        {
            client.requests.remove(&number);
            client.sent.push(Sent::Command(Command::Cancel { request: RequestId { session: client.session, number } }));
            if let Some(ticket) = ticket {
                client.table.cached(|cached| cached.failed(&name, ticket));
            }
        }
        self.poll(client_index);
    }

    fn step(&mut self) {
        let client_index = self.below(SESSIONS);
        match self.below(100) {
            0..20 => self.ask(client_index),
            20..38 if !self.clients[client_index].uses.is_empty() => {
                let at = self.below(self.clients[client_index].uses.len());
                self.end_use(client_index, at);
            }
            38..62 if !self.clients[client_index].sent.is_empty() => {
                let at = self.below(self.clients[client_index].sent.len());
                self.deliver(client_index, at);
            }
            62..82 if !self.clients[client_index].arriving.is_empty() => {
                let at = self.below(self.clients[client_index].arriving.len());
                self.arrive(client_index, at);
            }
            82..85 => self.drop_one(client_index),
            85..90 => {
                let now = self.clock.now();
                self.clients[client_index].sent.push(Sent::Renewal(now));
            }
            90..93 => self.release_idle(client_index),
            93..96 => self.clients[client_index].table.cached(CachedHolds::followed),
            96 if self.below(2) == 0 => self.gap(client_index),
            97 => self.clock.advance(Duration::from_millis(self.clock.random_below(8_000))),
            98 if self.below(3) == 0 => self.operator(client_index),
            99 if self.below(3) == 0 => self.lose(client_index),
            _ => {}
        }
    }

    /// Delivers everything and ends every use, until no acquire waits.
    fn settle(&mut self) {
        for _ in 0..1_000 {
            for client_index in 0..SESSIONS {
                self.clients[client_index].table.cached(CachedHolds::followed);
                while !self.clients[client_index].uses.is_empty() {
                    self.end_use(client_index, 0);
                }
                self.release_idle(client_index);
                self.clients[client_index].sent.push(Sent::Renewal(self.clock.now()));
                while !self.clients[client_index].sent.is_empty() {
                    self.deliver(client_index, 0);
                }
                while !self.clients[client_index].arriving.is_empty() {
                    self.arrive(client_index, 0);
                }
            }
            let busy =
                |client: &Client| !(client.uses.is_empty() && client.waiting.is_empty() && client.requests.is_empty());
            if !self.clients.iter().any(busy) {
                return;
            }
        }
        panic!("an acquire is not served");
    }

    /// Every hold that is idle for too long is released.
    fn become_idle(&mut self) {
        self.clock.advance(Duration::from_millis(CACHED_IDLE_MS_MAX));
        self.settle();
        for name in NAMES {
            let name = LockName::parse(name).expect("a name");
            let take = Command::TakeLease(TakeLease {
                lock: key(&name),
                take: LeaseRequestId(1),
                handle: Handle::from_random(7),
                access: Mode::Exclusive.into(),
                lease_ms: 1_000,
                patience: Patience::Try,
                metadata: Metadata::default(),
                claim_ms: None,
            });
            let stamp = self.clock.now().as_nanos() / 1_000_000;
            let (_, outcomes) = self.naive.apply(&entry(stamp, vec![], vec![take]));
            assert!(matches!(outcomes[..], [Outcome::Granted(_)]), "{name} is not free: {outcomes:?}");
        }
    }
}

/// N-CAC-20: Uses exclude each other and are served in order, in spite of all losses, delays and ends.
#[test]
fn n_cac_20_uses_of_several_sessions_exclude_each_other() {
    let mut counts = [0; 4];
    for seed in 0..SCENARIOS {
        let mut world = World::new(seed);
        for _ in 0..STEPS {
            world.step();
        }
        world.settle();
        world.become_idle();
        counts.iter_mut().zip(world.counts).for_each(|(all, more)| *all += more);
    }
    assert!(counts.iter().all(|count| SCENARIOS as usize * 5 < *count), "too rare: {counts:?}");
}
