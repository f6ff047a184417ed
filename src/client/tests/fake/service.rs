//! The calls of the fake service: each is noted, and answered as the rule of the test wants it.

use tokio::sync::watch;

use super::{Asked, Fake, Reaction};
use crate::client::tests::time::HOUR_MS;
use crate::clock::Clock;
use crate::model::{Invalid, Query, QueryReply, Reply, SessionId, Totals};
use crate::service::{
    Call, ClaimRef, Download, Events, Freshness, LockService, Operation, RenewalCall, ServiceError, Status,
    Subscription,
};

/// Counts a query while its caller waits.
struct UnderWay(Fake);

impl UnderWay {
    fn new(fake: &Fake) -> Self {
        let mut inner = fake.inner.lock();
        inner.questions.0 += 1;
        inner.questions.1 = inner.questions.1.max(inner.questions.0);
        Self(fake.clone())
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.inner.lock().questions.0 -= 1;
    }
}

impl LockService for Fake {
    async fn submit(&self, call: Call) -> Result<Reply, ServiceError> {
        let reaction = self.reach(Asked::Submit(call.command.clone())).await?;
        if matches!(reaction, Reaction::Lost) {
            drop(self.done(&call.command));
            return Err(ServiceError::unknown("the answer was lost"));
        }
        let outcome = if let Reaction::Outcome(outcome) = reaction { outcome } else { self.done(&call.command) };
        Ok(self.reply(outcome).await)
    }

    fn attachment(&self, _: SessionId) -> watch::Receiver<bool> {
        self.inner.lock().attached.subscribe()
    }

    async fn renew(&self, renewals: Vec<RenewalCall>) -> Result<Vec<Reply>, ServiceError> {
        let [renewal] = &renewals[..] else { unreachable!("clients renew one at a time") };
        let reaction = self.reach(Asked::Renew(renewal.clone())).await?;
        let outcome = if let Reaction::Outcome(outcome) = reaction { outcome } else { self.renewed(renewal) };
        let recalled = self.inner.lock().recalled.clone();
        Ok(vec![Reply { recalled, ..self.reply(outcome).await }])
    }

    async fn wait_outcome(&self, _: ClaimRef) -> Result<Reply, ServiceError> {
        let Reaction::Outcome(outcome) = self.reach(Asked::Settled).await? else { return std::future::pending().await };
        Ok(self.reply(outcome).await)
    }

    async fn query(&self, query: Query, _: Freshness) -> Result<QueryReply, ServiceError> {
        let _under_way = UnderWay::new(self);
        let reaction = self.reach(Asked::Query(query.clone())).await?;
        let answer = if let Reaction::Answer(answer) = reaction { answer } else { self.answer(&query) };
        let now = self.stamp();
        let (index, (_, back)) = {
            let inner = self.inner.lock();
            (inner.index, inner.ways)
        };
        tokio::time::sleep(back).await;
        Ok(QueryReply { index, now, answer })
    }

    async fn subscribe(&self, subscription: Subscription) -> Result<Events, ServiceError> {
        self.reach(Asked::Subscribe).await?;
        let mut inner = self.inner.lock();
        if subscription.cluster_id.is_some_and(|id| id != inner.cluster_id) {
            return Err(Invalid::new("position", "of this cluster", "another one").into());
        }
        let (sender, events) = Events::channel(4_096);
        if !inner.end_subscriptions_at_once {
            inner.subscribers.push(sender);
        }
        Ok(events)
    }

    fn hold_events(&self, _: SessionId) -> Result<Events, ServiceError> {
        let mut inner = self.inner.lock();
        inner.asked.push((self.clock.now(), Asked::Subscribe));
        let (sender, events) = Events::channel(4_096);
        if !inner.end_subscriptions_at_once {
            inner.subscribers.push(sender);
        }
        Ok(events)
    }

    async fn status(&self) -> Result<Status, ServiceError> {
        self.reach(Asked::Status).await?;
        Ok(Status {
            cluster: String::new(),
            cluster_id: Some(self.inner.lock().cluster_id),
            peers_id: 1,
            node: 1,
            leader: Some(1),
            term: 1,
            log_time: self.stamp(),
            applied: 1,
            nodes: Vec::new(),
            totals: Totals::default(),
            ttl_ms_min: 1_000,
            ttl_ms_max: HOUR_MS,
            features: 1,
            timing_ms: [1; 3],
            closed_ms: 0,
            led_ms: 0,
            uncounted_ms: 0,
            warnings: Vec::new(),
        })
    }

    async fn operate(&self, _: Operation) -> Result<(), ServiceError> {
        Ok(())
    }

    async fn backup(&self) -> Result<Download, ServiceError> {
        Err(ServiceError::Stopping)
    }
}
