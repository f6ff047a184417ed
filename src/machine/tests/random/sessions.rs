//! Random commands that open, attach and close sessions, and announce nodes.

use super::*;

impl Scenario {
    /// Announces a node: mostly with its own disk, sometimes with another one, as after the loss of a disk.
    pub(super) fn announce(&mut self) -> Command {
        let node = 1 + self.random.below(4);
        let disk = if self.random.percent(70) { node } else { node + 10 };
        let http = self.random.percent(50).then(|| format!("n{node}:7620"));
        let (disk, features) = (u128::from(disk), 1 + self.random.below(4) as u32);
        Command::Announce(Announcement { node, disk, features, version: "0.1.0".into(), http, rules: None })
    }

    pub(super) fn open(&mut self) -> Command {
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

    pub(super) fn attach(&mut self) -> Command {
        let at = self.session();
        let known = &self.known[at];
        let attempt = known.attempt + 2 - self.random.below(3).min(known.attempt + 1);
        let stranger = self.random.percent(15);
        let handle = if stranger { handle(u128::MAX) } else { known.open.handle.clone() };
        let elsewhere = self.random.percent(10);
        let known = &self.known[at];
        let namespace =
            if elsewhere { Namespace::parse("elsewhere").expect("legal") } else { known.open.namespace.clone() };
        Command::Attach(Attach { namespace, session: known.id, handle, attempt })
    }

    pub(super) fn disconnected(&mut self) -> Command {
        let at = self.session();
        let known = &self.known[at];
        let attachment = Attachment(known.attachment.saturating_sub(self.random.below(4) / 3));
        Command::Disconnected { session: known.id, attachment }
    }

    pub(super) fn close(&mut self) -> Command {
        let at = self.session();
        let end = if self.random.percent(50) { SessionClose::Done } else { SessionClose::Lost };
        Command::CloseSession { session: self.known[at].id, end }
    }

    /// Ends a session as an operator, sometimes with the wrong namespace.
    pub(super) fn end(&mut self) -> Command {
        let at = self.session();
        let (session, open) = (self.known[at].id, &self.known[at].open);
        let namespace = if self.random.percent(15) { Namespace::default() } else { open.namespace.clone() };
        Command::EndSession(EndSession { namespace, session, why: Reason::parse("stuck").expect("legal") })
    }
}
