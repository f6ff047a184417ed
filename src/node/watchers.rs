//! Limits the watches of each source on a node: each of them costs work at every event.

use std::sync::Arc;

use crate::limits;
use crate::service::{Counted, NotSent, Source, SourceCount};

/// The open watches of a node.
#[derive(Debug)]
pub(super) struct Watchers {
    of_source_max: usize,
    open: Arc<SourceCount>,
}

impl Watchers {
    pub(super) fn new(of_source_max: usize) -> Self {
        Self { of_source_max, open: Arc::default() }
    }

    /// Counts a new watch of a source, until the returned count is dropped. The error names the limit that is reached.
    pub(super) fn admit(&self, source: Source) -> Result<Counted, NotSent> {
        let whose = match &source {
            Source::Principal(name) => format!("principal {:?}", name.as_str()),
            Source::Connection(_) => "the connection".to_owned(),
            Source::InProcess => "the application".to_owned(),
            Source::Node(id) => format!("node {id}"),
        };
        self.open.add(source, |all, of_source| {
            let limit = if limits::WATCHERS_A_NODE_MAX <= all {
                format!("the node has {all} watches, its limit; end some of them, or use another node")
            } else if self.of_source_max <= of_source {
                let next = "end some of them, or raise limits.watchers_a_principal";
                format!("{whose} has {of_source} watches on this node, its limit; {next}")
            } else {
                return Ok(());
            };
            Err(NotSent::LimitReached { limit, pause_ms: limits::WATCH_PAUSE_MS })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Principal;

    fn refusal(admitted: Result<Counted, NotSent>) -> String {
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
    }
}
