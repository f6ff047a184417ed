//! Clients of the simulation: the product's own client, with a simulated network and clock.

use std::sync::Arc;
use std::time::Duration;

use lockkeeper::client::{Client, LockGuard, Session};
use lockkeeper::model::{LockName, Metadata, Mode};
use lockkeeper::rpc::{RemoteService, RemoteSettings};
use tokio::time::{sleep, timeout};

use crate::checker::Belief;
use crate::clock::{SimClock, truth};
use crate::net::{CLIENT_PORT, connector};
use crate::random::Random;
use crate::run::{NODE_HOSTS, Run};
use crate::sure::SessionOrHold;

/// The host names of clients.
pub(crate) const CLIENT_HOSTS: [&str; 6] = ["c1", "c2", "c3", "c4", "c5", "c6"];
pub(crate) const TTL: Duration = Duration::from_millis(1_500);
/// Longest time for a single request of a client.
pub(crate) const REQUEST_WAIT: Duration = Duration::from_secs(2);
const LOCKS: [&str; 3] = ["red", "green", "blue"];

/// One client process with its name, clock and random choices.
#[derive(Clone)]
pub(crate) struct Caller {
    pub(crate) index: usize,
    pub(crate) run: Arc<Run>,
    pub(crate) clock: Arc<SimClock>,
    pub(crate) random: Random,
}

impl Caller {
    /// A connection to the cluster that tries the nodes in a different order for each client.
    pub(crate) fn connect(&self) -> Client<RemoteService> {
        let mut nodes: Vec<_> = NODE_HOSTS.iter().map(|host| format!("{host}:{CLIENT_PORT}")).collect();
        nodes.rotate_left(self.index % NODE_HOSTS.len());
        self.connect_to(nodes, REQUEST_WAIT)
    }

    /// A connection to these nodes with this request wait.
    pub(crate) fn connect_to(&self, endpoints: Vec<String>, wait: Duration) -> Client<RemoteService> {
        let mut settings = RemoteSettings::new(endpoints);
        settings.connector = Some(connector(Arc::clone(&self.run), CLIENT_HOSTS[self.index]));
        settings.request_wait = wait;
        // A name in place of the process id, because everything that is reported must be the same in every run.
        let named = Metadata { who: CLIENT_HOSTS[self.index].into(), ..Metadata::default() };
        let client = Client::new(RemoteService::new(settings).expect("endpoints")).metadata(named);
        client.clock(self.clock.clone()).request_wait(wait)
    }

    /// Records how long the client is sure of the session.
    pub(crate) fn sure(&self, session: &Session<RemoteService>) {
        self.sure_of(SessionOrHold::Session(session.id()), session.valid_for());
    }

    /// Records that the client is sure of something for `left` by its clock, and returns until when, in true time.
    pub(crate) fn sure_of(&self, session_or_hold: SessionOrHold, left: Duration) -> Duration {
        let until = truth() + self.clock.in_truth(left);
        self.run.sure(session_or_hold, until);
        until
    }
}

/// Opens sessions, requests locks, holds and releases them until the run stops.
pub(crate) async fn contend(mut caller: Caller) -> turmoil::Result {
    let connection = caller.connect();
    let mut present: Option<Session<RemoteService>> = None;
    while !caller.run.stopping() {
        let alive = present.take().filter(|session| !session.valid_for().is_zero());
        let session = match alive {
            Some(session) => session,
            None => match connection.session().ttl(TTL).open().await {
                Ok(session) => session,
                Err(error) => {
                    caller.run.note_error("open", &error);
                    continue;
                }
            },
        };
        one_round(&mut caller, &session).await;
        caller.sure(&session);
        present = Some(session);
    }
    if let Some(session) = present
        && let Err(error) = session.close().await
    {
        caller.run.note_error("close", &error);
    }
    caller.run.trace(CLIENT_HOSTS[caller.index], || "is done".to_owned());
    Ok(())
}

async fn one_round(caller: &mut Caller, session: &Session<RemoteService>) {
    let random = &mut caller.random;
    let name = LOCKS[random.below(LOCKS.len() as u64) as usize];
    let (roll, patience) = (random.below(100), random.ms(5, 300));
    let request = session.lock(name);
    let (request, mode) = match roll {
        0..60 => (request, Mode::Exclusive),
        60..75 => (request.shared(), Mode::Shared),
        75..85 => (request.wait(patience), Mode::Exclusive),
        85..92 => (request.try_once(), Mode::Exclusive),
        _ => (request.shared().wait(patience), Mode::Shared),
    };
    let gives_up = random.below(100) < 5;
    let asked = truth();
    let acquired = if gives_up {
        // The caller drops the request before the request ends, and then no waiter or hold of it may remain.
        let Ok(acquired) = timeout(patience, request.acquire()).await else { return };
        acquired
    } else {
        request.acquire().await
    };
    match acquired {
        Ok(guard) => hold(caller, session, (asked, mode), guard).await,
        Err(error) => caller.run.note_error("acquire", &error),
    }
}

async fn hold(
    caller: &mut Caller,
    session: &Session<RemoteService>,
    (asked, mode): (Duration, Mode),
    guard: LockGuard,
) {
    let begin = truth();
    let long = caller.random.below(100) < 5;
    let length = if long { caller.random.ms(300, 900) } else { caller.random.ms(1, 40) };
    let mut valid;
    let own = SessionOrHold::Hold(guard.token());
    loop {
        let now = truth();
        valid = caller.sure_of(own, guard.valid_for());
        caller.sure(session);
        let left = (begin + length).saturating_sub(now);
        if left.is_zero() {
            break;
        }
        tokio::select! {
            biased;
            _ = guard.lost() => break,
            () = sleep(left.min(Duration::from_millis(10))) => (),
        }
    }
    let (lock, token, session) = (guard.name().clone(), guard.token(), guard.session());
    let end = truth().min(valid);
    // The release of the lock begins here, so the client is no longer sure of it.
    caller.sure_of(own, Duration::ZERO);
    let client = caller.index;
    let belief = Belief { client, lock: lock.clone(), token, session, mode, asked, begin, end };
    caller.run.trace(CLIENT_HOSTS[client], || format!("held {lock} by {token} from {begin:?} to {end:?}"));
    caller.run.notes().history.granted(belief);
    if caller.random.below(100) < 10 {
        drop(guard);
        return caller.run.notes().history.ended(lock, token, end, None);
    }
    let released = guard.release().await;
    let answered = released.as_ref().ok().map(|_| truth());
    if let Err(error) = &released {
        caller.run.note_error("release", error);
    }
    caller.run.notes().history.ended(lock, token, end, answered);
}

/// Repeatedly reads the holders of a lock.
pub(crate) async fn look(mut caller: Caller) -> turmoil::Result {
    let connection = caller.connect();
    while !caller.run.stopping() {
        sleep(caller.random.ms(50, 250)).await;
        let (name, call) = (LOCKS[caller.random.below(LOCKS.len() as u64) as usize], truth());
        match connection.inspect(name).await {
            Ok(seen) => {
                let lock = LockName::parse(name)?;
                let holders = seen.value.holders.iter().map(|holder| holder.token).collect();
                caller.run.notes().history.looked(lock, holders, call, truth());
            }
            Err(error) => caller.run.note_error("inspect", &error),
        }
    }
    Ok(())
}
