//! Counts the watches of each source on a node, and refuses those beyond a limit: each of them costs work at every
//! event.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::limits;
use crate::service::{NotSent, Source};

/// The open watches of a node.
#[derive(Debug)]
pub(super) struct Watchers {
    of_source_max: usize,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    all: usize,
    of: HashMap<Source, usize>,
}

/// One open watch. Dropping it makes space for another one.
#[derive(Debug)]
pub(super) struct Watcher {
    among: Arc<Watchers>,
    source: Source,
}

impl Watchers {
    pub(super) fn new(of_source_max: usize) -> Arc<Self> {
        Arc::new(Self { of_source_max, open: Mutex::default() })
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a new watch of a source. The error names the limit that is reached.
    pub(super) fn admit(self: &Arc<Self>, source: Source) -> Result<Watcher, NotSent> {
        let refused = |limit| NotSent::LimitReached { limit, pause_ms: limits::WATCH_PAUSE_MS };
        let mut open = self.open();
        if limits::WATCHERS_A_NODE_MAX <= open.all {
            let all = open.all;
            return Err(refused(format!(
                "the node has {all} watches, its limit; end some of them, or use another node"
            )));
        }
        let of_source = open.of.get(&source).copied().unwrap_or_default();
        if self.of_source_max <= of_source {
            let whose = match &source {
                Source::Principal(name) => format!("principal {:?}", name.as_str()),
                Source::Connection(_) => "the connection".to_owned(),
                Source::InProcess => "the application".to_owned(),
                Source::Node(id) => format!("node {id}"),
            };
            let next = "end some of them, or raise limits.watchers_a_principal";
            return Err(refused(format!("{whose} has {of_source} watches on this node, its limit; {next}")));
        }
        open.all += 1;
        *open.of.entry(source.clone()).or_default() += 1;
        drop(open);
        Ok(Watcher { among: Arc::clone(self), source })
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let mut open = self.among.open();
        open.all -= 1;
        if let Some(of_source) = open.of.get_mut(&self.source) {
            *of_source -= 1;
            if *of_source == 0 {
                open.of.remove(&self.source);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Principal;

    fn refusal(admitted: Result<Watcher, NotSent>) -> String {
        admitted.expect_err("refused").to_string()
    }

    /// A source has a limited number of watches, and so have all sources together. Other sources are not affected, and
    /// a watch that ends makes space. The error names the source, the limit and what to do.
    #[test]
    fn each_source_has_few_watches() {
        let watchers = Watchers::new(2);
        let ci = || Source::Principal(Principal::parse("ci").expect("legal"));
        let mut open = vec![watchers.admit(ci()).expect("the first"), watchers.admit(ci()).expect("the second")];
        assert_eq!(
            refusal(watchers.admit(ci())),
            "principal \"ci\" has 2 watches on this node, its limit; end some of them, or raise \
             limits.watchers_a_principal; try again in 1s"
        );
        open.push(watchers.admit(Source::Connection(1)).expect("another source"));
        open.remove(0);
        open.push(watchers.admit(ci()).expect("one has ended"));
        for connection in (2..).take(limits::WATCHERS_A_NODE_MAX - open.len()) {
            open.push(watchers.admit(Source::Connection(connection)).expect("below the limit of the node"));
        }
        assert!(refusal(watchers.admit(Source::Node(2))).starts_with("the node has 4096 watches, its limit; "));
        drop(open);
        assert!(watchers.open().all == 0 && watchers.open().of.is_empty(), "nothing is left");
    }
}
