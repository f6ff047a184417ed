//! `tokens`: the valid fencing tokens of a lock, as an answer or as a stream.

use std::pin::Pin;

use axum::http::Method;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::body::from_text;
use super::call::{Answered, Call, RequestContext};
use super::problem::{Decided, Failed};
use super::stream::{Events, NextEvent, StreamCall, StreamEvent};
use crate::client::{Client, TokenFilter};
use crate::model::{Namespace, Query, QueryResult, ValidTokens};
use crate::service::{LockService, ServiceError};

/// Lists the valid fencing tokens of a lock, for a resource that checks tokens itself. A caller that accepts a stream
/// gets all valid tokens again after each change.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"lock": "nightly"}))]
pub(super) struct TokensQuery {
    lock: String,
    /// Whether the asked node answers from what it has applied.
    #[serde(default, deserialize_with = "from_text")]
    stale: Option<bool>,
}

/// The valid tokens of a lock.
#[derive(Debug, PartialEq, Eq, Serialize, ToSchema)]
pub(super) struct Tokens {
    valid: Vec<String>,
    /// Every lower token is stale.
    floor: String,
    /// A token that every later grant reaches or exceeds.
    next: String,
}

impl Call for TokensQuery {
    const METHOD: Method = Method::GET;
    const WORD: &'static str = "tokens";
    type Answer = Tokens;

    async fn answer<S: LockService>(self, context: &RequestContext<S>) -> Result<Answered<Tokens>, Failed> {
        let reply = context.query(Query::Tokens { lock: context.lock(&self.lock)? }, self.stale).await?;
        let QueryResult::Tokens(tokens) = &reply.answer else { return Err(Failed::unexpected(reply.answer)) };
        Ok(Answered::read(&reply, Tokens::new(tokens)))
    }
}

impl Tokens {
    fn new(tokens: &ValidTokens) -> Self {
        let valid = tokens.tokens.iter().map(ToString::to_string).collect();
        Self { valid, floor: tokens.floor().to_string(), next: tokens.next.to_string() }
    }
}

/// The valid tokens after a change.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct TokensNow {
    /// The word `tokens`.
    event: &'static str,
    #[serde(flatten)]
    tokens: Tokens,
}

impl StreamEvent for TokensNow {
    fn word(&self) -> &'static str {
        self.event
    }
}

impl StreamCall for TokensQuery {
    const WORD: &'static str = <Self as Call>::WORD;
    type Event = TokensNow;

    async fn begin<S: LockService>(self, context: RequestContext<S>) -> Result<Answered<Events<TokensNow>>, Failed> {
        let client = Client::new(context.service.clone()).namespace(context.namespace.clone());
        let filter = client.tokens(context.lock(&self.lock)?.name.as_str()).await;
        let filter = filter.map_err(|error| Failed::of_client(error, &context.namespace, Decided::default()))?;
        let cut_off = Box::pin(context.api.info.cut_off());
        Ok(Answered::fixed(context.stream(Changes { filter, cut_off, known: None })))
    }
}

/// The changes of a lock's valid tokens.
struct Changes<S: LockService> {
    filter: TokenFilter<S>,
    /// Ends the stream at a node that has had no leader for long, because it learns of no change.
    cut_off: Pin<Box<dyn Future<Output = ServiceError> + Send>>,
    /// What the caller knows.
    known: Option<ValidTokens>,
}

impl<S: LockService> NextEvent<TokensNow> for Changes<S> {
    async fn next(&mut self) -> Result<Option<TokensNow>, Failed> {
        let Self { filter, cut_off, known } = self;
        let differs = |now: &ValidTokens| known.as_ref().is_none_or(|known| Tokens::new(known) != Tokens::new(now));
        let now = tokio::select! {
            now = filter.wait_for(differs) => now,
            error = cut_off => return Err(error.into()),
        };
        let now = now.map_err(|error| Failed::of_client(error, &Namespace::default(), Decided::default()))?;
        let tokens = Tokens::new(&now);
        self.known = Some(now);
        Ok(Some(TokensNow { event: "tokens", tokens }))
    }
}
