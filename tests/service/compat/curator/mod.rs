//! Tests of Curator's locks.

mod multi;
mod mutex;
mod others;
mod read_write;
mod semaphore;

use lockkeeper::compat::curator::{CuratorError, CuratorFramework};
use lockkeeper::model::Namespace;
use lockkeeper::service::{ErrorCode, LockService};

use crate::suite::BACKEND;

pub(super) fn namespace(name: &str) -> Namespace {
    Namespace::parse(&format!("{name}.{}", BACKEND.get())).expect("a good name")
}

pub(super) async fn curator<S: LockService>(service: S, name: &str) -> CuratorFramework<S> {
    CuratorFramework::builder(service, namespace(name)).start().await.expect("started")
}

/// A connection with the shortest session that the service allows.
async fn short_curator<S: LockService>(service: S, name: &str) -> CuratorFramework<S> {
    let ttl_ms = service.status().await.expect("a status").ttl_ms_min;
    let builder = CuratorFramework::builder(service, namespace(name));
    builder.session_timeout(std::time::Duration::from_millis(ttl_ms)).start().await.expect("started")
}

fn code(error: &CuratorError) -> Option<ErrorCode> {
    match error {
        CuratorError::Client(error) => Some(error.code()),
        CuratorError::IllegalMonitorState { .. } | CuratorError::IllegalState { .. } => None,
    }
}

fn is_monitor_state(error: &CuratorError) -> bool {
    matches!(error, CuratorError::IllegalMonitorState { .. })
}

fn is_state(error: &CuratorError) -> bool {
    matches!(error, CuratorError::IllegalState { .. })
}
