//! The cluster: its status, its members, and the table of errors.

use axum::http::Method;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::call::{Answered, Call, RequestContext};
use super::problem::Failed;
use crate::service::{LockService, NotSent, ServiceError, Status, TABLE};
use crate::shapes::{Cluster, Member};

/// Shows the cluster as its leader sees it; without a leader, as the asked node does.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({}))]
pub(super) struct StatusQuery {}

impl Call for StatusQuery {
    const METHOD: Method = Method::GET;
    const PATH: Option<&str> = Some("/v1/status");
    const WORD: &'static str = "status";
    type Answer = Cluster;

    async fn answer<S: LockService>(self, context: &RequestContext<S>) -> Result<Answered<Cluster>, Failed> {
        let status = context.service.status().await?;
        Ok(by(&status, Cluster::new(&status)))
    }
}

/// The answer that a status gives.
fn by<T>(status: &Status, value: T) -> Answered<T> {
    Answered::at(status.applied, status.log_time, value)
}

/// Lists the members of the cluster.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({}))]
pub(super) struct MembersQuery {}

/// The members, in the order of their ids.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Members {
    members: Vec<Member>,
}

impl Call for MembersQuery {
    const METHOD: Method = Method::GET;
    const PATH: Option<&str> = Some("/v1/members");
    const WORD: &'static str = "members";
    type Answer = Members;

    async fn answer<S: LockService>(self, context: &RequestContext<S>) -> Result<Answered<Members>, Failed> {
        let led = || async {
            let status = context.service.status().await?;
            // Only the leader knows which members have caught up.
            status.leader.map(|_| status).ok_or_else(|| ServiceError::not_sent(NotSent::NoLeader))
        };
        let status = context.api.retry().until_read(led).await?;
        let members = status.nodes.iter().map(|node| Member::new(&status, node)).collect();
        Ok(by(&status, Members { members }))
    }
}

/// Lists every error that a call can return.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({}))]
pub(super) struct ErrorsQuery {}

/// The table of errors.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Errors {
    errors: Vec<ErrorLine>,
}

/// One error of the table.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ErrorLine {
    /// Code of the error.
    error: &'static str,
    title: &'static str,
    /// HTTP status. `invalid` may have others that say exactly what is wrong.
    status: u16,
    /// gRPC status code.
    grpc: u8,
    /// Exit code of the command line.
    exit: u8,
    /// `retry`, `ask` or `give_up`.
    advice: &'static str,
}

impl Call for ErrorsQuery {
    const METHOD: Method = Method::GET;
    const PATH: Option<&str> = Some("/v1/errors");
    const WORD: &'static str = "errors";
    type Answer = Errors;

    async fn answer<S: LockService>(self, _at: &RequestContext<S>) -> Result<Answered<Errors>, Failed> {
        let lines = TABLE.iter().map(|row| ErrorLine {
            error: row.text,
            title: row.title,
            status: row.http,
            grpc: row.grpc,
            exit: row.exit,
            advice: row.advice.word(),
        });
        Ok(Answered::fixed(Errors { errors: lines.collect() }))
    }
}

/// Describes all calls as OpenAPI 3.1.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({}))]
pub(super) struct OpenApiQuery {}

impl Call for OpenApiQuery {
    const METHOD: Method = Method::GET;
    const PATH: Option<&str> = Some("/v1/openapi.json");
    const WORD: &'static str = "openapi";
    type Answer = serde_json::Value;

    async fn answer<S: LockService>(self, context: &RequestContext<S>) -> Result<Answered<serde_json::Value>, Failed> {
        Ok(Answered::fixed(context.api.description.clone()))
    }
}
