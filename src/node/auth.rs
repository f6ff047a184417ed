//! The caller of a handle on a node, and the rules of a node with `[auth]`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::watch;

use crate::auth::{Access, AuthError, Who};
use crate::model::WallTime;
use crate::service::Source;

/// The caller of a handle, and where its calls come from.
#[derive(Debug, Clone)]
pub(super) struct Caller {
    pub(super) source: Source,
    pub(super) who: Who,
    /// Address of the caller; `None` for the application itself, and for calls that another node forwards.
    pub(super) from: Option<SocketAddr>,
}

/// The rules of a node with `[auth]`, as last read from their file.
#[derive(Debug)]
pub(super) struct Auth {
    path: PathBuf,
    access: watch::Sender<Arc<Access>>,
}

/// A node must start although its clock is wrong, so only the commands check how long tokens last.
const ANY_END: WallTime = WallTime(u64::MAX);

impl Auth {
    /// Reads the file of rules.
    pub(super) fn open(path: PathBuf) -> Result<Self, AuthError> {
        let access = Access::from_file(&path, ANY_END)?;
        Ok(Self { path, access: watch::Sender::new(Arc::new(access)) })
    }

    /// Reads the file again. Returns the rules before, if they were others.
    pub(super) fn reload(&self) -> Result<Option<Arc<Access>>, AuthError> {
        let mut access = Arc::new(Access::from_file(&self.path, ANY_END)?);
        let changed = self.access.send_if_modified(|current| {
            std::mem::swap(current, &mut access);
            *current != access
        });
        Ok(changed.then_some(access))
    }

    pub(super) fn rules(&self) -> Arc<Access> {
        Arc::clone(&self.access.borrow())
    }

    /// Returns a receiver that shows each change of the rules from now on.
    pub(super) fn changes(&self) -> watch::Receiver<Arc<Access>> {
        self.access.subscribe()
    }
}

/// Waits until the rules change, or permanently without rules.
pub(super) async fn changed(rules: &mut Option<watch::Receiver<Arc<Access>>>) {
    let Some(rules) = rules else { return std::future::pending().await };
    if rules.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}
