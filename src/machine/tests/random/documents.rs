//! Random commands on documents: few processes, and a `ts` that is often repeated.

use super::Scenario;
use crate::model::*;

const PROCESSES: [&str; 3] = ["h:1:1:a", "h:2:1:b", "h:3:1:c"];

fn ts_of(drawn: u128) -> DocumentId {
    let mut bytes = [0; 12];
    bytes.copy_from_slice(&drawn.to_be_bytes()[4..]);
    DocumentId(bytes)
}

impl Scenario {
    fn process(&mut self) -> ProcessId {
        ProcessId::parse(self.random.pick(&PROCESSES).expect("some")).expect("legal")
    }

    fn documents_namespace(&mut self) -> Namespace {
        Namespace::parse(if self.random.percent(10) { "batch" } else { "default" }).expect("legal")
    }

    /// A grab: a new acquisition or a repeated one, sometimes with another lock or process.
    fn grab(&mut self) -> Grab {
        let recent = self.grabs.len().saturating_sub(8);
        let again = self.random.pick(&self.grabs[recent..]).cloned();
        if let Some(mut again) = again.filter(|_| self.random.percent(35)) {
            if self.random.percent(20) {
                again.metadata.process = self.process().as_str().into();
            }
            return again;
        }
        let drawn = self.draw();
        let names = ["d", "u", "w", "x", "y", "z", "pool-b", "pool-c"];
        let name = LockName::parse(self.random.pick(&names).expect("some")).expect("legal");
        let lock = LockKey { namespace: self.documents_namespace(), name };
        let metadata = Metadata { process: self.process().as_str().into(), ..Metadata::default() };
        let term = Some(self.random.below(4)).filter(|term| *term != 0);
        let prepare = self.random.percent(40);
        let grab = Grab { lock, ts: ts_of(drawn), metadata, term, prepare, seen: None };
        self.grabs.push(grab.clone());
        grab
    }

    /// The `ts` of a document that probably exists.
    fn seen(&mut self, lock: &LockKey) -> DocumentId {
        let of_lock: Vec<_> = self.grabs.iter().rev().filter(|grab| grab.lock == *lock).take(4).map(|g| g.ts).collect();
        self.random.pick(&of_lock).copied().unwrap_or(ts_of(0))
    }

    /// Uses a name of documents as a semaphore for some time, or ends that use.
    fn other_kind(&mut self) -> Command {
        let name = LockName::parse(self.random.pick(&["x", "y", "z"]).expect("some")).expect("legal");
        let lock = LockKey { namespace: Namespace::default(), name };
        let what = if self.random.percent(30) { Managing::SetLimit { limit: 4 } } else { Managing::RemoveLimit };
        Command::Manage(Manage { lock, what })
    }

    pub(super) fn document(&mut self) -> Command {
        if self.random.percent(6) {
            return self.other_kind();
        }
        Command::Document(match self.random.below(100) {
            0..26 => DocumentCommand::Grab(self.grab()),
            26..31 => self.confirm(),
            31..50 => {
                let grab = self.grab();
                let seen = self.seen(&grab.lock);
                DocumentCommand::Grab(Grab { seen: Some(seen), ..grab })
            }
            50..70 => {
                let LockKey { namespace, name } = self.grab().lock;
                let ts = self.seen(&LockKey { namespace: namespace.clone(), name: name.clone() });
                let named = self.random.percent(60);
                DocumentCommand::Unlock { namespace, ts, name: Some(name).filter(|_| named) }
            }
            70..78 => {
                let (namespace, process) = (self.documents_namespace(), self.process());
                let term = Some(self.random.below(5)).filter(|term| *term < 3);
                DocumentCommand::UnlockAll { namespace, process, term }
            }
            78..82 => DocumentCommand::Ping { namespace: self.documents_namespace(), process: self.process() },
            82..84 => DocumentCommand::StopPing { namespace: self.documents_namespace(), process: self.process() },
            84..92 => self.remove_expired(),
            _ => self.swap_value(),
        })
    }

    /// Confirms an acquisition, mostly one that may be prepared.
    fn confirm(&mut self) -> DocumentCommand {
        let recent = self.grabs.len().saturating_sub(6);
        let grab = self.random.pick(&self.grabs[recent..]).map(|grab| (grab.lock.clone(), grab.ts));
        let (lock, ts) =
            grab.unwrap_or_else(|| (LockKey { namespace: Namespace::default(), name: self.name() }, ts_of(0)));
        DocumentCommand::Confirm { lock, ts }
    }

    fn remove_expired(&mut self) -> DocumentCommand {
        let at = self.session();
        let (name, token) = self.held(at);
        let lock = LockKey { namespace: self.known[at].open.namespace.clone(), name };
        let ends: Vec<_> = self.renewed.iter().filter(|(of, _)| *of == self.known[at].id).collect();
        let recent = ends.len().saturating_sub(1);
        let deadline = self.random.pick(&ends[recent..]).map_or(LogTime(self.stamp), |(_, end)| *end);
        DocumentCommand::RemoveExpired { lock, token, deadline }
    }

    fn swap_value(&mut self) -> DocumentCommand {
        let (seen, value) = (self.value(), self.value());
        let seen = seen.filter(|_| self.random.percent(50));
        let recent = self.grabs.len().saturating_sub(5);
        let grab = self.random.pick(&self.grabs[recent..]).map(|grab| (grab.lock.clone(), grab.ts.handle()));
        let take = self.recent_take().map(|take| (take.lock, take.handle));
        let of_take = self.random.percent(70);
        let (lock, handle) = if of_take { take.or(grab) } else { grab }.unwrap_or_else(|| {
            let lock = LockKey { namespace: Namespace::default(), name: self.name() };
            (lock, Handle::from_random(u128::MAX))
        });
        DocumentCommand::SwapValue { lock, handle, seen, value }
    }
}
