//! Renewals on the leader: those that it refuses at once need no place in the log.

use std::collections::BTreeMap;

use super::Node;
use super::authorizer::Authorizer;
use super::forward::{Forward, Forwarded, unexpected};
use super::proof::{replace_proof, shown};
use super::proposer::queue::Now;
use super::service::{answered, refused};
use crate::model::{RenewalTarget, Reply};
use crate::service::{RenewalCall, ServiceError};

impl Node {
    /// Renews what a caller asks for here, or at the leader.
    pub(super) async fn renew_authorized(&self, mut renewals: Vec<RenewalCall>) -> Result<Vec<Reply>, ServiceError> {
        let authorizer = self.authorizer()?;
        for renewal in &mut renewals {
            if let RenewalTarget::Lease { lock, handle, .. } = &renewal.target {
                self.limit_lease_guesses(authorizer.as_ref(), lock, handle)?;
            }
            let shown = shown(renewal.target.session(), &renewal.proof);
            match self.limit_guesses(authorizer.as_ref(), shown) {
                Ok(proven) => replace_proof(&mut renewal.proof, proven),
                Err(error @ ServiceError::NotSent { .. }) => return Err(error),
                // A wrong handle is answered in its place in the list.
                Err(_) => {}
            }
        }
        if self.serves().await {
            return self.renew_here(authorizer.as_ref(), renewals).await;
        }
        let Forwarded::Replies(replies) = Box::pin(self.send_to_leader(Forward::Renew(renewals), None)).await? else {
            return Err(unexpected());
        };
        Ok(replies)
    }

    /// Renews sessions and leases on this node, which leads.
    pub(super) async fn renew_here(
        &self,
        authorizer: Option<&Authorizer>,
        mut renewals: Vec<RenewalCall>,
    ) -> Result<Vec<Reply>, ServiceError> {
        if let Some(authorizer) = authorizer
            && let Some(a_second) = authorizer.access.renewals_a_second(&authorizer.principal)
        {
            let (renewals, now) = (renewals.len(), self.core.clock.now());
            let limited = self.core.rate_limits.check_renewals(renewals, &authorizer.principal, a_second, now);
            limited.map_err(ServiceError::not_sent)?;
        }
        let mut refused = self.refused_renewals(authorizer, &renewals);
        if !refused.is_empty() {
            // This state may be old, and what it lacks may exist.
            self.confirm_leadership().await?;
            refused = self.refused_renewals(authorizer, &renewals);
        }
        let mut places = 0..;
        renewals.retain(|_| places.next().is_none_or(|place| !refused.contains_key(&place)));
        let (applied, timed) =
            self.core.consensus.machine(|machine| (machine.now(), machine.next_deadline().is_some()));
        let now = || Now { instant: self.core.clock.now(), applied, timed };
        let waiting =
            self.core.queue.renewals(self.source(authorizer), renewals, now).map_err(|why| self.not_sent(why))?;
        let mut replies = Vec::with_capacity(waiting.len());
        for reply in waiting {
            match answered(reply).await.map(|reply| self.redacted(authorizer, reply)) {
                Ok(reply) => replies.push(reply),
                // Some renewals were applied before, so the error must not say that the whole list was not sent.
                Err(ServiceError::NotSent { .. }) if !replies.is_empty() => {
                    return Err(ServiceError::unknown("only a part of the renewals was applied"));
                }
                Err(error) => return Err(error),
            }
        }
        // Inserted in ascending order of their places, so that every earlier reply is present by then.
        refused.into_iter().for_each(|(place, reply)| replies.insert(place, reply));
        Ok(replies)
    }

    /// Returns the refusals of the renewals with an invalid proof or of another principal's target, and of those that
    /// this state refuses because their targets do not exist, with their places. They must not stop the other renewals,
    /// and need no place in the log.
    fn refused_renewals(&self, authorizer: Option<&Authorizer>, renewals: &[RenewalCall]) -> BTreeMap<usize, Reply> {
        self.core.consensus.machine(|machine| {
            let disproved = |call: &RenewalCall| {
                let (session, handle, namespace) = shown(call.target.session(), &call.proof)?;
                machine.proves(session, handle, namespace).err()
            };
            let anothers = |call: &RenewalCall| authorizer?.renewal(machine, &call.target);
            let refusal = |call: &RenewalCall| {
                let refusal = anothers(call).or_else(|| disproved(call));
                let mut refusal = refusal.or_else(|| machine.refuses_renewal(&call.target))?;
                if let Some(authorizer) = authorizer {
                    authorizer.redact(&mut refusal);
                }
                Some(refusal)
            };
            let calls = renewals.iter().enumerate();
            calls.filter_map(|(place, call)| Some((place, refused(machine, refusal(call)?)))).collect()
        })
    }
}
