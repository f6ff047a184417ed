//! What arrives at the cluster and at the clients.

use super::*;

/// What travels from the cluster to a session.
pub(super) enum Arrives {
    /// A grant to the request with this number, and the recalled holds that it names.
    Granted(u64, FencingToken, Vec<FencingToken>),
    /// The refusal of the request with this number.
    Refused(u64),
    /// The answer to a renewal that was sent at this time.
    Renewed(Instant, Vec<FencingToken>),
    Event(Event),
    SessionEnded,
}

/// What travels from a session to the cluster.
pub(super) enum Sent {
    Command(Command),
    /// A renewal of the session, and the time at which it was sent.
    Renewal(Instant),
}

impl World {
    /// Delivers a command or renewal to the cluster.
    pub(super) fn deliver(&mut self, client_index: usize, place: usize) {
        let (session, sent) = (self.clients[client_index].session, self.clients[client_index].sent.remove(place));
        match sent {
            Sent::Command(command) => {
                let number = command.may_wait().map(|(_, request)| request.number);
                let (outcome, _) = self.apply(Submitted::Command(command));
                if let (Some(number), Outcome::Refused(_) | Outcome::Withdrawn) = (number, outcome) {
                    self.send(session, Arrives::Refused(number));
                }
            }
            Sent::Renewal(sent_at) => {
                let (_, named) = self.apply(Submitted::Renewal(session));
                self.send(session, Arrives::Renewed(sent_at, named));
            }
        }
    }

    /// Delivers an answer or event to its client.
    pub(super) fn arrive(&mut self, client_index: usize, place: usize) {
        let client = &mut self.clients[client_index];
        match client.arriving.remove(place) {
            Arrives::Granted(number, token, named) => {
                client.table.recalled(&named);
                client.over.extend(named.iter().filter(|named| **named != token));
                let Some((name, ticket)) = client.requests.remove(&number) else { return };
                let hold = Hold::new(name, token, None, None);
                let hold = match ticket {
                    None => Arc::new(hold),
                    Some(_) => Arc::new(hold.kept_as(Released { index: 1, at: LogTime(1), left: 0 })),
                };
                match ticket {
                    None => client.table.add(&hold, 0),
                    Some(ticket) => client.table.add_cached(ticket, &hold, 0),
                }
                // The use that was granted runs even if the hold is recalled already.
                let was_over = client.over.remove(&token) || named.contains(&token);
                self.counts[1] += 1;
                self.begin_use(client_index, hold);
                if was_over {
                    self.clients[client_index].over.insert(token);
                }
            }
            Arrives::Refused(number) => {
                if let Some((name, Some(ticket))) = client.requests.remove(&number) {
                    client.table.cached(|cached| cached.failed(&name, ticket));
                }
            }
            Arrives::Renewed(sent_at, named) => {
                client.table.recalled(&named);
                client.over.extend(named);
                client.table.cached(|cached| cached.renewed(Some(sent_at.after(TTL / 2))));
            }
            Arrives::Event(event) => {
                client.table.on_event(&event);
                client.over.extend(event.subject.token());
            }
            Arrives::SessionEnded => self.lose(client_index),
        }
        self.poll(client_index);
    }

    /// The client finds its session ended, and opens another one.
    pub(super) fn lose(&mut self, client_index: usize) {
        self.clients[client_index].table.cached(|cached| *cached = CachedHolds::default());
        for hold in std::mem::take(&mut self.clients[client_index].uses) {
            self.no_longer_used(hold.token());
        }
        let session = self.clients[client_index].session;
        self.apply(Submitted::Command(Command::CloseSession { session, end: SessionClose::Lost }));
        self.clients[client_index] = self.client();
    }

    /// An operator breaks a hold or ends a session. Exclusion does not apply to what ends so.
    pub(super) fn operator(&mut self, client_index: usize) {
        if let Some((lock, token)) = self.granted.last().cloned()
            && self.below(4) != 0
        {
            let what = Managing::BreakHold { token, why: why() };
            if let (Outcome::Broken(_), _) = self.apply(Submitted::Command(Command::Manage(Manage { lock, what }))) {
                self.excepted.insert(token);
                self.no_longer_used(token);
                self.push(token, EventKind::Broken { by: Principal::default(), why: why(), held_ms: 1 });
            }
            return;
        }
        let session = self.clients[client_index].session;
        // The tokens of the session's holds are not known here. So exclusion no longer applies to any hold that was
        // granted so far.
        let own: Vec<_> = self.granted.iter().map(|(_, token)| *token).collect();
        self.excepted.extend(own);
        self.used.clear();
        self.apply(Submitted::Command(Command::EndSession(EndSession {
            namespace: Namespace::default(),
            session,
            why: why(),
        })));
        self.send(session, Arrives::SessionEnded);
    }

    /// The stream of a session breaks: its events are lost, and its holds are given up.
    pub(super) fn gap(&mut self, client_index: usize) {
        let client = &mut self.clients[client_index];
        client.arriving.retain(|arrives| !matches!(arrives, Arrives::Event(_)));
        client.table.cached(CachedHolds::unfollowed);
        client.table.cached(|cached| cached.renewed(None));
        self.poll(client_index);
    }

    /// Releases the holds that the client keeps unused for too long.
    pub(super) fn release_idle(&mut self, client_index: usize) {
        let now = self.clock.now();
        let idle = |cached: &mut CachedHolds| (cached.give_up_overdue(now), cached.take_given_up());
        let (_, holds) = self.clients[client_index].table.cached(idle);
        for hold in holds {
            self.release(client_index, &hold);
        }
    }
}
