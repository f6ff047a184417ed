//! What arrives at the cluster and at the clients.

use super::*;

impl World {
    /// Delivers a command or renewal to the cluster.
    pub(super) fn deliver(&mut self, who: usize, at: usize) {
        let (session, what) = (self.clients[who].session, self.clients[who].sent.remove(at));
        match what {
            Ok(command) => {
                let number = command.may_wait().map(|(_, request)| request.number);
                let (outcome, _) = self.apply(Ok(command));
                if let (Some(number), Outcome::Refused(_) | Outcome::Withdrawn) = (number, outcome) {
                    self.send(session, Arrives::Refused(number));
                }
            }
            Err(sent) => {
                let (_, named) = self.apply(Err(session));
                self.send(session, Arrives::Renewed(sent, named));
            }
        }
    }

    pub(super) fn arrive(&mut self, who: usize, at: usize) {
        let client = &mut self.clients[who];
        match client.arriving.remove(at) {
            Arrives::Granted(number, token, named) => {
                client.table.recalled(&named);
                client.over.extend(named.iter().filter(|named| **named != token));
                let Some((name, ticket)) = client.requests.remove(&number) else { return };
                let grant = Grant { token, deadline: None, ends: None, waited_ms: 0 };
                let hold = Hold::new(name, &grant, None, None);
                let hold = match ticket {
                    None => Arc::new(hold),
                    Some(_) => Arc::new(hold.kept_as(Released { index: 1, at: LogTime(1), left: 0 })),
                };
                match ticket {
                    None => client.table.add(&hold),
                    Some(ticket) => client.table.add_cached(ticket, &hold),
                }
                // The use that was granted runs even if the hold is recalled already.
                let was_over = client.over.remove(&token) || named.contains(&token);
                self.counts[1] += 1;
                self.begin_use(who, hold);
                if was_over {
                    self.clients[who].over.insert(token);
                }
            }
            Arrives::Refused(number) => {
                if let Some((name, Some(ticket))) = client.requests.remove(&number) {
                    client.table.cached_failed(&name, ticket);
                }
            }
            Arrives::Renewed(sent, named) => {
                client.table.recalled(&named);
                client.over.extend(named);
                client.table.renewed(Some(sent.after(TTL / 2)));
            }
            Arrives::Event(event) => {
                client.table.on_event(&event);
                client.over.extend(event.subject.token());
            }
            Arrives::SessionEnded => self.lose(who),
        }
        self.poll(who);
    }

    /// The client finds its session ended, and opens another one.
    pub(super) fn lose(&mut self, who: usize) {
        self.clients[who].table.close();
        for hold in std::mem::take(&mut self.clients[who].uses) {
            self.no_longer_used(hold.token());
        }
        let session = self.clients[who].session;
        self.apply(Ok(Command::CloseSession { session, end: SessionClose::Lost }));
        self.clients[who] = self.client();
    }

    /// An operator breaks a hold or ends a session. Exclusion does not apply to what ends so.
    pub(super) fn operator(&mut self, who: usize) {
        if let Some((lock, token)) = self.granted.last().cloned()
            && self.below(4) != 0
        {
            let what = Managing::BreakHold { token, why: why() };
            if let (Outcome::Broken(_), _) = self.apply(Ok(Command::Manage(Manage { lock, what }))) {
                self.excepted.insert(token);
                self.no_longer_used(token);
                self.push(token, EventKind::Broken { by: Principal::default(), why: why(), held_ms: 1 });
            }
            return;
        }
        let session = self.clients[who].session;
        // Its tokens are not known here, so that all of its holds are excepted.
        let own: Vec<_> = self.granted.iter().map(|(_, token)| *token).collect();
        self.excepted.extend(own);
        self.used.clear();
        self.apply(Ok(Command::EndSession(EndSession { namespace: Namespace::default(), session, why: why() })));
        self.send(session, Arrives::SessionEnded);
    }

    /// The stream of a session breaks: its events are lost, and its holds are given up.
    pub(super) fn gap(&mut self, who: usize) {
        let client = &mut self.clients[who];
        client.arriving.retain(|arrives| !matches!(arrives, Arrives::Event(_)));
        client.table.unfollowed();
        client.table.renewed(None);
        self.poll(who);
    }

    pub(super) fn release_idle(&mut self, who: usize) {
        let (holds, _) = self.clients[who].table.cached_to_release(self.clock.now());
        for hold in holds {
            self.release(who, &hold);
        }
    }
}
