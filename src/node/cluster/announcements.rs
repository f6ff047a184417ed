//! What the members say of themselves: the leader asks each and puts what is new into the replicated state.

use std::time::Duration;

use futures_util::future::join_all;

use crate::config::Config;
use crate::limits;
use crate::model::{Announcement, Command};
use crate::node::Node;
use crate::node::forward::{Forward, Forwarded};

/// What this node says of itself.
pub(in crate::node) fn own(config: &Config, disk: u128) -> Announcement {
    Announcement {
        node: config.node,
        disk,
        features: limits::FEATURE_LEVEL,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        http: http(config),
    }
}

/// Where others reach the HTTP port: one that listens everywhere is reached under the host that clients use.
fn http(config: &Config) -> Option<String> {
    let listen = config.listen.http?;
    let host = config.member().and_then(|member| Some(member.client.rsplit_once(':')?.0));
    match host {
        Some(host) if listen.ip().is_unspecified() => Some(format!("{host}:{}", listen.port())),
        Some(_) | None => Some(listen.to_string()),
    }
}

/// Asks at the start of each term of this node's, and then every [`limits::WATCH_MS`] while it leads; sooner where what it
/// says of itself did not arrive, as nothing is proposed for it in the first moment of a term.
pub(in crate::node) async fn keep(node: Node) {
    let mut views = node.core.consensus.watch();
    let mut stop = node.core.stop.subscribe();
    let mut asked_in = None;
    loop {
        let view = views.borrow_and_update().clone();
        if view.own_term_applied {
            asked_in = Some(view.term);
        }
        if node.leads() {
            tokio::select! {
                () = node.learn_announcements() => {}
                stopped = stop.wait_for(|stop| *stop) => { stopped.ok(); return }
            }
        }
        tokio::select! {
            begun = views.wait_for(|view| view.own_term_applied && asked_in != Some(view.term)) => {
                if begun.is_err() { return }
            }
            () = tokio::time::sleep(node.next_look()) => {}
            stopped = stop.wait_for(|stop| *stop) => { stopped.ok(); return }
        }
    }
}

impl Node {
    fn next_look(&self) -> Duration {
        let own = &self.core.announcement;
        let told = self.core.consensus.machine(|machine| machine.announced(own.node) == Some(own));
        Duration::from_millis(if told || !self.leads() { limits::WATCH_MS } else { limits::ANNOUNCE_AGAIN_MS })
    }

    /// Asks every member at once; one that does not answer is asked again the next time.
    async fn learn_announcements(&self) {
        let members = self.core.consensus.watch().borrow().members.clone();
        join_all(members.keys().map(|id| self.learn_of(*id))).await;
    }

    async fn learn_of(&self, voter: u64) {
        let Some(told) = self.told_by(voter).await else { return };
        let known = self.core.consensus.machine(|machine| machine.announced(voter).cloned());
        if known.as_ref() != Some(&told) {
            tracing::info!(node = voter, version = told.version, features = told.features, "announced");
            self.core.submit_internal(Command::Announce(told));
        }
    }

    async fn told_by(&self, voter: u64) -> Option<Announcement> {
        if voter == self.core.id {
            return Some(self.core.announcement.clone());
        }
        let wait = Duration::from_millis(limits::ANNOUNCE_WAIT_MS);
        let bytes = self.core.consensus.forward(voter, Forward::Hello.encode(), wait).await.ok()?;
        let Ok(Forwarded::Hello(told)) = Forwarded::decode(&bytes) else { return None };
        match told.checked() {
            Ok(told) => (told.node == voter).then_some(told),
            Err(invalid) => {
                tracing::warn!(node = voter, %invalid, "what it announced is refused");
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn announced(listen: &str) -> Option<String> {
        let text = format!(
            "cluster = \"harbour\"\nnode = 2\ndata = \"d\"\n[listen]\nclient = \"0.0.0.0:7600\"\n\
             peer = \"0.0.0.0:7610\"\n{listen}\n\
             [[member]]\nid = 2\nclient = \"n2.example:7600\"\npeer = \"n2.example:7610\"\n"
        );
        own(&Config::from_toml("n2.toml", &text, []).expect("a good config"), 5).http
    }

    /// The announced HTTP address can be dialled by others: never "everywhere", but the node's own host.
    #[test]
    fn the_http_address_can_be_reached_by_others() {
        assert_eq!(announced("http = \"0.0.0.0:7620\"").as_deref(), Some("n2.example:7620"));
        assert_eq!(announced("http = \"10.0.0.2:7620\"").as_deref(), Some("10.0.0.2:7620"));
        assert_eq!(announced(""), None);
    }
}
