//! Publishes who leads and where clients reach the members.

use tokio::time::Instant as TokioInstant;

use super::Node;

/// Publishes the leader and the endpoints of the members until the node stops. Wakes calls that wait for a claim
/// whenever leadership moves: the next leader answers them.
pub(super) async fn publish(node: Node) {
    let mut views = node.core.consensus.watch();
    // Whether this node leads, and the leader, as they were published last.
    let mut published = None;
    let mut until_named: Option<TokioInstant> = None;
    let mut contact = Contact::default();
    loop {
        // The view is read after this wait, or it would be old.
        contact.update(&node).await;
        let view = views.borrow_and_update().clone();
        let leads = node.leads();
        node.core.shared.metrics.term.set(view.term as f64);
        node.core.shared.metrics.leader.set(f64::from(u8::from(leads)));
        let now = TokioInstant::now();
        if view.leader.is_none() && published.is_some_and(|(led, _)| led) && node.core.queue.is_paused() {
            // After a transfer the next leader is known within moments, and clients go straight there.
            until_named.get_or_insert(now + node.core.election_max);
        } else {
            until_named = None;
        }
        // A leader without followers sends its clients away, and so does a follower that its leader left. A new leader
        // serves none until it has applied an entry of its term; if it cannot, because its voters are gone, it does not
        // name itself for longer than a leader takes to be missed.
        let itself = leads || (!view.own_term_applied && contact.was_elected_recently(view.term));
        let leader =
            view.leader.filter(|leader| if *leader == node.core.id { itself } else { contact.is_recent(*leader) });
        if published != Some((leads, leader)) && until_named.is_none_or(|until| until <= now) {
            published = Some((leads, leader));
            node.core.shared.claim_waiters.wake_all();
            let hint = node.core.hint(leader);
            if !leads {
                node.core.queue.reject_all(hint.clone());
            }
            node.core.shared.metrics.has_leader.set(f64::from(u8::from(hint.is_some())));
            node.core.leader.send_replace(hint);
        }
        let endpoints: Vec<_> = node.core.members().into_values().map(|member| member.client).collect();
        node.core.endpoints.send_if_modified(|known| {
            let changed = *known != endpoints;
            *known = endpoints;
            changed
        });
        if let Some(why) = view.fatal {
            node.core.shared.fatal.send_replace(Some(why));
        }
        tokio::select! {
            changed = views.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(node.core.election_max) => {}
            () = node.core.stopped() => return,
        }
    }
}

/// Whether the leader that this node follows sent it something recently. Raft names a leader that is gone until another
/// one is elected, and without a quorum none is.
#[derive(Default)]
struct Contact {
    leader: Option<u64>,
    checked: Option<TokioInstant>,
    recent: bool,
    /// The term in which this node was elected, and until when it may take to apply an entry of it.
    elected: Option<(u64, TokioInstant)>,
}

impl Contact {
    /// Asks Raft again if the leader changed, or after the longest election timeout. After twice that time without a
    /// message, the leader counts as gone.
    async fn update(&mut self, node: &Node) {
        let (leader, term) = {
            let views = node.core.consensus.watch();
            let view = views.borrow();
            (view.leader, view.term)
        };
        let (now, election_max) = (TokioInstant::now(), node.core.election_max);
        if leader == Some(node.core.id) && self.elected.is_none_or(|(elected, _)| elected != term) {
            self.elected = Some((term, now + 2 * election_max));
        }
        let due = self.checked.is_none_or(|checked| checked + election_max <= now);
        if leader.is_none() || leader == Some(node.core.id) || (leader == self.leader && !due) {
            return;
        }
        let recent = node.core.consensus.in_contact_within(2 * election_max);
        // Raft does not answer while the disk stalls, and then this node knows of no leader either.
        self.recent = tokio::time::timeout(election_max, recent).await.unwrap_or(false);
        (self.leader, self.checked) = (leader, Some(now));
    }

    /// Whether this node, which leads in this term, was elected so recently that it may still apply the first entry of
    /// the term. A term that is seen only now has just begun.
    fn was_elected_recently(&self, term: u64) -> bool {
        self.elected.is_none_or(|(elected, until)| elected != term || TokioInstant::now() < until)
    }

    /// Whether this leader sent something recently. A leader that was named only now did.
    fn is_recent(&self, leader: u64) -> bool {
        self.leader != Some(leader) || self.recent
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// A new leader names itself while it may still apply the first entry of its term. If its voters are gone, it never
    /// does, and its clients have to look for another leader.
    #[tokio::test(start_paused = true)]
    async fn a_leader_that_never_commits_is_not_named_without_end() {
        let until = TokioInstant::now() + Duration::from_secs(1);
        let contact = Contact { elected: Some((7, until)), ..Contact::default() };
        assert!(contact.was_elected_recently(7));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(!contact.was_elected_recently(7));
        assert!(contact.was_elected_recently(8), "the term has just begun");
    }
}
